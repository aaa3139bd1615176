#include "shard/parameter_shards.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "base/error.h"
#include "shard/storage.h"

namespace stft::shard {
namespace {

// Sizes are multiples of this, so that every member of a buffer can be seen in its own dtype (of at most 4 bytes).
constexpr int64_t kAlignment = 4;

int64_t aligned(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

int64_t element_size(at::ScalarType dtype) {
  return static_cast<int64_t>(c10::elementSize(dtype));
}

const PackedForm* packed_form(const GroupContext& context, const model::Parameter& parameter) {
  if (context.packed == nullptr) {
    return nullptr;
  }
  const auto found = context.packed->find(&parameter);
  if (found == context.packed->end()) {
    return nullptr;
  }
  STFT_CHECK(!parameter.is_trainable && parameter.stored_dtype == at::kByte, "packed parameters are frozen bytes");
  STFT_CHECK(context.device.is_cpu() && found->second.row_bytes % kAlignment == 0, "packed rows are on the CPU");
  return &found->second;
}

std::vector<int64_t> stored_shape(const model::Parameter& parameter, const PackedForm* packed) {
  return packed != nullptr ? std::vector<int64_t>{packed->rows, packed->row_bytes} : parameter.shape;
}

}  // namespace

ParameterShards::ParameterShards(const std::vector<model::Parameter*>& parameters, const GroupContext& context,
                                 bool is_whole)
    : context_(context), ranks_(is_whole ? 1 : context.shard.size()), rank_(is_whole ? 0 : context.shard.rank()) {
  for (model::Parameter* parameter : parameters) {
    STFT_CHECK(!parameter->is_trainable || parameter->stored_dtype == at::kFloat, "trainable parameters are fp32");
    Member member;
    member.parameter = parameter;
    member.packed = packed_form(context, *parameter);
    member.layout = shard_layout(stored_shape(*parameter, member.packed), rank_, ranks_);
    member.gathered = element_size(parameter->stored_dtype) < element_size(context.compute) ? parameter->stored_dtype
                                                                                            : context.compute;
    is_staged_ = is_staged_ || member.gathered != parameter->stored_dtype;
    members_.push_back(std::move(member));
  }
  is_staged_ = is_staged_ || context.is_offloaded;
  const bool is_cast = std::any_of(members_.begin(), members_.end(), [&](const Member& member) {
    return member.parameter->stored_dtype != context.compute;
  });
  is_resident_ = ranks_ == 1 && !is_cast && !context.is_offloaded;
  place_members();
}

void ParameterShards::place_members() {
  const at::NoGradGuard no_grad;
  for (Member& member : members_) {
    member.shard_offset = shard_size_;
    member.shard_bytes = aligned(member.layout.chunk_numel() * element_size(member.parameter->stored_dtype));
    shard_size_ += member.shard_bytes;
    member.gather_offset = gather_size_;
    member.gather_bytes = aligned(member.layout.chunk_numel() * element_size(member.gathered));
    gather_size_ += member.gather_bytes;
  }
  if (!is_resident_) {
    auto options = at::TensorOptions().dtype(at::kByte).device(context_.home());
    // Copies between host and GPU run beside the computation only from pinned memory.
    options = options.pinned_memory(context_.is_offloaded && context_.device.is_cuda());
    flat_shard_ = at::zeros({shard_size_}, options);
  }
  for (Member& member : members_) {
    make_leaf(member);
    const int64_t numel = member.layout.chunk_numel();
    const auto stored = member.parameter->stored_dtype;
    member.shard = is_resident_ ? member.padded_leaf.view({-1})
                                : flat_shard_.narrow(0, member.shard_offset, numel * element_size(stored)).view(stored);
  }
  state_ = is_resident_ ? GroupState::kUnsharded : GroupState::kSharded;
}

void ParameterShards::make_leaf(Member& member) const {
  model::Parameter& parameter = *member.parameter;
  const auto options = at::TensorOptions().dtype(context_.compute).device(context_.device);
  // Packed rows say nothing of where a rank's elements would end.
  const int64_t chunk =
      member.packed != nullptr ? (parameter.numel() + ranks_ - 1) / ranks_ : member.layout.chunk_numel();
  member.padded_leaf = at::empty({ranks_, chunk}, options);
  member.leaf_bytes = member.padded_leaf.view({-1}).view(at::kByte);
  // A tensor of its own on the padded storage, so that filling it never touches the leaf's version counter.
  auto leaf = at::empty({0}, options);
  leaf.set_(member.padded_leaf.storage(), 0, parameter.shape, c10::contiguous_strides(parameter.shape));
  if (is_resident_) {
    leaf.zero_();
  } else {
    resize_storage(leaf, 0);
  }
  leaf.set_requires_grad(parameter.is_trainable);
  if (parameter.is_trainable && context_.compute != at::kFloat) {
    // Gradients of several backwards add up in fp32 whatever they are computed in.
    torch::autograd::impl::materialize_autograd_meta(leaf)->set_grad_dtype(at::kFloat, leaf);
  }
  parameter.leaf = leaf;
}

at::Tensor ParameterShards::own_rows(int64_t index) const {
  const Member& member = members_[static_cast<size_t>(index)];
  return member.shard.narrow(0, 0, member.layout.own_numel());
}

// A gather that needs no copy: one parameter, whose bytes arrive as the leaf has them.
bool ParameterShards::is_direct() const {
  const Member& only = members_.front();
  return members_.size() == 1 && only.gathered == context_.compute && ranks_ * only.gather_bytes == only.leaf_size();
}

void ParameterShards::allocate(const Member& member) {
  resize_storage(member.padded_leaf, member.leaf_size());
  context_.meter.add(member.leaf_size());
}

dist::PendingCollective ParameterShards::issue(dist::ProcessGroup& group, const at::Tensor& output,
                                               const at::Tensor& input) {
  if (group.size() > 1) {
    counts_.all_gathers += 1;
    counts_.bytes += static_cast<int64_t>(output.nbytes());
  }
  return group.all_gather(output, input);
}

// What this rank sends. Shards that are cast or moved go into this rank's own place of the output.
at::Tensor ParameterShards::staged_input(at::Tensor& buffer) const {
  if (!is_staged_) {
    return flat_shard_;
  }
  auto own = buffer.narrow(0, rank_ * gather_size_, gather_size_);
  for (const Member& member : members_) {
    const int64_t bytes = member.layout.chunk_numel() * element_size(member.gathered);
    own.narrow(0, member.gather_offset, bytes).view(member.gathered).copy_(member.shard, true);
  }
  return own;
}

void ParameterShards::start_gather() {
  if (state_ == GroupState::kInParts) {
    start_part_gather();
    return;
  }
  if (state_ != GroupState::kSharded) {
    return;
  }
  const at::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView no_version_bump;
  if (is_direct()) {
    allocate(members_.front());
    buffer_ = members_.front().leaf_bytes;
  } else {
    buffer_ = at::empty({ranks_ * gather_size_}, members_.front().leaf_bytes.options());
    context_.meter.add(buffer_.numel());
  }
  const auto input = staged_input(buffer_);
  if (ranks_ > 1) {
    gather_ = issue(context_.shard, buffer_, input);
  } else if (!is_staged_) {
    buffer_.copy_(input);
  }
  state_ = GroupState::kGathering;
}

void ParameterShards::finish_gather(bool unpacks) {
  start_gather();
  if (state_ != GroupState::kGathering) {
    return;
  }
  gather_.wait();
  const at::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView no_version_bump;
  if (kept_.defined()) {
    copy_parts_out();
  } else if (!is_direct()) {
    copy_out(unpacks);
  }
  buffer_ = at::Tensor();
  state_ = GroupState::kUnsharded;
}

// From [ranks, all members] to each leaf's [ranks, chunk].
void ParameterShards::copy_out(bool unpacks) {
  const auto by_rank = buffer_.view({ranks_, gather_size_});
  std::vector<at::Tensor> destinations;
  std::vector<int64_t> sizes;
  bool is_plain = true;
  for (const Member& member : members_) {
    if (member.packed == nullptr || unpacks) {
      allocate(member);
    }
    const int64_t row = member.layout.chunk_numel() * element_size(member.gathered);
    is_plain = is_plain && member.gathered == context_.compute && row == member.gather_bytes;
    destinations.push_back(member.leaf_bytes.view({ranks_, -1}));
    sizes.push_back(member.gather_bytes);
  }
  if (is_plain) {
    at::split_with_sizes_copy_out(destinations, by_rank, sizes, 1);
  } else {
    for (const Member& member : members_) {
      if (member.packed != nullptr) {
        if (unpacks) {
          unpack(member, by_rank);
        }
        continue;
      }
      const int64_t row = member.layout.chunk_numel() * element_size(member.gathered);
      member.padded_leaf.copy_(by_rank.narrow(1, member.gather_offset, row).view(member.gathered));
    }
  }
  if (unpacks) {
    context_.meter.add(-buffer_.numel());
  } else {
    held_ = buffer_;
  }
}

void ParameterShards::gather_packed() {
  const bool has_packed =
      std::any_of(members_.begin(), members_.end(), [](const Member& member) { return member.packed != nullptr; });
  finish_gather(!has_packed);
}

void ParameterShards::unpack_held() {
  if (!held_.defined()) {
    return;
  }
  const at::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView no_version_bump;
  for (const Member& member : members_) {
    if (member.packed != nullptr && member.padded_leaf.storage().nbytes() == 0) {
      allocate(member);
      unpack(member, held_.view({ranks_, gather_size_}));
    }
  }
}

void ParameterShards::free_held() {
  for (const Member& member : members_) {
    if (held_.defined() && member.packed != nullptr) {
      free_leaf(member);
    }
  }
}

void ParameterShards::free_leaf(const Member& member) {
  context_.meter.add(-static_cast<int64_t>(member.padded_leaf.storage().nbytes()));
  resize_storage(member.padded_leaf, 0);
}

void ParameterShards::unpack(const Member& member, const at::Tensor& by_rank) const {
  const PackedForm& form = *member.packed;
  const auto elements = member.padded_leaf.view({-1});
  for (int64_t first = 0; first < form.rows; first += member.layout.chunk_rows) {
    const int64_t rows = std::min(member.layout.chunk_rows, form.rows - first);
    const int64_t start = first * form.row_elements;
    const auto bytes = by_rank.select(0, first / member.layout.chunk_rows)
                           .narrow(0, member.gather_offset, rows * form.row_bytes)
                           .view({rows, form.row_bytes});
    form.unpack(bytes,
                elements.narrow(0, start, std::min(rows * form.row_elements, member.parameter->numel() - start)));
  }
}

// Each rank of the part has an equal stretch of every padded leaf.
void ParameterShards::keep_part() {
  if (ranks_ == 1 || state_ != GroupState::kUnsharded || context_.part == nullptr) {
    free();
    return;
  }
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> stretches;
  for (const Member& member : members_) {
    const int64_t size = member.leaf_size() / context_.part->size();
    stretches.push_back(member.leaf_bytes.narrow(0, context_.part->rank() * size, size));
  }
  auto kept = at::cat(stretches);
  context_.meter.add(kept.numel());
  free();
  kept_ = std::move(kept);
  state_ = GroupState::kInParts;
}

void ParameterShards::start_part_gather() {
  buffer_ = at::empty({context_.part->size() * kept_.numel()}, kept_.options());
  context_.meter.add(buffer_.numel());
  gather_ = issue(*context_.part, buffer_, kept_);
  state_ = GroupState::kGathering;
}

void ParameterShards::copy_parts_out() {
  std::vector<at::Tensor> destinations;
  std::vector<int64_t> sizes;
  for (const Member& member : members_) {
    allocate(member);
    destinations.push_back(member.leaf_bytes.view({context_.part->size(), -1}));
    sizes.push_back(member.leaf_size() / context_.part->size());
  }
  at::split_with_sizes_copy_out(destinations, buffer_.view({context_.part->size(), -1}), sizes, 1);
  context_.meter.add(-buffer_.numel() - kept_.numel());
  kept_ = at::Tensor();
}

void ParameterShards::free() {
  if (is_resident_ || state_ == GroupState::kSharded) {
    return;
  }
  gather_.wait();
  if (state_ == GroupState::kGathering && buffer_.defined() && !(is_direct() && !kept_.defined())) {
    context_.meter.add(-buffer_.numel());
  }
  buffer_ = at::Tensor();
  if (kept_.defined()) {
    context_.meter.add(-kept_.numel());
    kept_ = at::Tensor();
  }
  if (held_.defined()) {
    context_.meter.add(-held_.numel());
    held_ = at::Tensor();
  }
  for (const Member& member : members_) {
    free_leaf(member);
  }
  state_ = GroupState::kSharded;
}

void ParameterShards::free_quietly() {
  try {
    gather_.wait();  // the memory that it writes to is freed next
  } catch (const CollectiveError&) {
    gather_ = dist::PendingCollective();
  }
  free();
}

at::Tensor ParameterShards::gather(int64_t index) {
  const Member& member = members_.at(static_cast<size_t>(index));
  const at::NoGradGuard no_grad;
  const auto shape = stored_shape(*member.parameter, member.packed);
  const int64_t numel = member.layout.rows * member.layout.row_numel;
  if (ranks_ == 1) {
    return member.shard.narrow(0, 0, numel).view(shape);
  }
  auto whole = at::empty({ranks_ * member.layout.chunk_numel()}, member.shard.options().device(context_.device));
  issue(context_.shard, whole, member.shard.to(context_.device)).wait();
  return whole.narrow(0, 0, numel).view(shape).to(context_.home());
}

int64_t ParameterShards::shard_bytes() const {
  return shard_size_;  // of a resident leaf as well: nothing is padded there
}

int64_t ParameterShards::leaf_bytes() const {
  int64_t sum = 0;
  if (is_resident_) {
    return sum;
  }
  for (const Member& member : members_) {
    sum += member.leaf_size();
  }
  return sum;
}

int64_t ParameterShards::held_bytes() const {
  if (!is_resident_) {
    return static_cast<int64_t>(flat_shard_.storage().nbytes());
  }
  int64_t sum = 0;
  for (const Member& member : members_) {
    sum += static_cast<int64_t>(member.padded_leaf.storage().nbytes());
  }
  return sum;
}

int64_t ParameterShards::buffer_bytes() const {
  return is_resident_ || is_direct() ? 0 : ranks_ * gather_size_;
}

}  // namespace stft::shard
