// What a run of configs/tiny.yaml prints and leaves behind.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "e2e/process.h"
#include "e2e/run_files.h"

namespace stft::test {
namespace {

using Catch::Matchers::Contains;

const std::vector<std::string> kStepKeys = {"step",          "epoch",         "loss",        "grad_norm",
                                            "learning_rate", "samples_per_s", "tokens_per_s"};

// One thread a rank, so that a busy machine does not slow two threads that wait for each other.
std::vector<std::string> tiny(const std::string& output_dir, int ranks) {
  return {"train", "configs/tiny.yaml",         "--set",   "run.output_dir=" + output_dir,
          "--set", "launch.threads_per_rank=1", "--nproc", std::to_string(ranks)};
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

std::set<std::string> files_under(const std::string& directory) {
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file()) {
      files.insert(std::filesystem::relative(entry.path(), directory).string());
    }
  }
  return files;
}

void check_log(const RunLog& log, int ranks) {
  REQUIRE(log.starts.size() == 1);
  const Json& start = log.starts[0];
  CHECK(start.at("world_size") == ranks);
  CHECK(start.at("trainable_parameters") == 35264);
  CHECK(start.at("candidates_per_anchor") == 24);
  CHECK(start.at("parameters_checksum").get<std::string>().size() >= 8);

  REQUIRE(log.steps.size() == 6);
  for (size_t i = 0; i < log.steps.size(); ++i) {
    const Json& step = log.steps[i];
    INFO(step.dump());
    for (const std::string& key : kStepKeys) {
      CHECK(step.at(key).is_number());
    }
    CHECK(step.at("step") == 5 * (i + 1));
    CHECK(step.at("epoch").get<double>() == Approx(5.0 / 3 * static_cast<double>(i + 1)).epsilon(1e-8));
    CHECK(step.at("samples_per_s").get<double>() > 0);
    CHECK(step.at("tokens_per_s").get<double>() > step.at("samples_per_s").get<double>());
  }
  CHECK(log.steps.back().at("loss").get<double>() < 0.5 * log.steps.front().at("loss").get<double>());

  REQUIRE(log.evals.size() == 4);
  CHECK(numbers(log.evals, "step") == std::vector<double>{0, 15, 30, 30});
  CHECK(log.evals.back().at("reloaded") == "checkpoint-15");
  CHECK(log.evals.back().at("metrics") == log.evals[1].at("metrics"));
  for (const Json& event : log.evals) {
    CHECK(event.at("metrics").size() == 15);
    CHECK(event.at("metrics").at("beir_cosine_ndcg@10").is_number());
  }
  REQUIRE(log.ends.size() == 1);
  CHECK(log.ends[0].at("step") == 30);
}

// The CSV has the peer's columns and one row an evaluation.
void check_csv(const std::string& run_directory, const RunLog& log) {
  const std::vector<std::string> rows =
      lines_of(read_bytes(run_directory + "/eval/Information-Retrieval_evaluation_beir_results.csv"));
  REQUIRE(rows.size() == 4);
  CHECK_THAT(rows[0], Catch::Matchers::StartsWith("epoch,steps,cosine-Accuracy@1,"));
  CHECK_THAT(rows[0], Contains("cosine-NDCG@10"));
  const auto columns = std::count(rows[0].begin(), rows[0].end(), ',');
  for (size_t i = 1; i < rows.size(); ++i) {
    CHECK(std::count(rows[i].begin(), rows[i].end(), ',') == columns);
    const double accuracy = std::stod(rows[i].substr(rows[i].find(',', rows[i].find(',') + 1) + 1));
    CHECK(accuracy == log.evals[i - 1].at("metrics").at("beir_cosine_accuracy@1").get<double>());
  }
}

void check_final(const std::string& run_directory) {
  const std::string input = source_path("test/golden/tiny_bert");
  const std::string output = run_directory + "/final";
  std::set<std::string> expected = files_under(input);
  const std::set<std::string> found = files_under(output);
  for (const std::string& file : expected) {
    INFO(file);
    REQUIRE(found.count(file) == 1);
  }
  for (const char* file : {"tokenizer.json", "tokenizer_config.json", "vocab.txt"}) {
    CHECK((read_bytes(input + "/" + file) == read_bytes(output + "/" + file)));
  }
  CHECK(read_json(output + "/config.json").at("hidden_size") == 32);
  CHECK(read_json(output + "/modules.json").size() == 3);
  const double difference = weight_difference(input + "/model.safetensors", output + "/model.safetensors");
  CHECK(difference > 1e-3);
  CHECK(difference < 1);
}

void check_plain_text(const std::string& text) {
  CHECK(text.find('\033') == std::string::npos);
  CHECK(text.find('\r') == std::string::npos);
}

}  // namespace

TEST_CASE("a run leaves the recipe, the log, the evaluations and the model", "[e2e][run]") {
  const int ranks = GENERATE(1, 2);
  const TemporaryDirectory directory;
  const std::string output = directory.path("run");
  const Outcome outcome = run_stft(tiny(output, ranks));
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  CHECK(outcome.out.empty());
  const RunLog log = read_log(output);
  check_log(log, ranks);
  check_csv(output, log);
  check_final(output);
  CHECK(directory.file_count() == 1);
  for (const std::string& file : files_under(output)) {
    CHECK(file.find(".tmp") == std::string::npos);
  }

  const std::string resolved = output + "/recipe.resolved.yaml";
  const Outcome check = run_stft({"check", resolved, "--world-size", std::to_string(ranks)});
  INFO(check.err);
  CHECK(check.exit_code == 0);
  CHECK_THAT(check.err, !Contains("error"));
  CHECK(check.out == read_bytes(resolved));  // resolving what is resolved changes nothing
}

TEST_CASE("the memory in use is in every step of the log", "[e2e][run]") {
  const TemporaryDirectory directory;
  const Outcome outcome = run_stft({"train", write_recipe(directory, small_recipe(directory))});
  REQUIRE(outcome.exit_code == 0);
  for (const Json& step : read_log(directory.path("run")).steps) {
    CHECK(step.contains("memory"));
  }
}

TEST_CASE("a person sees plain lines with the rank in front when there is no terminal", "[e2e][run]") {
  const TemporaryDirectory directory;
  const Outcome two = run_stft(tiny(directory.path("two"), 2));
  REQUIRE(two.exit_code == 0);
  check_plain_text(two.err);
  for (const std::string& line : lines_of(two.err)) {
    INFO(line);
    CHECK((line.starts_with("[0] ") || line.starts_with("[1] ")));
  }
  CHECK_THAT(two.err, Contains("[0] step 30/30"));
  CHECK_THAT(two.err, Contains("before and after"));

  const Outcome one = run_stft(tiny(directory.path("one"), 1));
  REQUIRE(one.exit_code == 0);
  check_plain_text(one.err);
  const std::vector<std::string> lines = lines_of(one.err);
  CHECK(std::count_if(lines.begin(), lines.end(), [](const std::string& line) { return line.find("step ") == 0; }) ==
        6);
}

TEST_CASE("a terminal shows one live line, also when ranks write to it", "[e2e][run]") {
  const int ranks = GENERATE(1, 2);
  const TemporaryDirectory directory;
  Command command{tiny(directory.path("run"), ranks), {}, true};
  const Outcome outcome = run_stft(command);
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  CHECK_THAT(outcome.err, Contains("\r\033[K"));
  CHECK_THAT(outcome.err, Contains("step 30/30"));
}

TEST_CASE("a directory that holds a run is kept unless --overwrite says otherwise", "[e2e][run]") {
  const int ranks = GENERATE(1, 2);
  const TemporaryDirectory directory;
  Json recipe = small_recipe(directory);
  const std::string path = write_recipe(directory, recipe);
  std::vector<std::string> arguments = {"train", path, "--nproc", std::to_string(ranks)};
  REQUIRE(run_stft(arguments).exit_code == 0);
  const std::string log = read_bytes(directory.path("run") + "/log.jsonl");

  const Outcome refused = run_stft(arguments);
  INFO(refused.err);
  CHECK(refused.exit_code == 2);
  CHECK(refused.seconds < 5);
  CHECK_THAT(refused.err, Contains("run.output_dir"));
  CHECK_THAT(refused.err, Contains("--overwrite"));
  CHECK((read_bytes(directory.path("run") + "/log.jsonl") == log));

  arguments.insert(arguments.end(), {"--overwrite", "--set", "train.max_steps=2"});
  const Outcome overwritten = run_stft(arguments);
  INFO(overwritten.err);
  CHECK(overwritten.exit_code == 0);
  const RunLog fresh = read_log(directory.path("run"));
  CHECK(fresh.starts.size() == 1);
  CHECK(fresh.steps.size() == 2);
}

TEST_CASE("--overwrite with a mistake elsewhere destroys nothing", "[e2e][run]") {
  const TemporaryDirectory directory;
  const Json recipe = small_recipe(directory);
  REQUIRE(run_stft({"train", write_recipe(directory, recipe)}).exit_code == 0);
  const Outcome refused =
      run_stft({"train", write_recipe(directory, with_rows(recipe, directory, "not JSON\n")), "--overwrite"});
  INFO(refused.err);
  CHECK(refused.exit_code == 2);
  CHECK(std::filesystem::exists(directory.path("run") + "/final/model.safetensors"));
  CHECK(std::filesystem::exists(directory.path("run") + "/log.jsonl"));
}

}  // namespace stft::test
