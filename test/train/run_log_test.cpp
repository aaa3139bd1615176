#include "train/run_log.h"

#include <catch2/catch.hpp>
#include <limits>

#include "io/file.h"
#include "io/temporary_directory.h"
#include "train/console.h"

using namespace stft;
using namespace stft::train;

TEST_CASE("a log line is one JSON object with nine significant digits") {
  CHECK(to_json_line({{"event", "step"},
                      {"step", int64_t{7}},
                      {"loss", 1.0 / 3},
                      {"bad", std::numeric_limits<double>::infinity()},
                      {"text", "a \"quote\"\n"},
                      {"metrics", Metrics{{"x_ndcg@10", 0.5}}}}) ==
        "{\"event\": \"step\", \"step\": 7, \"loss\": 0.333333333, \"bad\": null, \"text\": \"a \\\"quote\\\"\\n\", "
        "\"metrics\": {\"x_ndcg@10\": 0.5}}\n");
}

TEST_CASE("an evaluation appends one row to its CSV, the first one a header too") {
  const test::TemporaryDirectory directory;
  eval::CsvRow row{"a_results.csv", {{"cosine-NDCG@10", 0.25}, {"x", 1.0 / 3}}};
  write_evaluation_csv(directory.path("run"), row, 0, 0);
  write_evaluation_csv(directory.path("run"), row, 0.5, 10);
  CHECK(io::read_text_file(directory.path("run/eval/a_results.csv")) ==
        "epoch,steps,cosine-NDCG@10,x\n0,0,0.25,0.333333333\n0.5,10,0.25,0.333333333\n");
}

TEST_CASE("the table of evaluations has a header for each kind of evaluator") {
  eval::EvaluationResult retrieval;
  retrieval.name = "dev";
  retrieval.shown = {{"ndcg@10", 0.5}};
  retrieval.rows = 1200;
  eval::EvaluationResult similarity;
  similarity.shown = {{"spearman", 0.25}};
  similarity.rows = 7;
  CHECK(evaluation_table({retrieval, retrieval, similarity}) ==
        "  evaluator  ndcg@10   rows\n"
        "  dev         0.5000  1,200\n"
        "  dev         0.5000  1,200\n"
        "  evaluator  spearman  rows\n"
        "  -            0.2500     7");
  const std::string table =
      comparison_table({{"a", 0.25, 0.5, eval::Interval{0.25, 0.125, 0.375}}, {"b", 0.5, 0.25, std::nullopt}});
  CHECK(table.find("[+0.1250, +0.3750]\n") != std::string::npos);
  CHECK(table.find("-0.2500") != std::string::npos);
  CHECK(table.ends_with(" -"));
}

TEST_CASE("numbers for people") {
  CHECK(format_count(0) == "0");
  CHECK(format_count(999) == "999");
  CHECK(format_count(1000) == "1,000");
  CHECK(format_count(12345678) == "12,345,678");
  CHECK(format_duration(0.4) == "0:00");
  CHECK(format_duration(125) == "2:05");
  CHECK(format_duration(3723) == "1:02:03");
}
