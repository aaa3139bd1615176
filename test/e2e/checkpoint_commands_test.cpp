// What the commands make of a finished run's checkpoints.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "e2e/checkpoint_run.h"
#include "io/safetensors.h"

namespace stft::test {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Contains;

const std::vector<std::string> kKinds = {"FULL_STATE_DICT", "SHARDED_STATE_DICT"};

std::string of_kind(const std::string& kind) {
  return "checkpoint.state_dict_type=" + kind;
}

// The metrics that eval prints, which must be all that is on standard output.
Json evaluated(const std::string& model, const std::vector<std::string>& flags = {}) {
  std::vector<std::string> arguments = {"eval", model, "--json"};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  const std::string out = succeed(arguments);
  INFO(out);
  const Json json = Json::parse(out);  // refuses anything after the object
  REQUIRE(json.size() == 1);
  return json.at("metrics");
}

void write_best_value(const std::string& run, double value) {
  Json best = read_json(run + "/best.json");
  best["value"] = value;
  std::ofstream(run + "/best.json") << best.dump();
}

}  // namespace

TEST_CASE("final/ is what best and export write, byte for byte, of both kinds and 1, 2 and 3 ranks", "[e2e]") {
  for (const std::string& kind : kKinds) {
    for (const int ranks : {1, 2, 3}) {
      CAPTURE(kind, ranks);
      const TemporaryDirectory directory;
      const std::string run = directory.path("run");
      train({run, ranks, {of_kind(kind)}});
      REQUIRE(checkpoints_of(run) == std::vector<std::string>{"checkpoint-15", "checkpoint-30"});
      CHECK(best_of(run) == run + "/checkpoint-15");  // else final/ could be the last one by mistake
      succeed({"best", run, "--out", directory.path("best")});
      succeed({"export", run + "/checkpoint-15", "--out", directory.path("export")});
      succeed({"export", run + "/checkpoint-30", "--out", directory.path("last")});
      CHECK(tree_differences(run + "/final", directory.path("best")).empty());
      CHECK(tree_differences(run + "/final", directory.path("export")).empty());
      CHECK(tree_differences(run + "/final", directory.path("last")) == std::vector<std::string>{"model.safetensors"});
      for (const std::string& name : checkpoints_of(run)) {
        const std::string out = succeed({"verify", run + "/" + name});
        CHECK(std::count(out.begin(), out.end(), '\n') == 1);
        CHECK_THAT(out, Contains("whole") && Contains(kind) && Contains(name));
      }
    }
  }
}

TEST_CASE("eval gives the numbers of the log for every kind of directory, on 1 and 2 ranks", "[e2e]") {
  for (const std::string& kind : kKinds) {
    CAPTURE(kind);
    const TemporaryDirectory directory;
    const std::string run = directory.path("run");
    train({run, 2, {of_kind(kind)}});
    const Json best = logged_metrics(run, 15);
    for (const char* ranks : {"1", "2"}) {
      CHECK(are_close(evaluated(run + "/checkpoint-15", {"--nproc", ranks}), best));
      CHECK(are_close(evaluated(run + "/final", {"--nproc", ranks}), best));
    }
    // Of the last evaluation the log has the reloaded best; the manifest has what was measured before.
    const Json last = read_json(run + "/checkpoint-30/stft_checkpoint.json").at("metrics");
    CHECK_FALSE(are_close(last, best));
    CHECK(are_close(evaluated(run + "/checkpoint-30"), last));
    CHECK(are_close(evaluated(run + "/final", {"--recipe", "configs/tiny.yaml"}), best));
    CHECK_FALSE(are_close(evaluated(run + "/final", {"--set", "model.pooling=cls"}), best));
    CHECK_THAT(succeed({"eval", run + "/final"}), Contains("beir_cosine_ndcg@10 0.0") && !Contains("{"));

    fs::create_directory(directory.path("plain"));
    for (const char* file : {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}) {
      fs::copy_file(run + "/final/" + file, directory.path("plain/" + std::string(file)));
    }
    const std::vector<std::string> flags = {"--recipe", "configs/tiny.yaml", "--set", "model.max_seq_length=32"};
    CHECK(are_close(evaluated(directory.path("plain"), flags), best));
    check_refused({"eval", directory.path("plain")}, {directory.path("plain"), "recipe.resolved.yaml", "--recipe"});
  }
}

TEST_CASE("eval works on a run that was moved, also when its training data and model are gone", "[e2e]") {
  const TemporaryDirectory directory;
  copy_tree(source_path("test/golden/tiny_bert"), directory.path("model"));
  fs::copy_file(source_path("test/golden/data/pairs.jsonl"), directory.path("pairs.jsonl"));
  train({directory.path("run"),
         1,
         {"model.name_or_path=" + directory.path("model"),
          "data.train=[{path: " + directory.path("pairs.jsonl") +
              ", columns: {anchor: anchor, positive: positive}, limit: 72}]",
          "checkpoint.state_dict_type=SHARDED_STATE_DICT"}});
  const Json best = logged_metrics(directory.path("run"), 15);
  fs::create_directory(directory.path("elsewhere"));
  fs::rename(directory.path("run"), directory.path("elsewhere/moved"));
  fs::remove_all(directory.path("model"));
  fs::remove(directory.path("pairs.jsonl"));
  for (const char* model : {"checkpoint-15", "final", "checkpoint-15/"}) {
    CHECK(are_close(evaluated(directory.path("elsewhere/moved/") + model), best));
  }
  succeed({"best", directory.path("elsewhere/moved"), "--eval", "--nproc", "2", "--out", directory.path("best")});
  CHECK(tree_differences(directory.path("elsewhere/moved/final"), directory.path("best")).empty());
}

TEST_CASE("verify names the damaged file, whatever the damage", "[e2e]") {
  const TemporaryDirectory directory;
  for (const std::string& kind : kKinds) {
    CAPTURE(kind);
    const std::string run = directory.path(kind);
    const std::string damaged = directory.path("damaged");
    train({run,
           2,
           {of_kind(kind), "train.max_steps=3", "train.eval_strategy=no", "train.warmup_steps=0",
            "checkpoint.load_best_model_at_end=false", "evaluators=[]", "checkpoint.metric_for_best_model=null",
            "train.eval_on_start=false"}});
    const std::string whole = run + "/checkpoint-3";
    const std::string weights = kind == "FULL_STATE_DICT" ? "model.safetensors" : "pytorch_model_fsdp_0/__1_0.distcp";
    for (const std::string& file : {weights, std::string("optimizer_0/__0_0.distcp"), std::string("tokenizer.json")}) {
      copy_tree(whole, damaged);
      fs::remove(damaged + "/" + file);
      check_refused({"verify", damaged}, {damaged, file, "missing"});
      check_refused({"export", damaged, "--out", directory.path("out")}, {file, "missing"});
      check_refused({"eval", damaged, "--recipe", "configs/tiny.yaml"}, {file});
      copy_tree(whole, damaged);
      fs::resize_file(damaged + "/" + file, fs::file_size(damaged + "/" + file) - 1);
      check_refused({"verify", damaged}, {damaged, file});
      check_refused({"state-dict", damaged, "--mode", "full", "--out", directory.path("out")}, {file});
      copy_tree(whole, damaged);
      flip_byte(damaged + "/" + file);
      check_refused({"verify", damaged}, {damaged, file});
    }
    copy_tree(whole, damaged);
    fs::remove(damaged + "/stft_checkpoint.json");
    check_refused({"verify", damaged}, {damaged, "stft_checkpoint.json"});
    check_refused({"export", damaged, "--out", directory.path("out")}, {damaged, "stft_checkpoint.json", "unfinished"});
    check_refused({"state-dict", damaged, "--mode", "full", "--out", directory.path("out")}, {damaged, "unfinished"});
    check_refused({"eval", damaged, "--recipe", "configs/tiny.yaml"}, {damaged, "unfinished"});
    check_refused({"encode", damaged, "--input", "test/golden/data/sentences.txt", "--output", directory.path("e.npy")},
                  {damaged, "unfinished"});
    CHECK_FALSE(fs::exists(directory.path("out")));
    CHECK_FALSE(fs::exists(directory.path("e.npy")));
  }
}

TEST_CASE("state-dict: a converted checkpoint is whole and goes on as the original, in any number of parts", "[e2e]") {
  const TemporaryDirectory directory;
  const std::vector<std::string> settings = {"checkpoint.load_best_model_at_end=false", "train.eval_strategy=no",
                                             "train.eval_on_start=false", "checkpoint.save_steps=5",
                                             "train.max_steps=10"};
  for (const std::string& kind : kKinds) {
    std::vector<std::string> own = settings;
    own.push_back(of_kind(kind));
    train({directory.path(kind), 2, own});
  }
  const std::string full = directory.path("FULL_STATE_DICT/checkpoint-5");
  const std::string sharded = directory.path("SHARDED_STATE_DICT/checkpoint-5");
  const std::string final_model = directory.path("FULL_STATE_DICT/final/model.safetensors");
  REQUIRE(read_bytes(final_model) == read_bytes(directory.path("SHARDED_STATE_DICT/final/model.safetensors")));
  int number = 0;
  for (const std::string& from : {full, sharded}) {
    for (const std::string mode : {"full", "sharded"}) {
      for (const std::string ranks : {"1", "2", "5"}) {
        CAPTURE(from, mode, ranks);
        const std::string out = directory.path("converted" + std::to_string(++number));
        succeed({"state-dict", from, "--mode", mode, "--ranks", ranks, "--out", out});
        CHECK_THAT(succeed({"verify", out}), Contains(mode == "full" ? "FULL_STATE_DICT" : "SHARDED_STATE_DICT"));
        CHECK(fs::exists(out + "/pytorch_model_fsdp_0") == (mode == "sharded"));
        CHECK(fs::exists(out + "/optimizer_0/__" + std::to_string(std::stoi(ranks) - 1) + "_0.distcp"));
        CHECK_FALSE(fs::exists(out + "/optimizer_0/__" + ranks + "_0.distcp"));
        if (ranks == "2") {
          succeed({"state-dict", out, "--mode", from == full ? "full" : "sharded", "--out", directory.path("back"),
                   "--overwrite"});
          CHECK(tree_differences(from, directory.path("back")).empty());
        } else if (ranks == "5") {
          const TrainCall call{directory.path("resumed"), 2, settings, {"--resume", out}};
          train(call);
          CHECK(read_bytes(final_model) == read_bytes(directory.path("resumed/final/model.safetensors")));
          CHECK(read_log(call.output_dir).steps.front().at("step") == 10);
          fs::remove_all(call.output_dir);
        }
      }
    }
  }
}

TEST_CASE("best proves what was recorded, and falls back to the best of the others", "[e2e]") {
  const TemporaryDirectory directory;
  const std::string run = directory.path("run");
  train({run, 1, {"train.eval_steps=10", "checkpoint.save_steps=10", "checkpoint.save_total_limit=3"}});
  REQUIRE(checkpoints_of(run).size() == 3);
  const std::string best = best_of(run);
  const double value = read_json(run + "/best.json").at("value");
  const Json proven = Json::parse(succeed({"best", run, "--eval"}));
  CHECK(proven.at("checkpoint") == best);
  CHECK(proven.at("metric") == "beir_cosine_ndcg@10");
  CHECK(proven.at("evaluated").get<double>() == Approx(value).margin(1e-6));

  write_best_value(run, value + 0.01);
  Outcome outcome = run_stft({"best", run, "--eval", "--nproc", "2", "--out", directory.path("out")});
  CHECK(outcome.exit_code == 1);
  CHECK(outcome.out.empty());
  CHECK_THAT(outcome.err, Contains("is not what was measured") && Contains(best));
  CHECK_FALSE(fs::exists(directory.path("out")));

  fs::remove(run + "/best.json");
  outcome = run_stft({"best", run, "--eval"});
  INFO(outcome.err);
  CHECK(outcome.exit_code == 0);
  CHECK(Json::parse(outcome.out).at("checkpoint") == best);
  CHECK_THAT(outcome.err, Contains("best.json is missing"));

  std::ofstream(run + "/best.json") << Json{
      {"checkpoint", fs::path(best).filename()}, {"metric", "beir_cosine_ndcg@10"}, {"value", value}};
  fs::rename(best, directory.path("away"));
  outcome = run_stft({"best", run, "--out", directory.path("second")});
  CHECK(outcome.exit_code == 0);
  const std::string second = Json::parse(outcome.out).at("checkpoint");
  CHECK(second != best);
  for (const std::string& name : checkpoints_of(run)) {
    const auto score = [](const std::string& path) {
      return read_json(path + "/stft_checkpoint.json").at("score").at("value").get<double>();
    };
    CHECK(score(second) >= score(run + "/" + name));
  }
  CHECK_THAT(outcome.err, Contains(fs::path(best).filename().string()) && Contains(second));

  for (const std::string& name : checkpoints_of(run)) {
    fs::remove(run + "/" + name + "/stft_checkpoint.json");
  }
  check_refused({"best", run}, {run, "no complete checkpoint", "stft_checkpoint.json"});
  std::ofstream(run + "/best.json") << R"({"checkpoint": "../elsewhere", "metric": "m", "value": 1})";
  check_refused({"best", run}, {run + "/best.json", "../elsewhere"});
}

TEST_CASE("A32: export has the type that was asked for, in every tensor and in config.json", "[e2e][field]") {
  const TemporaryDirectory directory;
  const std::string run = directory.path("run");
  train({run, 2, {"checkpoint.state_dict_type=SHARDED_STATE_DICT"}});
  struct Type {
    const char* flag;
    io::Dtype dtype;
    const char* config;
  };
  for (const Type& type : {Type{"fp32", io::Dtype::kF32, "float32"}, Type{"bf16", io::Dtype::kBF16, "bfloat16"},
                           Type{"fp16", io::Dtype::kF16, "float16"}}) {
    CAPTURE(type.flag);
    const std::string out = directory.path(type.flag);
    succeed({"export", run + "/checkpoint-30", "--out", out, "--dtype", type.flag});
    const auto file = io::SafetensorsFile::open(out + "/model.safetensors");
    for (const auto& tensor : file.tensors()) {
      CHECK(tensor.dtype == (tensor.name == "embeddings.position_ids" ? io::Dtype::kI64 : type.dtype));
    }
    CHECK(read_json(out + "/config.json").at("dtype") == type.config);
    succeed({"export", directory.path("fp32"), "--out", directory.path("again"), "--dtype", type.flag, "--overwrite"});
    CHECK(tree_differences(out, directory.path("again")).empty());
    CHECK(evaluated(out, {"--recipe", "configs/tiny.yaml"}).size() == 15);
  }
  CHECK(fs::file_size(directory.path("bf16/model.safetensors")) <
        0.6 * static_cast<double>(fs::file_size(directory.path("fp32/model.safetensors"))));
  // The checkpoint keeps fp32 whatever is exported.
  CHECK(holds_same_tensors(directory.path("fp32/model.safetensors"), [&] {
    succeed({"state-dict", run + "/checkpoint-30", "--mode", "full", "--out", directory.path("full")});
    return directory.path("full/model.safetensors");
  }()));
}

TEST_CASE("the commands refuse what they cannot do, and say what is allowed", "[e2e]") {
  const TemporaryDirectory directory;
  const std::string run = directory.path("run");
  train({run, 1, {"checkpoint.save_strategy=no", "checkpoint.load_best_model_at_end=false", "train.max_steps=4"}});
  check_refused({"best", run}, {run, "no complete checkpoint"});
  train({run, 1, {"train.eval_steps=2", "checkpoint.save_steps=2", "train.max_steps=4"}, {"--overwrite"}});
  const std::string checkpoint = run + "/checkpoint-4";
  const std::string out = directory.path("out");
  const std::string missing = directory.path("missing");
  directory.write("file", "text");
  fs::create_directory(directory.path("full"));
  directory.write("full/notes.txt", "text");
  fs::create_symlink(checkpoint, directory.path("link"));

  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"export", checkpoint}, {"state-dict", checkpoint, "--mode", "full"}, {"best", run}}) {
    const auto refused = [&](const std::string& target, const std::vector<std::string>& expected) {
      std::vector<std::string> arguments = command;
      arguments.insert(arguments.end(), {"--out", target});
      check_refused(arguments, expected);
    };
    refused(directory.path("full"), {"--out", directory.path("full"), "not empty", "--overwrite"});
    refused(directory.path("file"), {"--out", directory.path("file"), "not a directory"});
    const std::string read = best_of(run);
    refused(command.front() == "best" ? read : checkpoint, {"--out", "would replace"});
    refused(run, {"--out", run, "would replace"});
    refused(directory.path(""), {"--out", "would replace"});
    refused((command.front() == "best" ? read : checkpoint) + "/sub", {"--out", "/sub", "is read"});
  }
  check_refused({"export", checkpoint, "--out", directory.path("link"), "--overwrite"}, {"--out", "would replace"});
  CHECK(read_bytes(directory.path("full/notes.txt")) == "text");
  succeed({"verify", checkpoint});

  check_refused({"export", missing, "--out", out}, {missing, "not a directory"});
  check_refused({"export", directory.path("full"), "--out", out}, {directory.path("full"), "config.json"});
  check_refused({"export", run, "--out", out}, {run, "one of its checkpoints"});
  check_refused({"export", checkpoint, "--out", out, "--merge-lora"}, {"--merge-lora", checkpoint, "no adapter"});
  check_refused({"export", checkpoint, "--out", out, "--dtype", "fp8"}, {"--dtype", "fp8", "bf16", "fp16", "fp32"});
  check_refused({"export", checkpoint, "--out", out, "--base", "original"}, {"--base", "is for --merge-lora"});
  check_refused({"export", checkpoint}, {"--out", "required"});
  check_refused({"state-dict", run + "/final", "--mode", "full", "--out", out}, {run + "/final", "not a checkpoint"});
  check_refused({"state-dict", checkpoint, "--mode", "half", "--out", out}, {"--mode", "half", "full", "sharded"});
  check_refused({"state-dict", checkpoint, "--out", out}, {"--mode", "required"});
  check_refused({"state-dict", checkpoint, "--mode", "full", "--ranks", "0", "--out", out}, {"--ranks", "0", "1 to"});
  check_refused({"verify", missing}, {missing});
  check_refused({"verify", run + "/final"}, {run + "/final", "stft_checkpoint.json"});
  check_refused({"verify"}, {"checkpoint", "required"});
  check_refused({"best", missing}, {missing, "not a directory"});
  check_refused({"best", run, "--nproc", "0", "--eval"}, {"--nproc", "0", "1 to"});
  check_refused({"eval", missing}, {missing});
  check_refused({"eval", directory.path("full"), "--recipe", "configs/tiny.yaml"},
                {directory.path("full"), "neither config.json nor modules.json"});
  check_refused({"eval", checkpoint, "--set", "evaluators=[]"}, {"evaluators", "nothing to evaluate"});
  check_refused({"eval", checkpoint, "--set", "train.nonsense=1"}, {"train.nonsense"});
  check_refused({"eval", checkpoint, "--recipe", missing}, {missing});
  for (const char* command : {"eval", "best", "verify"}) {
    check_refused({command, checkpoint, "--nonsense"}, {"--nonsense"});
  }
  check_refused({"export", checkpoint, "--out", out, "--nonsense"}, {"--nonsense"});
  check_refused({"state-dict", checkpoint, "--mode", "full", "--out", out, "--nonsense"}, {"--nonsense"});
  CHECK_FALSE(fs::exists(out));
}

}  // namespace stft::test
