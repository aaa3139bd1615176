// Rows that cannot be trained on: exit 2 within seconds, with the file and the line.
#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "e2e/process.h"
#include "e2e/run_files.h"

namespace stft::test {
namespace {

using Catch::Matchers::Contains;

const std::string kGood = "{\"anchor\": \"frozen water\", \"positive\": \"ice\"}\n";

struct BadRow {
  const char* what;
  std::string lines;
  std::vector<std::string> expected;  // besides the file's name
};

const std::vector<BadRow> kBadRows = {
    {"not JSON", kGood + "{\"anchor\": \"a\", \"positive\": }\n", {"rows.jsonl:2"}},
    {"cut off", kGood + kGood + "{\"anchor\": \"a\", \"posi", {"rows.jsonl:3"}},
    {"text", "anchor,positive\n", {"rows.jsonl:1"}},
    {"a list", kGood + "[\"a\", \"b\"]\n", {"rows.jsonl:2", "object"}},
    {"two values on a line", kGood + "{\"anchor\": \"a\", \"positive\": \"b\"} {}\n", {"rows.jsonl:2"}},
    {"a key twice",
     kGood + "{\"anchor\": \"a\", \"anchor\": \"b\", \"positive\": \"c\"}\n",
     {"rows.jsonl:2", "anchor"}},
    {"missing column", kGood + "{\"anchor\": \"a\"}\n", {"rows.jsonl:2", "positive"}},
    {"null column", kGood + kGood + "{\"anchor\": null, \"positive\": \"b\"}\n", {"rows.jsonl:3", "anchor", "null"}},
    {"a number", kGood + "{\"anchor\": \"a\", \"positive\": 7}\n", {"rows.jsonl:2", "positive"}},
    {"a list of texts", "{\"anchor\": [\"a\"], \"positive\": \"b\"}\n", {"rows.jsonl:1", "anchor"}},
    {"not UTF-8", kGood + "{\"anchor\": \"\xff\xfe\", \"positive\": \"b\"}\n", {"rows.jsonl:2"}},
    {"a lone surrogate", kGood + "{\"anchor\": \"\\ud800\", \"positive\": \"b\"}\n", {"rows.jsonl:2"}},
    {"deep nesting", kGood + "{\"x\": " + std::string(100000, '[') + "\n", {"rows.jsonl:2"}},
    {"no rows", "", {"rows.jsonl"}},
};

void check_refused(const TemporaryDirectory& directory, const Json& recipe, int ranks,
                   const std::vector<std::string>& expected) {
  const Outcome outcome = run_stft({"train", write_recipe(directory, recipe), "--nproc", std::to_string(ranks)});
  INFO(outcome.err.substr(0, 2000));
  CHECK(outcome.exit_code == 2);
  CHECK(outcome.seconds < 5);
  CHECK(outcome.out.empty());
  CHECK(outcome.err.size() < 4000);
  CHECK_THAT(outcome.err, !Contains("internal error"));
  for (const std::string& text : expected) {
    CHECK_THAT(outcome.err, Contains(text));
  }
  CHECK_FALSE(std::filesystem::exists(directory.path("run") + "/final"));
}

}  // namespace

TEST_CASE("a row that cannot be read is named by file and line", "[e2e][bad]") {
  for (const BadRow& bad : kBadRows) {
    INFO(bad.what);
    const TemporaryDirectory directory;
    check_refused(directory, with_rows(small_recipe(directory), directory, bad.lines), 1, bad.expected);
  }
}

TEST_CASE("two ranks refuse a row as one does, and the message comes last", "[e2e][bad]") {
  const TemporaryDirectory directory;
  const Json recipe = with_rows(small_recipe(directory), directory, kGood + "{\"anchor\": \"a\"}\n");
  check_refused(directory, recipe, 2, {"rows.jsonl:2", "positive"});
  const Outcome outcome = run_stft({"train", write_recipe(directory, recipe), "--nproc", "2"});
  const size_t launcher = outcome.err.rfind("error: rank ");
  REQUIRE(launcher != std::string::npos);
  CHECK_THAT(outcome.err.substr(launcher), Contains("rows.jsonl:2") && Contains("positive"));
}

TEST_CASE("a mapped column that no row has is named with the columns there are", "[e2e][bad]") {
  const TemporaryDirectory directory;
  Json recipe = with_rows(small_recipe(directory), directory, kGood);
  recipe["data"]["train"][0]["columns"]["anchor"] = "question";
  check_refused(directory, recipe, 1, {"rows.jsonl:1", "question"});
}

TEST_CASE("evaluation data that cannot be read is refused before the first step", "[e2e][bad]") {
  struct BadFile {
    const char* key;
    std::string content;
    std::vector<std::string> expected;
  };
  const std::vector<BadFile> files = {
      {"queries", "{\"_id\": \"q1\", \"text\": \"a\"}\n{\"_id\": \"q2\"}\n", {"bad.jsonl:2", "text"}},
      {"queries", "{\"_id\": \"q1\", \"text\": null}\n", {"bad.jsonl:1", "null"}},
      {"corpus", "{\"text\": \"a\"}\n", {"bad.jsonl:1", "_id"}},
      {"corpus", "{\"_id\": \"d1\", \"text\": \"a\"}\nnonsense\n", {"bad.jsonl:2"}},
      {"corpus", "{\"_id\": \"d1\", \"text\": \"a\"}\n{\"_id\": \"d1\", \"text\": \"b\"}\n", {"bad.jsonl:2", "d1"}},
      {"qrels", "query-id\tcorpus-id\tscore\nq1\td1\tmany\n", {"bad.jsonl:2", "many"}},
      {"qrels", "query-id\tcorpus-id\tscore\nq1\n", {"bad.jsonl:2"}},
  };
  for (const BadFile& file : files) {
    INFO(file.key << ": " << file.content);
    const TemporaryDirectory directory;
    Json recipe = small_recipe(directory);
    recipe["train"]["eval_strategy"] = "steps";
    recipe["evaluators"] = Json::array({beir_evaluator()});
    recipe["evaluators"][0][file.key]["path"] = directory.write("bad.jsonl", file.content);
    check_refused(directory, recipe, 1, file.expected);
  }
}

TEST_CASE("an output directory that cannot be made is named before any rank starts", "[e2e][bad]") {
  const TemporaryDirectory directory;
  Json recipe = small_recipe(directory);
  const std::string too_long(300, 'x');
  recipe["run"]["output_dir"] = directory.path(too_long);
  const Outcome outcome = run_stft({"train", write_recipe(directory, recipe), "--nproc", "3"});
  INFO(outcome.err);
  CHECK(outcome.exit_code == 1);
  CHECK(outcome.seconds < 10);
  CHECK_THAT(outcome.err, Contains(too_long));
  CHECK_THAT(outcome.err, Contains("File name too long"));
  CHECK_THAT(outcome.err, !Contains("rank"));
}

}  // namespace stft::test
