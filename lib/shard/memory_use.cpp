#include "shard/memory_use.h"

#include <algorithm>

namespace stft::shard {
namespace {

// Plays the engine's gathers and frees with sizes instead of tensors.
class Rehearsal {
 public:
  Rehearsal(const std::vector<std::unique_ptr<ShardGroup>>& groups, const std::vector<UnitGroups>& units,
            const GatherSchedule& schedule)
      : groups_(groups), units_(units), schedule_(schedule), held_(groups.size()) {}

  int64_t peak() {
    const auto count = static_cast<int64_t>(units_.size());
    for (int64_t unit = 0; unit < count; ++unit) {
      finish(unit);
      for (int64_t next = unit + 1; next <= unit + schedule_.prefetch && next < count; ++next) {
        start(next);
      }
      const bool is_needed_next = unit + 1 == count;
      if (!is_needed_next && schedule_.after_forward != AfterForward::kKeep) {
        free(unit, schedule_.after_forward == AfterForward::kKeepPart && is_read(unit));
      }
    }
    for (int64_t unit = count - 1; unit >= 0; --unit) {
      if (is_read(unit)) {
        finish(unit);
      }
      for (int64_t next = unit - 1; next >= unit - schedule_.prefetch && next >= 0; --next) {
        if (is_read(next)) {
          start(next);
        }
      }
      free(unit, false);
    }
    return meter_.peak();
  }

 private:
  struct Held {
    int64_t leaf = 0, buffer = 0, part = 0;
  };

  bool is_read(int64_t unit) const { return units_[static_cast<size_t>(unit)].is_read_by_backward; }

  template <typename Action>
  void for_groups(int64_t unit, Action&& action) {
    const UnitGroups& range = units_[static_cast<size_t>(unit)];
    for (size_t group = range.first_group; group < range.end_group; ++group) {
      action(groups_[group]->shards(), held_[group]);
    }
  }

  void start(int64_t unit) {
    for_groups(unit, [&](const ParameterShards& shards, Held& held) {
      if (held.leaf > 0 || held.buffer > 0) {
        return;
      }
      const bool is_direct = shards.buffer_bytes() == 0 && held.part == 0;
      (is_direct ? held.leaf : held.buffer) = held.part > 0 || is_direct ? shards.leaf_bytes() : shards.buffer_bytes();
      meter_.add(held.leaf + held.buffer);
    });
  }

  void finish(int64_t unit) {
    start(unit);
    for_groups(unit, [&](const ParameterShards& shards, Held& held) {
      if (held.buffer > 0) {
        held.leaf = shards.leaf_bytes();
        meter_.add(held.leaf);
        meter_.add(-held.buffer - held.part);
        held.buffer = 0;
        held.part = 0;
      }
    });
  }

  void free(int64_t unit, bool keeps_part) {
    for_groups(unit, [&](const ParameterShards& shards, Held& held) {
      const int64_t part = keeps_part ? shards.leaf_bytes() / schedule_.part : 0;
      meter_.add(part);
      meter_.add(-held.leaf - held.buffer - held.part);
      held = {0, 0, part};
    });
  }

  const std::vector<std::unique_ptr<ShardGroup>>& groups_;
  const std::vector<UnitGroups>& units_;
  GatherSchedule schedule_;
  std::vector<Held> held_;
  MemoryMeter meter_;
};

}  // namespace

int64_t planned_gathers(const std::vector<std::unique_ptr<ShardGroup>>& groups, const std::vector<UnitGroups>& units,
                        const GatherSchedule& schedule) {
  return Rehearsal(groups, units, schedule).peak();
}

}  // namespace stft::shard
