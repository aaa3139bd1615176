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

TEST_CASE("the CSV has the peer's columns and one row an evaluation") {
  const test::TemporaryDirectory directory;
  eval::EvaluationResult result;
  result.name = "dev";
  for (const auto& name : eval::ir_metric_names()) {
    result.values.emplace_back("dev_cosine_" + name, 0.25);
  }
  write_evaluation_csv(directory.path("run"), result, 0, 0);
  write_evaluation_csv(directory.path("run"), result, 0.5, 10);
  const std::string text =
      io::read_text_file(directory.path("run/eval/Information-Retrieval_evaluation_dev_results.csv"));
  CHECK(
      text.starts_with("epoch,steps,cosine-Accuracy@1,cosine-Accuracy@3,cosine-Accuracy@5,cosine-Accuracy@10,"
                       "cosine-Precision@1,cosine-Recall@1,cosine-Precision@3,cosine-Recall@3,cosine-Precision@5,"
                       "cosine-Recall@5,cosine-Precision@10,cosine-Recall@10,cosine-MRR@10,cosine-NDCG@10,"
                       "cosine-MAP@100\n0,0,0.25,"));
  CHECK(std::count(text.begin(), text.end(), '\n') == 3);
  CHECK(text.find("\n0.5,10,0.25,") != std::string::npos);
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
