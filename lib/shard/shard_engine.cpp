#include "shard/shard_engine.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "shard/checksum.h"
#include "shard/unit_plan.h"

namespace stft::shard {
namespace {

using torch::autograd::variable_list;

// An identity in the graph that calls back when the gradient passes: everything that was computed from its output has
// had its backward by then (nodes that were created later run first).
struct PassMarker : torch::autograd::Node {
  std::function<void()> on_pass;
  variable_list apply(variable_list&& gradients) override {
    on_pass();
    return std::move(gradients);
  }
};

at::Tensor mark(const at::Tensor& input, std::function<void()> on_pass) {
  auto node = c10::make_intrusive<PassMarker>();
  node->on_pass = std::move(on_pass);
  node->set_next_edges({torch::autograd::impl::gradient_edge(input)});
  at::Tensor output = input.detach();
  torch::autograd::set_history(output, node);
  return output;
}

at::ScalarType scalar_type(ParamDtype dtype) {
  switch (dtype) {
    case ParamDtype::kFp32:
      return at::kFloat;
    case ParamDtype::kBf16:
      return at::kBFloat16;
    case ParamDtype::kFp16:
      return at::kHalf;
  }
  throw_internal("known dtype", "");
}

AfterForward after_forward(const ShardConfig& config, const EngineMesh& mesh, bool has_packed) {
  // With one rank to gather from, freeing would save nothing on the wire and cost a second copy. What is packed is kept
  // small though.
  const bool is_copy = mesh.shard.size() == 1 && !config.cpu_offload && !has_packed;
  if (is_copy || config.strategy == Strategy::kShardGradOp || config.reshard_after_forward == false) {
    return AfterForward::kKeep;
  }
  return mesh.part != nullptr ? AfterForward::kKeepPart : AfterForward::kFree;
}

}  // namespace

ShardEngine::ShardEngine(EngineModel model, EngineMesh mesh, const ShardConfig& config)
    : model_(model),
      mesh_(mesh),
      schedule_{after_forward(config, mesh, model.packed != nullptr), config.prefetch,
                mesh.part != nullptr ? mesh.part->size() : 1} {
  const auto problem = wrap_problem(model.parameters, model.blocks, config);
  STFT_CHECK(!problem, problem.value_or(""));
  const at::ScalarType compute = scalar_type(config.param_dtype.value_or(ParamDtype::kFp32));
  const GroupContext context{
      mesh.shard, mesh.replicate, mesh.part, mesh.device, config.cpu_offload, compute, scalar_type(config.reduce_dtype),
      meter_,     model.packed};
  place_of_parameter_.resize(model.parameters.size());
  unit_of_block_.resize(model.blocks.size());
  for (const UnitPlan& plan :
       plan_units(model.parameters, model.blocks, config, static_cast<int64_t>(c10::elementSize(compute)))) {
    Unit unit{plan.first_block, plan.end_block, {groups_.size(), 0, plan.is_read_by_backward}, 0};
    for (const GroupPlan& group : plan.groups) {
      std::vector<model::Parameter*> pointers;
      for (const int64_t index : group.parameters) {
        place_of_parameter_[static_cast<size_t>(index)] = {groups_.size(), static_cast<int64_t>(pointers.size())};
        pointers.push_back(&model.parameters[static_cast<size_t>(index)]);
      }
      groups_.push_back(std::make_unique<ShardGroup>(plan.name, pointers, context, group.is_whole));
    }
    unit.range.end_group = groups_.size();
    for (int64_t block = plan.first_block; block < plan.end_block; ++block) {
      unit_of_block_[static_cast<size_t>(block)] = units_.size();
    }
    units_.push_back(unit);
  }
  int64_t planned = 0;
  for (const auto& group : groups_) {
    planned += group->shards().size();
  }
  STFT_CHECK(planned == static_cast<int64_t>(model.parameters.size()), "every parameter belongs to a block");
}

ShardEngine::~ShardEngine() = default;

template <typename Action>
void ShardEngine::for_groups(size_t unit, Action&& action) {
  for (size_t group = units_[unit].range.first_group; group < units_[unit].range.end_group; ++group) {
    action(*groups_[group]);
  }
}

void ShardEngine::fill(const RowSource& source) {
  STFT_CHECK(!keeps_unsharded_, "parameters are filled while they are kept gathered");
  const at::NoGradGuard no_grad;
  reshard_all();
  for (auto& group : groups_) {
    for (const LocalParameter& local : group->local_parameters()) {
      if (local.layout.own_rows > 0) {
        source(*local.parameter, local.layout, local.value);
      }
    }
  }
}

void ShardEngine::start_unshard(size_t unit) {
  for_groups(unit, [](ShardGroup& group) { group.start_unshard(); });
}

void ShardEngine::finish_unshard(size_t unit) {
  start_unshard(unit);
  for_groups(unit, [](ShardGroup& group) { group.finish_unshard(); });
}

at::Tensor ShardEngine::before_block(int64_t block, at::Tensor input) {
  const size_t unit = unit_of_block_.at(static_cast<size_t>(block));
  if (block != units_[unit].first_block) {
    return input;
  }
  finish_unshard(unit);
  for_groups(unit, [](ShardGroup& group) { group.unpack_held(); });
  const auto ahead = static_cast<size_t>(schedule_.prefetch);
  for (size_t next = unit + 1; next <= unit + ahead && next < units_.size(); ++next) {
    start_unshard(next);
  }
  if (at::GradMode::is_enabled() && input.defined() && input.requires_grad()) {
    return mark(input, [this, unit] { post_backward(unit); });
  }
  return input;
}

at::Tensor ShardEngine::after_block(int64_t block, at::Tensor output) {
  const size_t unit = unit_of_block_.at(static_cast<size_t>(block));
  if (block + 1 != units_[unit].end_block) {
    return output;
  }
  if (!at::GradMode::is_enabled() || !output.requires_grad()) {
    for_groups(unit, [this](ShardGroup& group) { keeps_unsharded_ ? group.free_held() : group.reshard(); });
    return output;
  }
  units_[unit].pending_backwards += 1;
  release(unit);
  output.register_hook([this, unit](const at::Tensor& gradient) {
    pre_backward(unit);
    return gradient;
  });
  return output;
}

// After a forward whose backward will come. That of the last unit comes next, so freeing it would only mean gathering
// it again.
void ShardEngine::release(size_t unit) {
  if (keeps_unsharded_ || is_last(unit) || schedule_.after_forward == AfterForward::kKeep) {
    return;
  }
  const bool keeps_part = schedule_.after_forward == AfterForward::kKeepPart && units_[unit].range.is_read_by_backward;
  for_groups(unit, [keeps_part](ShardGroup& group) { keeps_part ? group.keep_part() : group.reshard(); });
}

void ShardEngine::pre_backward(size_t unit) {
  if (!std::exchange(is_callback_queued_, true)) {
    torch::autograd::Engine::get_default_engine().queue_callback([this] { final_callback(); });
  }
  if (units_[unit].range.is_read_by_backward) {
    finish_unshard(unit);
  }
  for (int64_t step = 1; step <= schedule_.prefetch && static_cast<int64_t>(unit) >= step; ++step) {
    const size_t next = unit - static_cast<size_t>(step);
    if (units_[next].range.is_read_by_backward && units_[next].pending_backwards > 0) {
      start_unshard(next);
    }
  }
}

void ShardEngine::post_backward(size_t unit) {
  int64_t& pending = units_[unit].pending_backwards;
  pending = std::max<int64_t>(0, pending - 1);
  // Without a reduction the parameters cannot change, so what is kept is there for the next forward too.
  const bool is_still_used = schedule_.after_forward == AfterForward::kKeep && (pending > 0 || !has_gradient_sync_);
  if (!keeps_unsharded_ && !is_still_used) {
    for_groups(unit, [](ShardGroup& group) { group.reshard(); });
  }
  if (pending == 0 && has_gradient_sync_) {
    reduce(unit);
  } else if (pending == 0) {
    units_[unit].has_whole_gradients = true;
  }
}

// The reductions of at most two units are under way.
void ShardEngine::reduce(size_t unit) {
  units_[unit].has_whole_gradients = false;
  if (unit + 2 < units_.size()) {
    for_groups(unit + 2, [](ShardGroup& group) { group.finish_reduce(); });
  }
  if (unit + 1 < units_.size() && mesh_.replicate.size() > 1) {
    for_groups(unit + 1, [](ShardGroup& group) { group.advance_reduce(); });
  }
  for_groups(unit, [](ShardGroup& group) { group.start_reduce(); });
}

// At the end of the backward: units whose input had no gradient (token ids) got no marker, and forwards whose output
// the loss does not use have no backward.
void ShardEngine::final_callback() {
  is_callback_queued_ = false;
  for (size_t unit = units_.size(); unit-- > 0;) {
    if (units_[unit].pending_backwards > 0) {
      units_[unit].pending_backwards = 1;
      post_backward(unit);
    }
  }
  if (!has_gradient_sync_) {
    int64_t whole = 0;
    for (const auto& group : groups_) {
      whole += group->reducer().held_bytes();
    }
    gradient_peak_ = std::max(gradient_peak_, whole);
  }
}

void ShardEngine::finish_gradients() {
  // What earlier backwards left, of units that the last one did not pass.
  for (size_t unit = units_.size(); unit-- > 0;) {
    if (units_[unit].has_whole_gradients) {
      reduce(unit);
    }
  }
  for (size_t group = groups_.size(); group-- > 0;) {
    groups_[group]->advance_reduce();
  }
  int64_t held = 0;
  for (size_t group = groups_.size(); group-- > 0;) {
    groups_[group]->finish_reduce();
    held += groups_[group]->reducer().held_bytes();
    if (!keeps_unsharded_) {
      groups_[group]->reshard();
    }
  }
  gradient_peak_ = std::max(gradient_peak_, held);
}

void ShardEngine::clear_gradients() {
  for (auto& group : groups_) {
    group->clear_gradients();
  }
  for (Unit& unit : units_) {
    unit.has_whole_gradients = false;
  }
}

std::vector<LocalParameter> ShardEngine::local_parameters() const {
  std::vector<std::vector<LocalParameter>> of_groups;
  for (const auto& group : groups_) {
    of_groups.push_back(group->local_parameters());
  }
  std::vector<LocalParameter> result;
  for (const auto& [group, place] : place_of_parameter_) {
    result.push_back(of_groups[group][static_cast<size_t>(place)]);
  }
  return result;
}

at::Tensor ShardEngine::gather(int64_t index) {
  const auto [group, place] = place_of_parameter_.at(static_cast<size_t>(index));
  return groups_[group]->gather(place);
}

void ShardEngine::unshard_all() {
  for (auto& group : groups_) {
    group->start_unshard();
  }
  for (auto& group : groups_) {
    group->finish_unshard();
  }
}

void ShardEngine::reshard_all() {
  for (auto& group : groups_) {
    group->reshard();
  }
}

ShardEngine::KeepUnsharded::KeepUnsharded(ShardEngine& engine, Gather gather) : engine_(engine) {
  STFT_CHECK(!engine.keeps_unsharded_, "the groups are kept unsharded already");
  if (gather != Gather::kWhenUsed) {
    engine.meter_.note_peak(false);
    try {
      for (auto& group : engine.groups_) {
        group->start_unshard();
      }
      for (auto& group : engine.groups_) {
        gather == Gather::kPacked ? group->unshard_packed() : group->finish_unshard();
      }
    } catch (...) {
      engine.meter_.note_peak(true);
      throw;
    }
  }
  engine.keeps_unsharded_ = true;
}

ShardEngine::KeepUnsharded::~KeepUnsharded() {
  engine_.keeps_unsharded_ = false;
  for (auto& group : engine_.groups_) {
    group->reshard_quietly();  // throws nothing: an exception may be under way
  }
  engine_.meter_.note_peak(true);
}

void ShardEngine::reset() {
  is_callback_queued_ = false;
  for (Unit& unit : units_) {
    unit.pending_backwards = 0;
    unit.has_whole_gradients = false;
  }
  for (auto& group : groups_) {
    group->abandon();
  }
}

uint64_t ShardEngine::parameters_checksum() {
  return checksum_of(Counted::kAll);
}

uint64_t ShardEngine::packed_checksum() {
  return checksum_of(Counted::kPacked);
}

uint64_t ShardEngine::checksum_of(Counted counted) {
  uint64_t sum = 0;
  for (const LocalParameter& local : local_parameters()) {
    const bool is_packed = model_.packed != nullptr && model_.packed->contains(local.parameter);
    if (counted == Counted::kPacked && !is_packed) {
      continue;
    }
    // What every rank of the shard group has whole counts once.
    if (local.copy < mesh_.replicate.size()) {
      sum += checksum_rows(*local.parameter, local.layout, local.value);
    }
  }
  auto total = at::empty({1}, at::kLong);
  total.fill_(static_cast<int64_t>(sum));
  mesh_.shard.all_reduce_sum(total).wait();
  return static_cast<uint64_t>(total.item<int64_t>());
}

dist::CollectiveCounts ShardEngine::counts() const {
  dist::CollectiveCounts sum;
  for (const auto& group : groups_) {
    sum += group->counts();
  }
  return sum;
}

MemoryUse ShardEngine::planned_memory(bool keeps_whole_gradients) const {
  MemoryUse use;
  for (const auto& group : groups_) {
    use.parameters += group->shards().shard_bytes();
    use.gradients += keeps_whole_gradients ? std::max(group->reducer().whole_bytes(), group->reducer().shard_bytes())
                                           : group->reducer().shard_bytes();
  }
  std::vector<UnitGroups> ranges;
  for (const Unit& unit : units_) {
    ranges.push_back(unit.range);
  }
  use.gathers = planned_gathers(groups_, ranges, schedule_);
  return use;
}

MemoryUse ShardEngine::measured_memory() const {
  MemoryUse use;
  for (const auto& group : groups_) {
    use.parameters += group->shards().held_bytes();
  }
  use.gradients = gradient_peak_;
  use.gathers = meter_.peak();
  return use;
}

}  // namespace stft::shard
