#include "eval/similarity_evaluator.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "io/temporary_directory.h"
#include "support/plain_model.h"
#include "support/thread_ranks.h"

using namespace stft;
using test::run_ranks;

namespace {

eval::EvaluatorConfig pairs_config(const std::string& name) {
  eval::EvaluatorConfig config;
  config.type = eval::EvaluatorType::kEmbeddingSimilarity;
  config.name = name;
  config.pairs = {test::golden_path("data/scored_pairs.jsonl"), "a", "b", "score"};
  return config;
}

std::vector<eval::EvaluationResult> evaluate(const test::PlainModel& plain, const eval::EvaluatorConfig& config,
                                             int64_t ranks) {
  std::vector<eval::EvaluationResult> results(static_cast<size_t>(ranks));
  run_ranks(ranks, [&](std::unique_ptr<dist::ProcessGroup> world) {
    const auto evaluator = eval::make_evaluator(config, {16, plain.model->spec().similarity});
    const eval::Embedder embedder(*plain.model, *plain.tokenizer, model::Layout::kPacked);
    eval::CorpusCache cache;
    eval::Interrupt interrupt;
    results[static_cast<size_t>(world->rank())] = evaluator->evaluate(embedder, *world, cache, interrupt).value();
  });
  return results;
}

void check_golden(const eval::EvaluationResult& result, const io::Json& golden, const std::string& prefix) {
  REQUIRE(result.values.size() == golden["metrics"].size());
  for (const auto& [name, value] : result.values) {
    INFO(name);
    CHECK(value == Approx(golden["metrics"].at(name.substr(prefix.size())).get<double>()).margin(1e-6));
  }
  CHECK(result.primary == prefix + golden["primary"].get<std::string>());
  std::vector<std::string> columns = {"epoch", "steps"};
  for (const auto& [column, value] : result.csv.value().cells) {
    columns.push_back(column);
  }
  CHECK(columns == golden["csv"].get<std::vector<std::string>>());
  CHECK(result.per_query.empty());
  CHECK(result.rows == 70);
}

const std::vector<model::Similarity> kAll = {model::Similarity::kCosine, model::Similarity::kDot,
                                             model::Similarity::kEuclidean, model::Similarity::kManhattan};

}  // namespace

TEST_CASE("correlations equal the peer's for every similarity, with equal bits at 1, 2 and 3 ranks") {
  const auto golden = test::golden_json("similarity_tiny.json");
  const test::PlainModel tiny(test::golden_path("tiny_bert"));
  const auto own = evaluate(tiny, pairs_config(""), 1).front();
  check_golden(own, golden["default"], "");
  CHECK(own.csv->file == "similarity_evaluation_results.csv");

  model::ModelConfig without_normalize;
  without_normalize.normalize = false;
  const test::PlainModel bare(test::golden_path("tiny_bert"), without_normalize);
  auto config = pairs_config("sts");
  config.similarity_fn_names = kAll;
  const auto one = evaluate(bare, config, 1).front();
  check_golden(one, golden["without_normalize"], "sts_");
  CHECK(one.csv->file == "similarity_evaluation_sts_results.csv");
  for (const int64_t ranks : {2, 3}) {
    for (const auto& result : evaluate(bare, config, ranks)) {
      CHECK(result.values == one.values);
    }
  }
  config.write_csv = false;
  CHECK_FALSE(evaluate(bare, config, 1).front().csv.has_value());
}

TEST_CASE("scores that are all equal have no correlation: NaN with a warning, as the peer") {
  const test::TemporaryDirectory directory;
  const test::PlainModel tiny(test::golden_path("tiny_bert"));
  auto config = pairs_config("flat");
  config.pairs = {directory.write("a.csv", "a,b,score\nred,blue,1\nbig,small,1\n"), "a", "b", "score"};
  config.similarity_fn_names = {model::Similarity::kCosine, model::Similarity::kDot};
  const auto result = evaluate(tiny, config, 1).front();
  REQUIRE(result.values.size() == 6);
  for (const auto& [name, value] : result.values) {
    CHECK(std::isnan(value));
  }
  CHECK(std::isnan(result.primary_value()));
  CHECK(result.warnings.size() == 2);
}

TEST_CASE("an evaluation that one rank gives up is given up by all, and the next one works") {
  const test::PlainModel tiny(test::golden_path("tiny_bert"));
  auto similarity = pairs_config("sts");
  similarity.batch_size = 4;
  eval::EvaluatorConfig retrieval;
  retrieval.name = "beir";
  retrieval.batch_size = 4;
  retrieval.queries.path = test::golden_path("data/beir/queries.jsonl");
  retrieval.corpus.path = test::golden_path("data/beir/corpus.jsonl");
  retrieval.qrels_path = test::golden_path("data/beir/qrels/test.tsv");
  for (const auto& config : {similarity, retrieval}) {
    for (const int blocks : {0, 2, 9}) {  // of rank 1, before it is asked to stop
      run_ranks(2, [&](std::unique_ptr<dist::ProcessGroup> world) {
        const auto evaluator = eval::make_evaluator(config, {16, model::Similarity::kCosine});
        const eval::Embedder embedder(*tiny.model, *tiny.tokenizer, model::Layout::kPacked);
        eval::CorpusCache cache;
        int asked = 0;
        eval::Interrupt interrupt([&] { return world->rank() == 1 && asked++ >= blocks; });
        const bool is_given_up = !evaluator->evaluate(embedder, *world, cache, interrupt).has_value();
        eval::Interrupt never;
        const bool works = evaluator->evaluate(embedder, *world, cache, never).has_value();
        if (!is_given_up || !works) {
          throw std::runtime_error("the ranks do not agree");
        }
      });
    }
  }
}
