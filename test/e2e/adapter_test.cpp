// Runs with an adapter and what the commands make of it.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "e2e/checkpoint_run.h"
#include "io/file.h"
#include "io/safetensors.h"

namespace stft::test {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Contains;

const std::vector<std::string> kLora = {
    "adapter={type: lora, r: 4, lora_alpha: 8, lora_dropout: 0.1, target_modules: all-linear}",
    "train.learning_rate=1e-2"};

const std::vector<std::string> kQlora = {
    "adapter={type: qlora, r: 4, lora_alpha: 8, target_modules: all-linear}",
    "quantization={bnb_4bit_quant_type: nf4, bnb_4bit_use_double_quant: true, blocksize: 32}",
    "train.learning_rate=1e-2"};

std::vector<std::string> lora_with(const std::vector<std::string>& more) {
  std::vector<std::string> settings = kLora;
  settings.insert(settings.end(), more.begin(), more.end());
  return settings;
}

Json evaluated(const std::string& model, const std::vector<std::string>& flags = {}) {
  std::vector<std::string> arguments = {"eval", model, "--json"};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  return Json::parse(succeed(arguments)).at("metrics");
}

// The figure in what a merge prints.
double drift_of(const std::string& text) {
  const std::string before = "probe texts: ";
  return std::stod(text.substr(text.find(before) + before.size()));
}

// A copy of a model that is stored in 4 bits, with some of its weights in floating point.
void leave_whole(const std::string& from, const std::string& to, const std::vector<std::string>& keys) {
  copy_tree(from, to);
  succeed({"export", from, "--out", to + "-whole"});
  const auto whole = io::SafetensorsFile::open(to + "-whole/model.safetensors");
  const auto file = io::SafetensorsFile::open(from + "/model.safetensors");
  std::vector<io::TensorSpec> specs;
  std::map<std::string, std::vector<std::byte>> bytes;
  for (const io::TensorInfo& info : file.tensors()) {
    const auto is_of = [&](const std::string& key) { return info.name == key || info.name.starts_with(key + "."); };
    if (std::none_of(keys.begin(), keys.end(), is_of)) {
      const auto content = file.bytes(info);
      specs.push_back({info.name, info.dtype, info.shape});
      bytes[info.name].assign(content.begin(), content.end());
    }
  }
  for (const std::string& key : keys) {
    const io::TensorInfo* found = whole.find(key);
    REQUIRE(found != nullptr);
    const auto content = whole.bytes(*found);
    specs.push_back({key, found->dtype, found->shape});
    bytes[key].assign(content.begin(), content.end());
  }
  io::SafetensorsWriter writer(to + "/model.safetensors", specs, {{"format", "pt"}});
  for (const io::TensorInfo& info : io::safetensors_layout(to, specs)) {
    writer.append(bytes.at(info.name));
  }
  writer.finish();
}

// Multiplies every fp32 weight of the layers.
void scale_weights(const std::string& path, float factor) {
  std::vector<io::TensorSpec> specs;
  std::map<std::string, std::vector<std::byte>> bytes;
  {
    const auto file = io::SafetensorsFile::open(path);
    for (const io::TensorInfo& info : file.tensors()) {
      const auto content = file.bytes(info);
      std::vector<std::byte> values(content.begin(), content.end());
      if (info.dtype == io::Dtype::kF32 && info.name.find("dense.weight") != std::string::npos) {
        for (size_t i = 0; i < values.size(); i += sizeof(float)) {
          float value = 0;
          std::memcpy(&value, &values[i], sizeof value);
          value *= factor;
          std::memcpy(&values[i], &value, sizeof value);
        }
      }
      specs.push_back({info.name, info.dtype, info.shape});
      bytes[info.name] = std::move(values);
    }
  }
  io::SafetensorsWriter writer(path, specs, {{"format", "pt"}});
  for (const io::TensorInfo& info : io::safetensors_layout(path, specs)) {
    writer.append(bytes.at(info.name));
  }
  writer.finish();
}

}  // namespace

TEST_CASE("an adapter whose base is an adapter, or itself, is refused", "[e2e][adapter]") {
  const TemporaryDirectory directory;
  for (const std::string name : {"first", "second"}) {
    fs::copy(source_path("test/golden/peft/default"), directory.path(name));
    Json config = read_json(directory.path(name + "/adapter_config.json"));
    config["base_model_name_or_path"] = directory.path("second");
    std::ofstream(directory.path(name + "/adapter_config.json")) << config.dump();
  }
  const std::string texts = directory.write("texts.txt", "a text\n");
  for (const char* name : {"first", "second"}) {
    for (const char* ranks : {"1", "2"}) {
      const Outcome outcome = run_stft(
          {"encode", directory.path(name), "--input", texts, "--output", directory.path("out.npy"), "--nproc", ranks});
      CHECK(outcome.exit_code == 2);
      CHECK_THAT(outcome.err, Contains("is an adapter itself"));
    }
  }
}

TEST_CASE("LoRA from recipe to merged model: every form has the run's metrics", "[e2e][adapter]") {
  for (const char* kind : {"FULL_STATE_DICT", "SHARDED_STATE_DICT"}) {
    CAPTURE(kind);
    const TemporaryDirectory directory;
    const std::string run = directory.path("run");
    const Outcome outcome = train({run, 2, lora_with({std::string("checkpoint.state_dict_type=") + kind})});
    CHECK_THAT(outcome.err, Contains("LoRA r 4 on 12 modules") &&
                                Contains("encoder.layer.*.attention.self.query (2)") &&
                                Contains("parameters are trained"));
    const Json start = read_log(run).starts.front();
    CHECK(start.at("trainable_parameters") == 2 * (4 * 4 * 64 + 2 * 4 * 96));
    CHECK(start.at("trainable_percent").get<double>() < 20);
    int64_t optimizer_bytes = 0;
    for (const auto& of_rank : start.at("memory").at("optimizer_bytes")) {
      CHECK(of_rank.get<int64_t>() > 0);
      optimizer_bytes += of_rank.get<int64_t>();
    }
    CHECK(optimizer_bytes == 8 * start.at("trainable_parameters").get<int64_t>());
    const Json best = logged_metrics(run, 15);
    const Json before = logged_metrics(run, 0);
    CHECK(best != before);
    succeed({"verify", run + "/checkpoint-15"});
    succeed({"best", run, "--eval", "--nproc", "2", "--out", directory.path("best")});
    CHECK(tree_differences(run + "/final", directory.path("best")).empty());
    CHECK(are_close(evaluated(run + "/final", {"--nproc", "2"}), evaluated(run + "/final")));

    const std::string of_best = best_of(run);
    const Json recorded = read_json(of_best + "/stft_checkpoint.json").at("metrics");
    CHECK(are_close(evaluated(of_best), recorded));
    succeed({"export", of_best, "--out", directory.path("merged"), "--merge-lora"});
    CHECK(are_close(evaluated(directory.path("merged"), {"--recipe", "configs/tiny.yaml"}), recorded));
    succeed({"export", of_best, "--out", directory.path("adapter")});
    CHECK(tree_differences(run + "/final", directory.path("adapter")).empty());
    succeed({"export", run + "/final", "--out", directory.path("merged_of_final"), "--merge-lora", "--base-model",
             "test/golden/tiny_bert"});
    CHECK(tree_differences(directory.path("merged"), directory.path("merged_of_final")).empty());
    // The base is not touched by what is merged into it.
    CHECK(weight_difference(directory.path("merged/model.safetensors"),
                            source_path("test/golden/tiny_bert/model.safetensors")) > 1e-4);
  }
}

TEST_CASE("A34: QLoRA from recipe to merged model, with one hash of the quantized base throughout", "[e2e][adapter]") {
  const std::vector<std::string>& settings = kQlora;
  const TemporaryDirectory directory;
  const std::string run = directory.path("run");
  const Outcome outcome = train({run, 2, settings});
  CHECK_THAT(outcome.err, Contains("QLoRA r 4 on 12 modules") && Contains("quantized base: 12 weights in nf4"));
  const Json start = read_log(run).starts.front();
  const auto hash = start.at("quantized_base_hash").get<std::string>();
  CHECK(hash.size() == 16);
  CHECK(logged_metrics(run, 15) != logged_metrics(run, 0));
  // The run's recipe says how the base is quantized, so every command finds the run's metrics.
  succeed({"best", run, "--eval", "--nproc", "1"});
  const std::string of_best = best_of(run);
  const Json recorded = read_json(of_best + "/stft_checkpoint.json").at("metrics");
  CHECK(are_close(evaluated(run + "/final"), recorded));
  CHECK(are_close(evaluated(of_best, {"--nproc", "2"}), recorded));

  const std::string shorter = directory.path("shorter");
  auto stopped = settings;
  stopped.push_back("train.max_steps=5");
  train({shorter, 1, stopped});
  CHECK(read_log(shorter).starts.front().at("quantized_base_hash") == hash);
  auto resumed = settings;
  resumed.push_back("train.max_steps=10");
  train({shorter, 3, resumed, {"--resume", "auto"}});
  CHECK(read_log(shorter).starts.back().at("quantized_base_hash") == hash);

  const Outcome original =
      run_stft({"export", of_best, "--out", directory.path("original"), "--merge-lora", "--base", "original"});
  CHECK(original.exit_code == 0);
  CHECK_THAT(original.err, Contains("into the original base") && Contains("largest cosine drift"));
  const Outcome dequantized = run_stft(
      {"export", run + "/final", "--out", directory.path("dequantized"), "--merge-lora", "--base", "dequantized"});
  CHECK(dequantized.exit_code == 0);
  CHECK_THAT(dequantized.err, Contains("de-quantized base"));
  CHECK(drift_of(dequantized.err) < 1e-6);
  CHECK(drift_of(original.err) > 1e-5);
  CHECK(drift_of(original.err) < 0.2);
  CHECK(are_close(evaluated(directory.path("dequantized"), {"--recipe", "configs/tiny.yaml"}), recorded));
  // A model that was made of it is a model like any other.
  CHECK_FALSE(fs::exists(directory.path("dequantized/stft_quantization.json")));
  auto on_merged = lora_with({"train.max_steps=15"});
  on_merged.push_back("model.name_or_path=" + directory.path("dequantized"));
  train({directory.path("on_merged"), 1, on_merged});
  succeed({"best", directory.path("on_merged"), "--eval"});
  CHECK_FALSE(fs::exists(directory.path("on_merged/final/stft_quantization.json")));
  const Outcome encoded = run_stft(
      {"encode", run + "/final", "--input", "test/golden/data/sentences.txt", "--output", directory.path("a.npy")});
  CHECK_THAT(encoded.err, Contains("as it is stored, as Python does"));
}

TEST_CASE("the QLoRA recipe of the decoder, short: sharded saves of the adapter, best proved, merged",
          "[e2e][adapter]") {
  const TemporaryDirectory directory;
  const std::string run = directory.path("run");
  const Outcome outcome =
      train({run,
             2,
             {"model.name_or_path=test/golden/tiny_llama", "data.train.0.path=test/golden/data/pairs.jsonl",
              "data.train.0.limit=64", "evaluators.0.queries.path=test/golden/data/beir/queries.jsonl",
              "evaluators.0.corpus.path=test/golden/data/beir/corpus.jsonl",
              "evaluators.0.qrels.path=test/golden/data/beir/qrels/test.tsv", "train.max_steps=24",
              "train.eval_steps=8", "checkpoint.save_steps=8", "train.learning_rate=1e-2"},
             {},
             "configs/smollm2_qlora.yaml"});
  const auto log = read_log(run);
  CHECK(log.starts.front().contains("quantized_base_hash"));
  CHECK(log.steps.back().at("loss").get<double>() < log.steps.front().at("loss").get<double>());
  const std::string best = best_of(run);
  CHECK(fs::exists(best + "/pytorch_model_fsdp_0"));
  CHECK(fs::exists(best + "/adapter_config.json"));
  succeed({"verify", best});
  succeed({"best", run, "--eval", "--nproc", "2"});
  succeed({"export", best, "--merge-lora", "--out", directory.path("merged")});
  CHECK(fs::exists(directory.path("merged/model.safetensors")));
}

TEST_CASE("a model that bitsandbytes quantized evaluates, exports whole, and is trained on by QLoRA",
          "[e2e][adapter]") {
  const TemporaryDirectory directory;
  const std::string base = source_path("test/golden/qlora/base");
  const auto metrics = evaluated(base, {"--recipe", "configs/tiny.yaml"});
  succeed({"export", base, "--out", directory.path("whole")});
  CHECK_FALSE(read_json(directory.path("whole/config.json")).contains("quantization_config"));
  CHECK(are_close(evaluated(directory.path("whole"), {"--recipe", "configs/tiny.yaml"}), metrics));
  const Outcome outcome =
      train({directory.path("run"),
             2,
             {"model.name_or_path=" + base, "adapter={type: qlora, r: 4, lora_alpha: 8, target_modules: all-linear}",
              "quantization={bnb_4bit_quant_type: nf4}", "train.learning_rate=1e-2"}});
  CHECK_THAT(outcome.err, Contains("12 weights as they are stored in 4 bits"));
  CHECK(are_close(logged_metrics(directory.path("run"), 0), metrics));
  const Outcome lora =
      train({directory.path("lora"),
             1,
             {"model.name_or_path=" + base, "adapter={r: 4, target_modules: all-linear}", "train.max_steps=1"}});
  CHECK_THAT(lora.err, Contains("is stored in 4 bits and kept whole here"));
}

TEST_CASE("what a quantized model's files leave whole stays whole, in training and in a merge", "[e2e][adapter]") {
  const TemporaryDirectory directory;
  const std::string base = directory.path("base");
  leave_whole(source_path("test/golden/qlora/base"), base,
              {"encoder.layer.0.attention.self.key.weight", "encoder.layer.1.output.dense.weight"});
  const std::string run = directory.path("run");
  const Outcome outcome =
      train({run,
             2,
             {"model.name_or_path=" + base, "adapter={type: qlora, r: 4, lora_alpha: 8, target_modules: all-linear}",
              "quantization={bnb_4bit_quant_type: nf4}", "train.learning_rate=1e-2"}});
  CHECK_THAT(outcome.err, Contains("10 weights as they are stored in 4 bits"));
  const Outcome merged = run_stft({"export", run + "/final", "--out", directory.path("merged"), "--merge-lora",
                                   "--base", "dequantized", "--dtype", "fp32"});
  CHECK(merged.exit_code == 0);
  CHECK(drift_of(merged.err) < 1e-6);
}

TEST_CASE("an adapter says how its base was quantized wherever it lies", "[e2e][adapter]") {
  const TemporaryDirectory directory;
  const std::string run = directory.path("run");
  const std::string base = directory.path("base");
  copy_tree(source_path("test/golden/tiny_bert"), base);
  std::vector<std::string> settings = kQlora;
  settings.push_back("model.name_or_path=" + base);
  settings.push_back("train.max_steps=15");
  train({run, 2, settings});
  const Json recorded = read_json(best_of(run) + "/stft_checkpoint.json").at("metrics");
  const std::string moved = directory.path("moved");
  copy_tree(run + "/final", moved);
  CHECK(are_close(evaluated(moved, {"--recipe", "configs/tiny.yaml"}), recorded));
  const Outcome merged =
      run_stft({"export", moved, "--out", directory.path("merged"), "--merge-lora", "--base", "dequantized"});
  CHECK(merged.exit_code == 0);
  CHECK(drift_of(merged.err) < 1e-6);
  std::string text = io::read_text_file(moved + "/stft_quantization.json");
  text.replace(text.find("32"), 2, "48");
  std::ofstream(moved + "/stft_quantization.json") << text;
  check_refused({"export", moved, "--out", directory.path("other"), "--merge-lora"},
                {"stft_quantization.json", "blocksize", "48", "power of two"});

  // The same shapes, other values.
  scale_weights(base + "/model.safetensors", 1.5);
  settings.back() = "train.max_steps=20";
  const Outcome resumed = try_train({run, 2, settings, {"--resume", "auto"}});
  CHECK(resumed.exit_code == 2);
  CHECK_THAT(resumed.err, Contains("model.name_or_path") && Contains("trained on"));
}

TEST_CASE("adapters of a StaticEmbedding, PEFT's names in learning_rate_mapping, config_args that are null",
          "[e2e][adapter]") {
  const TemporaryDirectory directory;
  const std::string of_table = directory.path("table");
  train({of_table,
         2,
         {"model.name_or_path=test/golden/tiny_static", "adapter={r: 2, target_modules: [embedding]}",
          "train.max_steps=15"}});
  succeed({"best", of_table, "--eval"});
  succeed({"export", of_table + "/final", "--merge-lora", "--out", directory.path("merged")});

  train({directory.path("biases"),
         1,
         {"adapter={r: 2, target_modules: [query], bias: all, modules_to_save: [intermediate]}",
          "train.learning_rate_mapping={'query.base_layer.bias': 0.01, 'modules_to_save.default': 0.02}",
          "train.max_steps=2"}});

  const std::string model = directory.path("llama");
  copy_tree(source_path("test/golden/tiny_llama"), model);
  Json config = read_json(model + "/sentence_bert_config.json");
  config["config_args"] = nullptr;
  std::ofstream(model + "/sentence_bert_config.json") << config.dump();
  train({directory.path("causal"),
         1,
         {"model.name_or_path=" + model, "model.causal=false", "adapter={r: 2, target_modules: [q_proj]}",
          "train.max_steps=2"}});
}

TEST_CASE("weights that fp16 cannot hold are not written as infinity", "[e2e]") {
  const TemporaryDirectory directory;
  copy_tree(source_path("test/golden/tiny_bert"), directory.path("model"));
  scale_weights(directory.path("model/model.safetensors"), 1e8);
  check_refused({"export", directory.path("model"), "--out", directory.path("out"), "--dtype", "fp16"},
                {"fp16 cannot hold"});
  succeed({"export", directory.path("model"), "--out", directory.path("out"), "--dtype", "bf16"});
}

TEST_CASE("A10: targets that match nothing end the run before it starts; some of a list are warned of",
          "[e2e][adapter]") {
  const TemporaryDirectory directory;
  const auto with_targets = [&](const std::string& targets) {
    return try_train({directory.path("run"),
                      2,
                      {"adapter={target_modules: " + targets + "}", "train.max_steps=1",
                       "checkpoint.load_best_model_at_end=false", "checkpoint.save_strategy=no"}});
  };
  const Outcome none = with_targets("[q_proj]");
  CHECK(none.exit_code == 2);
  CHECK_THAT(none.err, Contains("adapter.target_modules: 'q_proj' matches nothing") &&
                           Contains("encoder.layer.*.attention.self.query (2)"));
  CHECK_FALSE(fs::exists(directory.path("run/log.jsonl")));
  const Outcome some = with_targets("[query, q_proj]");
  CHECK(some.exit_code == 0);
  CHECK_THAT(some.err, Contains("'q_proj' matches no module"));
  const Outcome saved =
      try_train({directory.path("other"),
                 1,
                 {"adapter={target_modules: [query], modules_to_save: [pooler]}", "train.max_steps=1"}});
  CHECK(saved.exit_code == 2);
  CHECK_THAT(saved.err, Contains("adapter.modules_to_save: 'pooler'"));
}

TEST_CASE("adapters of PEFT evaluate, encode and continue", "[e2e][adapter]") {
  const TemporaryDirectory directory;
  const std::string adapter = source_path("test/golden/peft/sentence_transformers");
  const auto metrics = evaluated(adapter, {"--recipe", "configs/tiny.yaml"});
  CHECK_FALSE(are_close(metrics, evaluated(source_path("test/golden/tiny_bert"), {"--recipe", "configs/tiny.yaml"})));
  succeed({"encode", adapter, "--input", "test/golden/data/sentences.txt", "--output", directory.path("a.npy")});
  succeed({"encode", source_path("test/golden/peft/default"), "--input", "test/golden/data/sentences.txt", "--output",
           directory.path("b.npy")});
  CHECK(read_bytes(directory.path("a.npy")) == read_bytes(directory.path("b.npy")));
  train({directory.path("run"), 2, {"adapter={path: " + adapter + "}", "train.learning_rate=0"}});
  CHECK(holds_same_tensors(directory.path("run/final/adapter_model.safetensors"),
                           adapter + "/adapter_model.safetensors"));
  check_refused({"export", source_path("test/golden/tiny_bert"), "--out", directory.path("x"), "--merge-lora"},
                {"has no adapter"});
  // An adapter whose base is not there.
  copy_tree(adapter, directory.path("moved"));
  Json config = read_json(directory.path("moved/adapter_config.json"));
  config["base_model_name_or_path"] = "/nowhere/a/model";
  std::ofstream(directory.path("moved/adapter_config.json")) << config.dump();
  check_refused({"eval", directory.path("moved"), "--recipe", "configs/tiny.yaml"},
                {"base_model_name_or_path", "/nowhere/a/model"});
}

TEST_CASE("an adapter is copied and its tokenizer used without its base; adapter_only: false keeps the base",
          "[e2e][adapter]") {
  const TemporaryDirectory directory;
  for (const bool keeps_base : {false, true}) {
    CAPTURE(keeps_base);
    const std::string base = directory.path(keeps_base ? "kept" : "lost");
    const std::string run = directory.path(keeps_base ? "run_kept" : "run_lost");
    const auto in = [&](const std::string& name) { return run + "." + name; };
    copy_tree(source_path("test/golden/tiny_bert"), base);
    train({run, 2,
           lora_with({"model.name_or_path=" + base,
                      std::string("checkpoint.adapter_only=") + (keeps_base ? "false" : "true")})});
    const std::string best = best_of(run);
    const Json recorded = read_json(best + "/stft_checkpoint.json").at("metrics");
    fs::remove_all(base);
    succeed({"export", best, "--out", in("exported")});
    CHECK(tree_differences(run + "/final", in("exported")).empty());
    CHECK_FALSE(succeed({"tokenize", run + "/final", "--text", "a text"}).empty());
    if (!keeps_base) {
      check_refused({"export", best, "--out", in("merged"), "--merge-lora"}, {"base_model_name_or_path", base});
      check_refused({"eval", best}, {"base_model_name_or_path", base});
      continue;
    }
    succeed({"verify", best});
    CHECK(are_close(evaluated(best, {"--nproc", "2"}), recorded));
    succeed({"best", run, "--eval", "--nproc", "1"});
    succeed({"export", best, "--out", in("merged"), "--merge-lora"});
    CHECK(are_close(evaluated(in("merged"), {"--recipe", "configs/tiny.yaml"}), recorded));
    succeed({"state-dict", best, "--mode", "full", "--out", in("full")});
    CHECK(are_close(evaluated(in("full"), {"--recipe", "configs/tiny.yaml"}), recorded));
    CHECK(holds_same_tensors(in("full") + "/base_model/model.safetensors",
                             source_path("test/golden/tiny_bert/model.safetensors")));
  }
  // A directory of PEFT's has its base's tokenizer.
  CHECK(succeed({"tokenize", source_path("test/golden/peft/default"), "--text", "a text"}) ==
        succeed({"tokenize", source_path("test/golden/tiny_bert"), "--text", "a text"}));
}

TEST_CASE("a resumed run keeps its adapter", "[e2e][adapter]") {
  const TemporaryDirectory directory;
  const std::string run = directory.path("run");
  train({run, 2, lora_with({"train.max_steps=15"})});
  const Outcome other =
      try_train({run, 2, {"adapter={type: lora, r: 8, target_modules: all-linear}"}, {"--resume", "auto"}});
  CHECK(other.exit_code == 2);
  CHECK_THAT(other.err, Contains("adapter.r"));
  const Outcome whole = try_train({run, 2, {"train.learning_rate=1e-2"}, {"--resume", "auto"}});
  CHECK(whole.exit_code == 2);
  CHECK_THAT(whole.err, Contains("adapter"));
  train({run, 1, lora_with({}), {"--resume", "auto"}});
  CHECK(checkpoints_of(run).back() == "checkpoint-30");
}

}  // namespace stft::test
