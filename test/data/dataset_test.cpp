#include "data/dataset.h"

#include <catch2/catch.hpp>

#include "base/error.h"
#include "io/temporary_directory.h"

namespace stft::data {
namespace {

using Catch::Matchers::Contains;
using test::message_of;

using Rows = std::vector<std::vector<std::string>>;

// Every row as anchor, positive, negatives.
Rows rows_of(const Dataset& dataset) {
  Rows rows;
  for (std::int64_t row = 0; row < dataset.size(); ++row) {
    std::vector<std::string> texts{std::string(dataset.text(row, 0)), std::string(dataset.text(row, 1))};
    for (std::int64_t i = 0; i < dataset.negatives(row); ++i) texts.emplace_back(dataset.text(row, 2 + i));
    rows.push_back(std::move(texts));
  }
  return rows;
}

struct Fixture {
  test::TemporaryDirectory directory;
  DatasetConfig config;

  Fixture() {
    config.name = "pairs";
    config.columns.anchor = "q";
    config.columns.positive = "p";
    config.source = "r.yaml:7";
  }

  Dataset load(const std::string& name, std::string_view content) {
    config.paths = {directory.write(name, content)};
    return Dataset::load(config);
  }

  // The message of loading `content` as t.jsonl, without the directory.
  std::string refusal(std::string_view content) {
    const std::string path = directory.path("t.jsonl");
    std::string message = message_of<UserError>([&] { load("t.jsonl", content); });
    const std::size_t at = message.find(path);
    return at == std::string::npos ? message : message.replace(at, path.size(), "t.jsonl");
  }
};

TEST_CASE_METHOD(Fixture, "columns are bound by name, whatever their order") {
  const Rows expected{{"q1", "p1"}, {"", "  "}};
  const Dataset one =
      load("t.jsonl", "{\"q\":\"q1\",\"p\":\"p1\",\"row_id\":\"r\"}\n{\"q\":\"\",\"p\":\"  \",\"a\":1}\n");
  CHECK(rows_of(one) == expected);
  CHECK(one.ignored_columns() == std::vector<std::string>{"a", "row_id"});
  CHECK(one.max_negatives() == 0);
  CHECK(one.name() == "pairs");
  const Dataset other = load("t.jsonl", "{\"p\":\"p1\",\"q\":\"q1\"}\n{\"p\":\"  \",\"q\":\"\"}\n");
  CHECK(rows_of(other) == expected);
  CHECK(other.ignored_columns().empty());
  CHECK(rows_of(load("t.csv", "p,q\np1,q1\n\"  \",\n")) == expected);
  CHECK(rows_of(load("t.tsv", "p\tq\np1\tq1\n  \t\n")) == expected);
}

TEST_CASE_METHOD(Fixture, "a negative column of strings or ragged lists") {
  config.columns.negative = "n";
  const Dataset dataset =
      load("t.jsonl",
           "{\"q\":\"1\",\"p\":\"a\",\"n\":[]}\n{\"q\":\"2\",\"p\":\"b\",\"n\":[\"x\",\"\",\"z\"]}\n"
           "{\"q\":\"3\",\"p\":\"c\",\"n\":\"y\"}\n");
  CHECK(rows_of(dataset) == Rows{{"1", "a"}, {"2", "b", "x", "", "z"}, {"3", "c", "y"}});
  CHECK(dataset.max_negatives() == 3);
  CHECK(refusal("{\"q\":\"1\",\"p\":\"a\",\"n\":null}") == "t.jsonl:1: column 'n' is null");
  CHECK(refusal("{\"q\":\"1\",\"p\":\"a\",\"n\":[\"x\",null]}") ==
        "t.jsonl:1: column 'n' element 1 is null, it must be a string");
  CHECK(refusal("{\"q\":\"1\",\"p\":\"a\",\"n\":{}}") ==
        "t.jsonl:1: column 'n' is an object, it must be a string or a list of strings");
  CHECK_THAT(refusal("{\"q\":\"1\",\"p\":\"a\"}"), Contains("t.jsonl:1: column 'n' is missing"));
}

TEST_CASE_METHOD(Fixture, "numbered negatives: an explicit null is none, a missing key an error") {
  config.columns.numbered_negatives = {"n1", "n2"};
  const Dataset dataset = load("t.jsonl",
                               "{\"q\":\"1\",\"p\":\"a\",\"n1\":\"x\",\"n2\":\"y\"}\n"
                               "{\"q\":\"2\",\"p\":\"b\",\"n1\":null,\"n2\":\"z\"}\n"
                               "{\"q\":\"3\",\"p\":\"c\",\"n1\":null,\"n2\":null}\n");
  CHECK(rows_of(dataset) == Rows{{"1", "a", "x", "y"}, {"2", "b", "z"}, {"3", "c"}});
  CHECK(dataset.max_negatives() == 2);
  CHECK_THAT(refusal("{\"q\":\"1\",\"p\":\"a\",\"n1\":\"x\"}"), Contains("t.jsonl:1: column 'n2' is missing"));
  CHECK(refusal("{\"q\":\"1\",\"p\":\"a\",\"n1\":\"x\",\"n2\":2}") ==
        "t.jsonl:1: column 'n2' is an integer, it must be a string");
}

TEST_CASE_METHOD(Fixture, "bad rows are named") {
  const std::string good = "{\"q\":\"1\",\"p\":\"a\"}\n";
  CHECK(refusal(good + "{\"q\":\"1\",\"p\":null}") == "t.jsonl:2: column 'p' is null");
  CHECK(refusal(good + "{\"q\":\"1\"}") == "t.jsonl:2: column 'p' is missing; the columns are: q");
  CHECK(refusal(good + "{\"q\":[\"1\"],\"p\":\"a\"}") == "t.jsonl:2: column 'q' is a list, it must be a string");
  CHECK_THAT(refusal(good + good + "{"), Contains("t.jsonl:3: not a JSON object"));
}

TEST_CASE_METHOD(Fixture, "limit and several files") {
  directory.write("a.jsonl", "{\"q\":\"1\",\"p\":\"a\"}\n{\"q\":\"2\",\"p\":\"b\"}\n");
  directory.write("b.jsonl", "{\"q\":\"3\",\"p\":\"c\"}\nnot read with a limit\n");
  config.paths = {directory.path("*.jsonl")};
  config.name.clear();
  CHECK_THROWS_AS(Dataset::load(config), UserError);
  config.limit = 3;
  const Dataset dataset = Dataset::load(config);
  CHECK(rows_of(dataset) == Rows{{"1", "a"}, {"2", "b"}, {"3", "c"}});
  CHECK(dataset.name() == "a");
  CHECK_THROWS_AS(dataset.text(3, 0), InternalError);
  CHECK_THROWS_AS(dataset.text(-1, 0), InternalError);
  CHECK_THROWS_AS(dataset.text(0, 2), InternalError);
}

TEST_CASE_METHOD(Fixture, "nothing to read") {
  CHECK_THAT(refusal("\n"), Contains("r.yaml:7: data set 'pairs': no rows in"));
  config.paths = {directory.path("*.csv")};
  CHECK_THAT(message_of<UserError>([&] { Dataset::load(config); }), Contains("no file matches"));
  config.columns.anchor.clear();
  CHECK(message_of<UserError>([&] { Dataset::load(config); }) ==
        "r.yaml:7: data set 'pairs': columns maps no 'anchor'");
}

struct ScoredFixture : Fixture {
  ScoredFixture() {
    config.columns = {};
    config.columns.text_1 = "a";
    config.columns.text_2 = "b";
    config.columns.score = "s";
  }
};

std::vector<float> scores_of(const Dataset& dataset) {
  std::vector<float> scores;
  for (std::int64_t row = 0; row < dataset.size(); ++row) scores.push_back(dataset.score(row));
  return scores;
}

TEST_CASE_METHOD(ScoredFixture, "two texts and a score: a number, or a string that is one") {
  const Rows rows{{"1", "x"}, {"2, and", "y"}, {"3", ""}, {"4", "z"}};
  const std::vector<float> scores{1.0F, 0.25F, -3.0F, 2e-3F};
  const Dataset json = load("t.jsonl",
                            "{\"b\":\"x\",\"s\":1,\"a\":\"1\"}\n{\"a\":\"2, and\",\"b\":\"y\",\"s\":0.25,\"c\":0}\n"
                            "{\"a\":\"3\",\"b\":\"\",\"s\":\"-3\"}\n{\"a\":\"4\",\"b\":\"z\",\"s\":\"2e-3\"}\n");
  CHECK(rows_of(json) == rows);
  CHECK(scores_of(json) == scores);
  CHECK(json.has_scores());
  CHECK(json.max_negatives() == 0);
  CHECK(json.ignored_columns() == std::vector<std::string>{"c"});
  const Dataset csv = load("t.csv", "s,a,b\n\"1.0\",1,x\n 0.25 ,\"2, and\",y\n\"-3\",3,\n\"+2e-3\",4,z\n");
  CHECK(rows_of(csv) == rows);
  CHECK(scores_of(csv) == scores);
  CHECK(scores_of(load("t.tsv", "a\tb\ts\n1\tx\t1\n")) == std::vector<float>{1.0F});
}

TEST_CASE_METHOD(ScoredFixture, "a score that is no finite number is named") {
  const std::string good = "{\"a\":\"1\",\"b\":\"x\",\"s\":0.5}\n";
  const auto with = [&](const std::string& score) {
    return refusal(good + "{\"a\":\"2\",\"b\":\"y\",\"s\":" + score + "}\n");
  };
  CHECK(refusal(good + "{\"a\":\"2\",\"b\":\"y\"}\n") == "t.jsonl:2: column 's' is missing; the columns are: a, b");
  CHECK(with("null") == "t.jsonl:2: column 's' is null, it must be a number");
  CHECK(with("true") == "t.jsonl:2: column 's' is true or false, it must be a number");
  CHECK(with("[1]") == "t.jsonl:2: column 's' is a list, it must be a number");
  for (const std::string text :
       {"\"\"", "\"  \"", "\"high\"", "\"0.5 of 1\"", "\"0,5\"", "\"+\"", "\"+-1\"", "\"0x1\""}) {
    CHECK(with(text) == "t.jsonl:2: column 's' holds " + text + ", it must be a number");
  }
  for (const std::string text : {"\"nan\"", "\"-inf\"", "\"1e999\"", "1e39", "\"-1e39\""}) {
    CHECK_THAT(with(text), Contains("t.jsonl:2: column 's' holds ") && Contains("must be a finite number"));
  }
  CHECK(with("NaN").rfind("t.jsonl:2: ", 0) == 0);
  CHECK(with("\"" + std::string(500, 'x') + "\"").size() < 200);
  std::string csv = "a,b,s\n1,x,0.5\n2,y,\n";
  CHECK_THAT(message_of<UserError>([&] { load("t.csv", csv); }), Contains("t.csv:3: column 's' holds \"\""));
}

TEST_CASE_METHOD(ScoredFixture, "the roles of a pair belong together") {
  const auto message = [&] { return message_of<UserError>([&] { Dataset::load(config); }); };
  config.columns.text_2.clear();
  CHECK(message() == "r.yaml:7: data set 'pairs': columns maps no 'text_2'");
  config.columns.text_2 = "b";
  config.columns.anchor = "q";
  CHECK_THAT(message(), Contains("columns maps both text_1, text_2 and anchor"));
  CHECK(text_roles(config.columns) == std::array<std::string, 2>{"text_1", "text_2"});
}

TEST_CASE_METHOD(Fixture, "anchor and positive may have a score, too") {
  CHECK_FALSE(load("t.jsonl", "{\"q\":\"1\",\"p\":\"a\",\"s\":0.5}\n").has_scores());
  config.columns.score = "s";
  const Dataset dataset = load("t.jsonl", "{\"q\":\"1\",\"p\":\"a\",\"s\":0.5}\n");
  CHECK(rows_of(dataset) == Rows{{"1", "a"}});
  CHECK(scores_of(dataset) == std::vector<float>{0.5F});
}

TEST_CASE("a numbered negative keeps its number when an earlier one is null") {
  const test::TemporaryDirectory directory;
  DatasetConfig config;
  config.paths = {directory.write("gaps.jsonl",
                                  "{\"a\": \"1\", \"p\": \"2\", \"n\": null, \"m\": \"second\"}\n"
                                  "{\"a\": \"3\", \"p\": \"4\", \"n\": \"first\", \"m\": null}\n"
                                  "{\"a\": \"5\", \"p\": \"6\", \"n\": \"both\", \"m\": \"of them\"}\n")};
  config.columns.anchor = "a";
  config.columns.positive = "p";
  config.columns.numbered_negatives = {"n", "m"};
  const Dataset dataset = Dataset::load(config);
  REQUIRE(dataset.negatives(0) == 1);
  CHECK(dataset.negative_column(0, 0) == 1);
  CHECK(dataset.negative_column(1, 0) == 0);
  CHECK(dataset.negative_column(2, 0) == 0);
  CHECK(dataset.negative_column(2, 1) == 1);
}

}  // namespace
}  // namespace stft::data
