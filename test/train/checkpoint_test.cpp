// Checkpoints as files: written by any number of ranks, read by any other, in both forms, bit for bit.
#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <mutex>

#include "base/error.h"
#include "checkpoint/checkpoint_store.h"
#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/convert.h"
#include "checkpoint/dcp_reader.h"
#include "checkpoint/export_model.h"
#include "checkpoint/optimizer_state.h"
#include "checkpoint/stored_model.h"
#include "checkpoint/verify.h"
#include "io/directory.h"
#include "io/temporary_directory.h"
#include "train/checkpoint_run.h"

using namespace stft;
using namespace stft::test;
using checkpoint::StateDictType;

namespace {

namespace fs = std::filesystem;

struct State {
  std::vector<at::Tensor> weights;
  std::vector<at::Tensor> moments;
  int64_t steps = 0;
};

at::Tensor whole_tensor(const checkpoint::DcpDirectory& stored, const checkpoint::DcpTensor& tensor) {
  auto whole = at::empty(tensor.shape, tensor.dtype == io::Dtype::kU8 ? at::kByte : at::kFloat);
  stored.read_rows_into(tensor, 0, tensor.shape.empty() ? 1 : tensor.shape.front(),
                        {static_cast<std::byte*>(whole.data_ptr()), static_cast<size_t>(whole.nbytes())});
  return whole;
}

// What `ranks` ranks hold after loading a checkpoint, gathered; the moments through a second save.
State load(const recipe::Recipe& recipe, const std::string& path, int64_t ranks, shard::Strategy strategy) {
  State state;
  const TemporaryDirectory scratch;
  run_ranks(ranks, [&](std::unique_ptr<dist::ProcessGroup> world) {
    const bool is_first = world->rank() == 0;
    recipe::Recipe own = recipe;
    own.sharding.strategy = strategy;
    own.run.output_dir = scratch.path("run");
    own = recipe::resolve(std::move(own), world->size());
    auto point = train::find_resume_point(own, {false, path}, *world);
    train::Run run = train::assemble(std::move(own), std::move(world), std::move(point));
    for (size_t i = 0; i < run.model->parameters().size(); ++i) {
      const auto whole = run.engine->gather(static_cast<int64_t>(i));
      if (is_first) {
        state.weights.push_back(whole.clone());
      }
    }
    checkpoint::CheckpointContent content{*run.model,   *run.weights, *run.engine, run.mesh->world(),
                                          std::nullopt, {},           {}};
    content.optimizer.emplace(checkpoint::OptimizerSource{*run.optimizer, run.recipe.optim, 0.0});
    checkpoint::write_checkpoint(content, scratch.path("again"));
    if (is_first) {
      state.steps = run.optimizer->steps();
    }
  });
  const auto stored = checkpoint::DcpDirectory::open(scratch.path("again/optimizer_0"));
  for (const auto& tensor : stored.tensors()) {
    state.moments.push_back(whole_tensor(stored, tensor));
  }
  return state;
}

void check_equal(const State& found, const State& expected) {
  REQUIRE(found.weights.size() == expected.weights.size());
  REQUIRE(found.moments.size() == expected.moments.size());
  for (size_t i = 0; i < found.weights.size(); ++i) {
    CHECK(at::equal(found.weights[i], expected.weights[i]));
  }
  for (size_t i = 0; i < found.moments.size(); ++i) {
    CHECK(at::equal(found.moments[i], expected.moments[i]));
  }
  CHECK(found.steps == expected.steps);
}

recipe::Recipe trained(const std::string& output_dir, StateDictType type, const RunOptions& options) {
  recipe::Recipe recipe = checkpoint_recipe(output_dir);
  recipe.train.max_steps = 3;
  save_every(recipe, 3, type);
  train_run(recipe, options);
  return recipe;
}

}  // namespace

TEST_CASE("what 1, 2 and 3 ranks save, FULL and SHARDED, any number of ranks reads back bit for bit") {
  const TemporaryDirectory directory;
  for (const auto type : {StateDictType::kFull, StateDictType::kSharded}) {
    for (const int64_t ranks : {1, 2, 3}) {
      const auto strategy = ranks == 2 ? shard::Strategy::kNoShard : shard::Strategy::kFullShard;
      const std::string output_dir = directory.path("run");
      fs::remove_all(output_dir);
      const recipe::Recipe recipe = trained(output_dir, type, {ranks, strategy});
      const std::string path = output_dir + "/checkpoint-3";
      CHECK(checkpoint::verify_checkpoint(path).faults.empty());
      const State one = load(recipe, path, 1, shard::Strategy::kFullShard);
      CHECK(one.steps == 3);
      CHECK(one.moments.size() > 2 * one.weights.size());  // two moments and a count for each
      for (const int64_t readers : {2, 3}) {
        INFO("full " << (type == StateDictType::kFull) << " " << ranks << " -> " << readers);
        check_equal(load(recipe, path, readers, shard::Strategy::kFullShard), one);
        check_equal(load(recipe, path, readers, shard::Strategy::kNoShard), one);
      }
    }
  }
}

TEST_CASE("what the other strategies save is read back bit for bit by every strategy") {
  struct Writer {
    std::string name;
    RunOptions options;
    bool is_offloaded = false, is_bf16 = false;
  };
  const std::vector<Writer> writers = {{"two copies of two halves", {4, shard::Strategy::kHybridShard}},
                                       {"offloaded", {2, shard::Strategy::kShardGradOp}, true, false},
                                       {"bf16", {3, shard::Strategy::kFullShard}, false, true}};
  for (const auto type : {StateDictType::kFull, StateDictType::kSharded}) {
    for (const Writer& writer : writers) {
      INFO(writer.name << ", full " << (type == StateDictType::kFull));
      const TemporaryDirectory directory;
      recipe::Recipe recipe = checkpoint_recipe(directory.path("run"));
      recipe.train.max_steps = 3;
      save_every(recipe, 3, type);
      recipe.sharding.hybrid_shard_size = 2;
      recipe.sharding.cpu_offload = writer.is_offloaded;
      recipe.train.bf16 = writer.is_bf16;
      train_run(recipe, writer.options);
      const std::string path = directory.path("run/checkpoint-3");
      CHECK(checkpoint::verify_checkpoint(path).faults.empty());
      const State one = load(recipe, path, 1, shard::Strategy::kFullShard);
      CHECK(one.steps == 3);
      for (const auto& weight : one.weights) {
        CHECK(weight.scalar_type() == at::kFloat);
      }
      check_equal(load(recipe, path, 4, shard::Strategy::kHybridShard), one);
      check_equal(load(recipe, path, 3, shard::Strategy::kShardGradOp), one);
      check_equal(load(recipe, path, 2, shard::Strategy::kNoShard), one);
    }
  }
}

TEST_CASE("state-dict: FULL to SHARDED and back, to any number of parts, is the same state") {
  const TemporaryDirectory directory;
  const recipe::Recipe recipe = trained(directory.path("run"), StateDictType::kFull, {2});
  const std::string full = directory.path("run/checkpoint-3");
  const State expected = load(recipe, full, 1, shard::Strategy::kFullShard);
  for (const int64_t parts : {1, 2, 3, 7}) {
    INFO("parts " << parts);
    const std::string sharded = directory.path("sharded" + std::to_string(parts));
    checkpoint::convert_checkpoint(full, {StateDictType::kSharded, parts, sharded});
    CHECK(checkpoint::verify_checkpoint(sharded).faults.empty());
    CHECK(checkpoint::read_manifest(sharded)->world_size == parts);
    check_equal(load(recipe, sharded, 2, shard::Strategy::kFullShard), expected);
    const std::string back = directory.path("back" + std::to_string(parts));
    checkpoint::convert_checkpoint(sharded, {StateDictType::kFull, 2, back});
    CHECK(contents(back) == contents(full));  // the manifest too
  }
  const std::string message = message_of<UserError>([&] {
    checkpoint::convert_checkpoint(directory.path("run/final"), {StateDictType::kFull, 1, "x"});
  });
  CHECK(message.find("is not a checkpoint of stft") != std::string::npos);
}

TEST_CASE("8-bit moments are stored as they are: codes and magnitudes, read back bit for bit by any ranks") {
  struct Writer {
    RunOptions options;
    bool is_offloaded = false;
  };
  for (const Writer& writer : {Writer{{1}}, Writer{{2}}, Writer{{3}}, Writer{{4, shard::Strategy::kHybridShard}},
                               Writer{{2, shard::Strategy::kShardGradOp}, true}}) {
    INFO(writer.options.ranks << " ranks, offloaded " << writer.is_offloaded);
    const TemporaryDirectory directory;
    recipe::Recipe recipe = eight_bit_recipe(directory.path("run"));
    recipe.train.max_steps = 3;
    recipe.sharding.hybrid_shard_size = 2;
    recipe.sharding.cpu_offload = writer.is_offloaded;
    save_every(recipe, 3, StateDictType::kSharded);
    train_run(recipe, writer.options);
    const std::string path = directory.path("run/checkpoint-3");
    CHECK(checkpoint::verify_checkpoint(path).faults.empty());
    const auto stored = checkpoint::DcpDirectory::open(path + "/optimizer_0");
    const std::string dense = "optimizer.state.2.linear.weight.";
    for (const char* name : {"state1", "state2"}) {
      REQUIRE(stored.find(dense + name) != nullptr);
      CHECK(stored.find(dense + name)->dtype == io::Dtype::kU8);
      CHECK(stored.find(dense + name)->shape == std::vector<int64_t>{200, 32});
      CHECK(whole_tensor(stored, *stored.find(dense + name)).max().item<int>() > 0);
    }
    for (const char* name : {"absmax1", "absmax2"}) {
      REQUIRE(stored.find(dense + name) != nullptr);
      CHECK(stored.find(dense + name)->dtype == io::Dtype::kF32);
      CHECK(stored.find(dense + name)->shape == std::vector<int64_t>{200, 1});
    }
    CHECK(stored.find("optimizer.state.2.linear.bias.exp_avg") != nullptr);
    CHECK(stored.find("optimizer.state.0.model.embeddings.word_embeddings.weight.exp_avg_sq") != nullptr);
    const State one = load(recipe, path, 1, shard::Strategy::kFullShard);
    CHECK(one.steps == 3);
    check_equal(load(recipe, path, 2, shard::Strategy::kNoShard), one);
    check_equal(load(recipe, path, 3, shard::Strategy::kFullShard), one);
    check_equal(load(recipe, path, 4, shard::Strategy::kHybridShard), one);
    const std::string parts = directory.path("parts");
    checkpoint::convert_checkpoint(path, {StateDictType::kFull, 5, parts});
    CHECK(checkpoint::verify_checkpoint(parts).faults.empty());
    check_equal(load(recipe, parts, 2, shard::Strategy::kFullShard), one);
  }
}

TEST_CASE("8-bit moments of which a part is missing, or of another type, are refused") {
  const TemporaryDirectory directory;
  recipe::Recipe recipe = eight_bit_recipe(directory.path("run"));
  recipe.train.max_steps = 2;
  save_every(recipe, 2, StateDictType::kSharded);
  train_run(recipe, {1});
  const auto stored = checkpoint::DcpDirectory::open(directory.path("run/checkpoint-2/optimizer_0"));
  const std::string dense = "optimizer.state.2.linear.weight.";
  for (const bool is_missing : {true, false}) {
    const std::string changed = directory.path(is_missing ? "missing" : "other");
    const std::string message = message_of<UserError>([&] {
      run_ranks(1, [&](std::unique_ptr<dist::ProcessGroup> world) {
        io::make_directories(changed);
        checkpoint::Attempt attempt(*world, "writing");
        checkpoint::ShardedWriter writer(*world, changed, attempt);
        for (const auto& tensor : stored.tensors()) {
          const bool is_changed = tensor.key == dense + "absmax1";
          const int64_t rows = tensor.shape.empty() ? 1 : tensor.shape.front();
          const auto bytes = stored.read_rows(tensor, 0, rows);
          if (!is_changed || !is_missing) {
            writer.add_rows({tensor.path, is_changed ? io::Dtype::kI32 : tensor.dtype, tensor.shape}, {0, rows}, bytes);
          }
        }
        writer.finish();
        attempt.agree();
        const auto run = assemble_on(std::move(world), recipe, shard::Strategy::kFullShard);
        checkpoint::load_optimizer(changed, *run->optimizer, *run->engine);
      });
    });
    INFO(message);
    CHECK(message.find(is_missing ? "'2.linear.weight' has no absmax1" : "type I32, expected [200, 1] and F32") !=
          std::string::npos);
  }
}

TEST_CASE("final/ is the export of the last checkpoint, in either form and from any number of ranks") {
  const TemporaryDirectory directory;
  for (const auto type : {StateDictType::kFull, StateDictType::kSharded}) {
    for (const int64_t ranks : {1, 3}) {
      const std::string output_dir = directory.path("run");
      fs::remove_all(output_dir);
      trained(output_dir, type, {ranks});
      checkpoint::export_directory(output_dir + "/checkpoint-3",
                                   {checkpoint::WeightPrecision::kAsInput, directory.path("out")});
      CHECK(contents(directory.path("out")) == contents(output_dir + "/final"));
      checkpoint::export_directory(output_dir + "/final",
                                   {checkpoint::WeightPrecision::kAsInput, directory.path("again")});
      CHECK(contents(directory.path("again")) == contents(output_dir + "/final"));
    }
  }
}

TEST_CASE("--dtype holds for every floating-point tensor and for config.json") {
  const TemporaryDirectory directory;
  trained(directory.path("run"), StateDictType::kSharded, {2});
  const std::string path = directory.path("run/checkpoint-3");
  struct Asked {
    checkpoint::WeightPrecision precision;
    io::Dtype dtype;
    const char* name;
  };
  for (const Asked asked : {Asked{checkpoint::WeightPrecision::kBFloat16, io::Dtype::kBF16, "bfloat16"},
                            Asked{checkpoint::WeightPrecision::kFloat16, io::Dtype::kF16, "float16"},
                            Asked{checkpoint::WeightPrecision::kFloat32, io::Dtype::kF32, "float32"}}) {
    const std::string out = directory.path(asked.name);
    checkpoint::export_directory(path, {asked.precision, out});
    const auto file = io::SafetensorsFile::open(out + "/model.safetensors");
    for (const auto& info : file.tensors()) {
      INFO(info.name);
      CHECK((!checkpoint::is_weight_dtype(info.dtype) || info.dtype == asked.dtype));
    }
    const auto config = io::read_json_file(out + "/config.json");
    CHECK(config.value("dtype", config.value("torch_dtype", "")) == asked.name);
  }
  // Rounding fp32 is what the bf16 export holds.
  const auto fp32 = io::SafetensorsFile::open(directory.path("float32/model.safetensors"));
  for (const auto& info : fp32.tensors()) {
    if (info.dtype == io::Dtype::kF32) {
      const auto rounded = read_tensor(fp32.path(), info.name).to(at::kBFloat16).to(at::kFloat);
      CHECK(at::equal(rounded, read_tensor(directory.path("bfloat16/model.safetensors"), info.name)));
    }
  }
}

TEST_CASE("verify names what is wrong with each kind of damage") {
  const TemporaryDirectory directory;
  trained(directory.path("run"), StateDictType::kSharded, {2});
  const std::string path = directory.path("run/checkpoint-3");
  const auto faults_after = [&](const std::function<void(const std::string&)>& damage) {
    const std::string copy = directory.path("copy");
    fs::remove_all(copy);
    fs::copy(path, copy, fs::copy_options::recursive);
    damage(copy);
    std::string all;
    for (const std::string& fault : checkpoint::verify_checkpoint(copy).faults) {
      all += fault + "\n";
    }
    return all;
  };
  const std::string shard = "/pytorch_model_fsdp_0/__1_0.distcp";
  CHECK(faults_after([](const std::string&) {}).empty());
  CHECK(faults_after([&](const std::string& copy) { fs::remove(copy + shard); }).find("__1_0.distcp' is missing") !=
        std::string::npos);
  CHECK(faults_after([&](const std::string& copy) { fs::resize_file(copy + shard, 100); }).find("has 100 bytes") !=
        std::string::npos);
  CHECK(faults_after([&](const std::string& copy) {
          std::string bytes = io::read_text_file(copy + shard);
          bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
          io::write_file(copy + shard, bytes);
        }).find("is damaged") != std::string::npos);
  CHECK(faults_after([](const std::string& copy) {
          fs::remove(copy + "/stft_checkpoint.json");
        }).find("it is unfinished") != std::string::npos);
  CHECK(faults_after([](const std::string& copy) {
          io::write_file(copy + "/stft_checkpoint.json", "{\"format_version\": 9}");
        }).find("format_version is 9") != std::string::npos);
  CHECK(faults_after([](const std::string& copy) {
          auto manifest = *checkpoint::read_manifest(copy);
          manifest.weights.front().tensors.front().shape.front() += 1;
          checkpoint::write_manifest(manifest, copy);
        }).find("has another shape") != std::string::npos);
}

TEST_CASE("rotation keeps the best and the newest, whatever the limit") {
  const TemporaryDirectory directory;
  const std::string run = directory.path("run");
  for (const int64_t step : {2, 4, 6, 8, 10}) {
    fs::create_directories(run + "/" + checkpoint::checkpoint_name(step));
  }
  fs::create_directories(run + "/checkpoint-7.tmp");
  fs::create_directories(run + "/checkpoint-08");
  checkpoint::rotate_checkpoints(run, 3, "checkpoint-2");
  CHECK(checkpoint::checkpoint_steps(run) == std::vector<int64_t>{2, 8, 10});
  checkpoint::rotate_checkpoints(run, 1, "checkpoint-2");
  CHECK(checkpoint::checkpoint_steps(run) == std::vector<int64_t>{2, 10});
  checkpoint::rotate_checkpoints(run, 1, std::nullopt);
  CHECK(checkpoint::checkpoint_steps(run) == std::vector<int64_t>{10});
  checkpoint::clean_leftovers(run);
  CHECK_FALSE(fs::exists(run + "/checkpoint-7.tmp"));
  CHECK(fs::exists(run + "/checkpoint-08"));  // not ours
}

TEST_CASE("half-precision inputs: checkpoints keep fp32 masters, final/ has the input's type") {
  const TemporaryDirectory directory;
  const std::string model = directory.path("model");
  checkpoint::export_directory(golden_path("tiny_bert"), {checkpoint::WeightPrecision::kFloat16, model});
  for (const auto type : {StateDictType::kFull, StateDictType::kSharded}) {
    recipe::Recipe recipe = checkpoint_recipe(directory.path("run"));
    fs::remove_all(recipe.run.output_dir);
    recipe.model.name_or_path = model;
    recipe.train.max_steps = 3;
    recipe.optim.learning_rate = 1e-6;  // lost in fp16
    save_every(recipe, 3, type);
    train_run(recipe, {2});
    const std::string path = directory.path("run/checkpoint-3");
    if (type == StateDictType::kFull) {
      const auto file = io::SafetensorsFile::open(path + "/model.safetensors");
      CHECK(file.find("embeddings.word_embeddings.weight")->dtype == io::Dtype::kF32);
      const auto config = io::read_json_file(path + "/config.json");
      CHECK(config.value("dtype", config.value("torch_dtype", "")) == "float32");
    }
    const auto file = io::SafetensorsFile::open(directory.path("run/final/model.safetensors"));
    CHECK(file.find("embeddings.word_embeddings.weight")->dtype == io::Dtype::kF16);
    checkpoint::export_directory(path, {checkpoint::WeightPrecision::kAsInput, directory.path("out")});
    CHECK(contents(directory.path("out")) == contents(directory.path("run/final")));
  }
}
