#include "train/mesh_counts.h"

#include <set>

namespace stft::train {

dist::CollectiveCounts mesh_counts(Mesh& mesh) {
  // Two of them may be the same group.
  const std::set<const dist::ProcessGroup*> groups = {&mesh.world(), &mesh.shard(), &mesh.replicate()};
  dist::CollectiveCounts sum;
  for (const dist::ProcessGroup* group : groups) {
    if (group->size() > 1) {
      sum.all_gathers += group->counts().all_gathers;
      sum.reduce_scatters += group->counts().reduce_scatters;
      sum.all_reduces += group->counts().all_reduces;
      sum.bytes += group->counts().bytes;
    }
  }
  return sum;
}

dist::CollectiveCounts counts_between(const dist::CollectiveCounts& before, const dist::CollectiveCounts& after) {
  return {after.all_gathers - before.all_gathers, after.reduce_scatters - before.reduce_scatters,
          after.all_reduces - before.all_reduces, after.bytes - before.bytes};
}

}  // namespace stft::train
