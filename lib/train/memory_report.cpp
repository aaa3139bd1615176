#include "train/memory_report.h"

#include <sys/resource.h>

#include <string>
#include <vector>

#include "train/sharding_choice.h"

namespace stft::train {
namespace {

using Figures = std::vector<std::pair<std::string, int64_t>>;

// Of this process, so far.
int64_t peak_resident_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

Figures figures(const shard::MemoryUse& use, int64_t optimizer) {
  return {{"parameters_bytes", use.parameters},
          {"gradients_bytes", use.gradients},
          {"optimizer_bytes", optimizer},
          {"gathers_bytes", use.gathers}};
}

IntegerLists of_all_ranks(const Figures& own, dist::ProcessGroup& world) {
  std::vector<int64_t> values;
  for (const auto& [name, value] : own) {
    values.push_back(value);
  }
  const auto all = dist::gather_integers(world, values);
  IntegerLists lists;
  for (size_t i = 0; i < own.size(); ++i) {
    std::vector<int64_t> by_rank;
    for (const auto& of_rank : all) {
      by_rank.push_back(of_rank[i]);
    }
    lists.emplace_back(own[i].first, std::move(by_rank));
  }
  return lists;
}

}  // namespace

IntegerLists planned_memory(Run& run) {
  int64_t optimizer = 0;
  for (const shard::LocalParameter& local : run.engine->local_parameters()) {
    optimizer += optimizer_bytes(run.recipe.optim, *local.parameter, local.layout.own_rows);
  }
  const bool keeps_whole = !run.reduces_every_micro_batch;
  return of_all_ranks(figures(run.engine->planned_memory(keeps_whole), optimizer), run.mesh->world());
}

IntegerLists measured_memory(Run& run) {
  Figures own = figures(run.engine->measured_memory(), run.optimizer->state_bytes());
  own.emplace_back("peak_resident_bytes", peak_resident_bytes());
  return of_all_ranks(own, run.mesh->world());
}

}  // namespace stft::train
