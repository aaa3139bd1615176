// Copies of the model that are no copies any more.
#include "train/replicas.h"

#include <ATen/ATen.h>

#include <bit>
#include <catch2/catch.hpp>
#include <filesystem>

#include "base/error.h"
#include "io/file.h"
#include "io/temporary_directory.h"
#include "support/rank_messages.h"
#include "support/run_fixture.h"
#include "train/saving.h"

using namespace stft;

namespace {

// The lowest bit of the last value of the last parameter.
void flip_a_bit(train::Run& run) {
  const at::NoGradGuard no_grad;
  const auto value = run.engine->local_parameters().back().value;
  float& last = value.data_ptr<float>()[value.numel() - 1];
  last = std::bit_cast<float>(std::bit_cast<uint32_t>(last) ^ 1U);
}

struct Change {
  int64_t ranks = 2;
  int64_t rank = 1;  // -1: none
  shard::Strategy strategy = shard::Strategy::kNoShard;
};

// A step, a bit changed on one rank, a save: what every rank says.
std::vector<std::string> save(const std::string& output_dir, const Change& change) {
  return test::messages_of_ranks<SystemError>(change.ranks, [&](std::unique_ptr<dist::ProcessGroup> world) {
    const int64_t rank = world->rank();
    auto recipe = test::tiny_recipe();
    recipe.train.global_batch_size = 12;
    recipe.run.output_dir = output_dir;
    const auto run = test::assemble_on(std::move(world), recipe, change.strategy);
    const auto step = run->loader->next().value();
    test::runner_of(*run).run(step, 1.0);
    if (rank == change.rank) {
      flip_a_bit(*run);
    }
    train::RunState state;
    state.position = step.end;
    train::save_checkpoint(*run, {state, {run->recipe, run->plan->total_steps(), 1, 1, 1}});
  });
}

}  // namespace

TEST_CASE("a copy that differs by one bit is found before it is saved, and all ranks name it") {
  for (const int64_t ranks : {2, 3}) {
    const test::TemporaryDirectory directory;
    std::filesystem::create_directories(directory.path("run"));
    const auto messages = save(directory.path("run"), {ranks, 1});
    for (const std::string& message : messages) {
      CHECK(message == messages.front());
      CHECK_THAT(message, Catch::Contains("before saving checkpoint-1: the copies of the model are not equal") &&
                              Catch::Contains("on rank 0, ") && Catch::EndsWith("on rank 1"));
    }
    CHECK(std::filesystem::is_empty(directory.path("run")));
  }
  const test::TemporaryDirectory directory;
  std::filesystem::create_directories(directory.path("run"));
  CHECK_THAT(save(directory.path("run"), {3, 0}).front(),  // who is right is not known
             Catch::Contains("on rank 1, ") && Catch::EndsWith("on rank 2"));
}

TEST_CASE("ranks that load different weights do not come to a first step") {
  const test::TemporaryDirectory directory;
  const std::string other = directory.path("other");
  std::filesystem::copy(test::golden_path("tiny_bert"), other, std::filesystem::copy_options::recursive);
  std::string weights = io::read_text_file(other + "/model.safetensors");
  char& byte = weights[weights.size() / 2];  // of the word embeddings
  byte = static_cast<char>(byte ^ 1);
  io::write_file(other + "/model.safetensors", weights);
  const auto messages = test::messages_of_ranks<SystemError>(2, [&](std::unique_ptr<dist::ProcessGroup> world) {
    auto recipe = test::tiny_recipe();
    if (world->rank() == 1) {
      recipe.model.name_or_path = other;
    }
    test::assemble_on(std::move(world), recipe, shard::Strategy::kNoShard);
  });
  CHECK(messages[0] == messages[1]);
  CHECK_THAT(messages[0], Catch::Contains("before the first step: the copies of the model are not equal"));
}

TEST_CASE("equal copies are saved, and so is a model without copies") {
  for (const auto strategy : {shard::Strategy::kNoShard, shard::Strategy::kFullShard}) {
    const test::TemporaryDirectory directory;
    std::filesystem::create_directories(directory.path("run"));
    for (const std::string& message : save(directory.path("run"), {3, -1, strategy})) {
      CHECK(message == "nothing");
    }
    CHECK(std::filesystem::exists(directory.path("run/checkpoint-1")));
  }
}
