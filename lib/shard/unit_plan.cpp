#include "shard/unit_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

namespace stft::shard {
namespace {

constexpr int64_t kAloneBytes = int64_t{1} << 20;

bool ends_with_module(const std::string& name, const std::string& suffix) {
  return name == suffix || name.ends_with("." + suffix);
}

// "encoder.layer.3" as "encoder.layer".
std::string without_numbers(const std::string& name) {
  std::vector<std::string> kept;
  size_t start = 0;
  while (start <= name.size()) {
    const size_t end = std::min(name.find('.', start), name.size());
    const std::string part = name.substr(start, end - start);
    if (part.find_first_not_of("0123456789") != std::string::npos) {
      kept.push_back(part);
    }
    start = end + 1;
  }
  return fmt::format("{}", fmt::join(kept, "."));
}

bool matches(const model::Block& block, const std::string& suffix) {
  return ends_with_module(block.name, suffix) || ends_with_module(without_numbers(block.name), suffix);
}

bool is_wrapped(const model::Block& block, const ShardConfig& config) {
  return std::any_of(config.wrap_modules.begin(), config.wrap_modules.end(),
                     [&](const std::string& suffix) { return matches(block, suffix); });
}

class Planner {
 public:
  Planner(const model::ParameterTable& parameters, const std::vector<model::Block>& blocks, const ShardConfig& config,
          int64_t bytes_per_element)
      : parameters_(parameters), blocks_(blocks), config_(config), bytes_per_element_(bytes_per_element) {}

  std::vector<UnitPlan> plan() const {
    std::vector<UnitPlan> units;
    std::set<int64_t> starts = cuts();
    for (const SharedCut& shared : cuts_through_shared()) {
      starts.erase(shared.cut);
    }
    starts.insert(static_cast<int64_t>(blocks_.size()));
    int64_t first = 0;
    for (const int64_t end : starts) {
      if (end > first) {
        units.push_back(unit(first, end));
        first = end;
      }
    }
    return units;
  }

  // A wrap that was asked for and would separate the users of one parameter.
  std::optional<std::string> conflict() const {
    if (config_.wrap == WrapKind::kAuto) {
      return std::nullopt;
    }
    const auto starts = cuts();
    for (const SharedCut& shared : cuts_through_shared()) {
      if (starts.contains(shared.cut)) {
        return fmt::format("the modules {} and {} share {} and cannot be wrapped apart; use auto",
                           blocks_[static_cast<size_t>(shared.first_user)].name,
                           blocks_[static_cast<size_t>(shared.last_user)].name,
                           parameters_[static_cast<size_t>(shared.parameter)].name);
      }
    }
    return std::nullopt;
  }

 private:
  // A cut between two blocks that use one parameter.
  struct SharedCut {
    int64_t cut = 0;
    int64_t parameter = 0;
    int64_t first_user = 0, last_user = 0;
  };

  int64_t bytes(int64_t parameter) const {
    return parameters_[static_cast<size_t>(parameter)].numel() * bytes_per_element_;
  }

  // Of a block's parameters that share a collective.
  int64_t shared_bytes(int64_t block) const {
    int64_t sum = 0;
    for (const int64_t parameter : blocks_[static_cast<size_t>(block)].parameters) {
      sum += bytes(parameter) < config_.own_group_bytes ? bytes(parameter) : 0;
    }
    return sum;
  }

  int64_t all_bytes(int64_t block) const {
    int64_t sum = 0;
    for (const int64_t parameter : blocks_[static_cast<size_t>(block)].parameters) {
      sum += bytes(parameter);
    }
    return sum;
  }

  // The blocks at which a unit begins.
  std::set<int64_t> cuts() const {
    std::set<int64_t> starts;
    const auto count = static_cast<int64_t>(blocks_.size());
    switch (config_.wrap) {
      case WrapKind::kBlock:
        for (int64_t block = 0; block < count; ++block) {
          starts.insert(block);
        }
        break;
      case WrapKind::kModules:
        for (int64_t block = 0; block < count; ++block) {
          if (is_wrapped(blocks_[static_cast<size_t>(block)], config_)) {
            starts.insert(block);
            starts.insert(block + 1);
          }
        }
        break;
      case WrapKind::kAuto:
        for (int64_t block = 0; block < count; ++block) {
          if (!blocks_[static_cast<size_t>(block)].is_read_by_backward && all_bytes(block) >= kAloneBytes) {
            starts.insert(block);
            starts.insert(block + 1);
          }
        }
        add_even_cuts(starts);
        break;
    }
    return starts;
  }

  // Cuts every stretch between two cuts into parts of about equal size, none much below min_unit_bytes.
  void add_even_cuts(std::set<int64_t>& starts) const {
    std::vector<int64_t> ends(starts.begin(), starts.end());
    ends.push_back(static_cast<int64_t>(blocks_.size()));
    int64_t first = 0;
    for (const int64_t end : ends) {
      int64_t total = 0;
      for (int64_t block = first; block < end; ++block) {
        total += shared_bytes(block);
      }
      const int64_t parts = std::max<int64_t>(1, total / std::max<int64_t>(1, config_.min_unit_bytes));
      int64_t done = 0;
      int64_t part = 1;
      for (int64_t block = first; block + 1 < end; ++block) {
        done += shared_bytes(block);
        if (part < parts && done * parts >= total * part) {
          starts.insert(block + 1);
          part = done * parts / std::max<int64_t>(1, total) + 1;
        }
      }
      first = end;
    }
  }

  std::vector<SharedCut> cuts_through_shared() const {
    std::vector<int64_t> first_use(parameters_.size(), -1);
    std::vector<SharedCut> cuts;
    for (int64_t block = 0; block < static_cast<int64_t>(blocks_.size()); ++block) {
      for (const int64_t parameter : blocks_[static_cast<size_t>(block)].parameters) {
        int64_t& first = first_use[static_cast<size_t>(parameter)];
        first = first < 0 ? block : first;
        for (int64_t cut = first + 1; cut <= block; ++cut) {
          cuts.push_back({cut, parameter, first, block});
        }
      }
    }
    return cuts;
  }

  bool is_kept_whole(int64_t parameter) const {
    const std::string& name = parameters_[static_cast<size_t>(parameter)].name;
    return std::any_of(config_.whole_parameters.begin(), config_.whole_parameters.end(),
                       [&](const std::string& suffix) { return ends_with_module(name, suffix); });
  }

  UnitPlan unit(int64_t first, int64_t end) const {
    UnitPlan unit;
    unit.first_block = first;
    unit.end_block = end;
    unit.is_read_by_backward = false;
    unit.name = blocks_[static_cast<size_t>(first)].name;
    if (end - first > 1) {
      unit.name += " .. " + blocks_[static_cast<size_t>(end - 1)].name;
    }
    std::set<int64_t> seen;
    GroupPlan together;
    GroupPlan whole{{}, true};
    for (int64_t block = first; block < end; ++block) {
      unit.is_read_by_backward = unit.is_read_by_backward || blocks_[static_cast<size_t>(block)].is_read_by_backward;
      for (const int64_t parameter : blocks_[static_cast<size_t>(block)].parameters) {
        if (!seen.insert(parameter).second) {
          continue;
        }
        if (is_kept_whole(parameter)) {
          whole.parameters.push_back(parameter);
        } else if (bytes(parameter) >= config_.own_group_bytes) {
          unit.groups.push_back({{parameter}, false});
        } else {
          together.parameters.push_back(parameter);
        }
      }
    }
    for (GroupPlan& group : std::vector<GroupPlan>{std::move(together), std::move(whole)}) {
      if (!group.parameters.empty()) {
        unit.groups.push_back(std::move(group));
      }
    }
    return unit;
  }

  const model::ParameterTable& parameters_;
  const std::vector<model::Block>& blocks_;
  const ShardConfig& config_;
  int64_t bytes_per_element_;
};

}  // namespace

std::optional<std::string> wrap_problem(const model::ParameterTable& parameters,
                                        const std::vector<model::Block>& blocks, const ShardConfig& config) {
  if (config.wrap == WrapKind::kModules) {
    for (const std::string& suffix : config.wrap_modules) {
      const bool is_known =
          std::any_of(blocks.begin(), blocks.end(), [&](const model::Block& block) { return matches(block, suffix); });
      if (!is_known) {
        std::vector<std::string> names;
        for (const model::Block& block : blocks) {
          names.push_back(block.name);
        }
        return fmt::format("'{}' ends the name of no module that can be wrapped; they are: {}", suffix,
                           fmt::join(names, ", "));
      }
    }
  }
  return Planner(parameters, blocks, config, 1).conflict();
}

std::vector<UnitPlan> plan_units(const model::ParameterTable& parameters, const std::vector<model::Block>& blocks,
                                 const ShardConfig& config, int64_t bytes_per_element) {
  return Planner(parameters, blocks, config, bytes_per_element).plan();
}

}  // namespace stft::shard
