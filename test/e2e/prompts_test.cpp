// Prompts and decoders as a user meets them.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "e2e/process.h"
#include "e2e/run_files.h"

namespace stft::test {
namespace {

using Catch::Matchers::Contains;

std::string read_golden(const std::string& name) {
  return read_bytes(source_path("test/golden/" + name));
}

// The rows with `prompt` before the string under `key`; none of the strings is escaped.
std::string with_prompt(const std::string& lines, const std::string& key, const std::string& prompt) {
  std::string result;
  std::istringstream stream(lines);
  for (std::string line; std::getline(stream, line);) {
    Json row = Json::parse(line);
    row[key] = prompt + row.at(key).get<std::string>();
    result += row.dump() + "\n";
  }
  return result;
}

RunLog train(const TemporaryDirectory& directory, const Json& recipe, int ranks) {
  const Outcome outcome =
      run_stft({"train", write_recipe(directory, recipe), "--nproc", std::to_string(ranks), "--overwrite"});
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  return read_log(directory.path("run"));
}

std::vector<std::vector<double>> encoded(const TemporaryDirectory& directory, const std::vector<std::string>& texts,
                                         const std::vector<std::string>& flags, const std::string& model) {
  std::string lines;
  for (const std::string& text : texts) {
    lines += Json({{"text", text}}).dump() + "\n";
  }
  std::vector<std::string> arguments = {"encode",     model,  "--input",  directory.write("texts.jsonl", lines),
                                        "--column",   "text", "--output", directory.path("vectors.jsonl"),
                                        "--overwrite"};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  const Outcome outcome = run_stft(arguments);
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  std::vector<std::vector<double>> vectors;
  std::istringstream stream(read_bytes(directory.path("vectors.jsonl")));
  for (std::string line; std::getline(stream, line);) {
    vectors.push_back(Json::parse(line).at("embedding").get<std::vector<double>>());
  }
  return vectors;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(a[i] - b[i]));
  }
  return largest;
}

}  // namespace

TEST_CASE("A08: a prompt of the recipe is the same text put before the data", "[e2e][field]") {
  const std::string query = "the meaning of ";
  const std::string document = "words for it: ";
  for (const char* model : {"tiny_bert", "tiny_llama"}) {
    INFO(model);
    const TemporaryDirectory directory;
    Json recipe = small_recipe(directory);
    recipe["model"]["name_or_path"] = source_path(std::string("test/golden/") + model);
    recipe["train"]["eval_strategy"] = "steps";
    recipe["train"]["eval_on_start"] = true;
    recipe["evaluators"] = Json::array({beir_evaluator()});
    recipe["data"]["eval"] = recipe["data"]["train"];
    recipe["data"]["eval"][0]["name"] = "rows";

    Json by_hand = recipe;
    const std::string rows =
        with_prompt(with_prompt(read_golden("data/pairs.jsonl"), "anchor", query), "positive", document);
    by_hand["data"]["train"][0]["path"] = by_hand["data"]["eval"][0]["path"] = directory.write("prompted.jsonl", rows);
    by_hand["evaluators"][0]["queries"]["path"] =
        directory.write("queries.jsonl", with_prompt(read_golden("data/beir/queries.jsonl"), "text", query));
    std::string corpus;  // the prompt comes before the title
    std::istringstream stream(read_golden("data/beir/corpus.jsonl"));
    for (std::string line; std::getline(stream, line);) {
      Json row = Json::parse(line);
      const std::string title = row.value("title", "");
      row["text"] = document + (title.empty() ? "" : title + " ") + row.at("text").get<std::string>();
      row["title"] = "";
      corpus += row.dump() + "\n";
    }
    by_hand["evaluators"][0]["corpus"]["path"] = directory.write("corpus.jsonl", corpus);
    const RunLog expected = train(directory, by_hand, 2);

    recipe["model"]["prompts"] = {{"query", query}, {"document", document}};
    for (const char* set : {"train", "eval"}) {
      recipe["data"][set][0]["prompts"] = {{"anchor", "query"}, {"positive", document}};
    }
    const RunLog found = train(directory, recipe, 2);
    CHECK(numbers(found.steps, "loss") == numbers(expected.steps, "loss"));
    CHECK(numbers(found.steps, "grad_norm") == numbers(expected.steps, "grad_norm"));
    REQUIRE(found.evals.size() == expected.evals.size());
    CHECK(found.evals.size() >= 2);
    for (size_t i = 0; i < found.evals.size(); ++i) {
      CHECK(found.evals[i].at("metrics") == expected.evals[i].at("metrics"));
    }
  }
}

TEST_CASE("the recipe of the decoder embedder trains and exports a small model", "[e2e]") {
  const TemporaryDirectory directory;
  const std::string output = directory.path("run");
  const Outcome outcome = run_stft({"train", "configs/smollm2.yaml",
                                    "--set", "run.output_dir=" + output,
                                    "--set", "model.name_or_path=test/golden/tiny_llama",
                                    "--set", "data.train.0.path=test/golden/data/pairs.jsonl",
                                    "--set", "data.train.0.limit=64",
                                    "--set", "evaluators.0.queries.path=test/golden/data/beir/queries.jsonl",
                                    "--set", "evaluators.0.corpus.path=test/golden/data/beir/corpus.jsonl",
                                    "--set", "evaluators.0.qrels.path=test/golden/data/beir/qrels/test.tsv",
                                    "--set", "train.max_steps=24",
                                    "--set", "train.learning_rate=3e-3",
                                    "--set", "launch.threads_per_rank=1"});
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  CHECK_THAT(outcome.err, Contains("prompts of training data 'wordnet': anchor \"Instruct: ") &&
                              Contains("prompts of evaluator 'wordnet-dev': queries \"Instruct: "));
  const RunLog log = read_log(output);
  CHECK(log.starts.at(0).at("world_size") == 2);
  const std::vector<double> losses = numbers(log.steps, "loss");
  REQUIRE(losses.size() == 6);
  CHECK(losses.back() < 0.7 * losses.front());
  CHECK(log.evals.size() >= 2);

  const Json stored = read_json(output + "/final/config_sentence_transformers.json");
  CHECK(stored.at("prompts").at("query").get<std::string>().ends_with("\nQuery: "));
  CHECK(stored.at("prompts").at("document") == "");
  CHECK(stored.at("default_prompt_name").is_null());
  CHECK(read_json(output + "/final/1_Pooling/config.json").dump().find("lasttoken") != std::string::npos);

  // A07: a text's vector depends neither on the others nor on how long they are.
  const std::vector<std::string> texts = {"ice", "a large body of salt water that is between two continents"};
  const auto together = encoded(directory, texts, {"--prompt-name", "query"}, output + "/final");
  REQUIRE(together.size() == 2);
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto alone = encoded(directory, {texts[i]}, {"--prompt-name", "query"}, output + "/final");
    CHECK(largest_difference(alone.at(0), together[i]) < 1e-5);
  }
  // The stored prompt is the text itself.
  const std::string prompt = stored.at("prompts").at("query");
  CHECK(largest_difference(encoded(directory, {prompt + texts[0]}, {}, output + "/final").at(0), together[0]) < 1e-6);
}

TEST_CASE("include_prompt: false is trained with, exported, and used again", "[e2e]") {
  const TemporaryDirectory directory;
  Json recipe = small_recipe(directory);
  recipe["model"]["prompts"] = {{"query", "the meaning of "}};
  recipe["data"]["train"][0]["prompts"] = {{"anchor", "query"}};
  const std::vector<double> with = numbers(train(directory, recipe, 1).steps, "loss");
  recipe["model"]["include_prompt"] = false;
  const std::vector<double> without = numbers(train(directory, recipe, 1).steps, "loss");
  CHECK(relative_difference(with, without) > 1e-4);
  CHECK(relative_difference(numbers(train(directory, recipe, 2).steps, "loss"), without) < 1e-5);
  CHECK(read_json(directory.path("run/final/1_Pooling/config.json")).at("include_prompt") == false);

  // The exported model goes on leaving its prompt out, without a word of the recipe.
  const std::string final_model = directory.path("run/final");
  const std::vector<std::string> texts = {"ice", "a large body of salt water"};
  const auto prompted = encoded(directory, texts, {"--prompt-name", "query"}, final_model);
  const auto as_text = encoded(directory, {"the meaning of ice"}, {}, final_model);
  CHECK(largest_difference(prompted.at(0), as_text.at(0)) > 1e-3);
}

}  // namespace stft::test
