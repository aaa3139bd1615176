#include "eval/retrieval_evaluator.h"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <mutex>

#include "support/plain_model.h"
#include "support/thread_ranks.h"

using namespace stft;
using test::run_ranks;

namespace {

eval::EvaluatorConfig beir_config(const std::string& name) {
  eval::EvaluatorConfig config;
  config.name = name;
  config.queries.path = test::golden_path("data/beir/queries.jsonl");
  config.corpus.path = test::golden_path("data/beir/corpus.jsonl");
  config.qrels_path = test::golden_path("data/beir/qrels/test.tsv");
  return config;
}

eval::EvaluationResult evaluate(const test::PlainModel& plain, const eval::EvaluatorConfig& config, int64_t ranks) {
  eval::EvaluationResult result;
  run_ranks(ranks, [&](std::unique_ptr<dist::ProcessGroup> world) {
    const eval::RetrievalEvaluator evaluator(config, {16, plain.model->spec().similarity});
    eval::Interrupt interrupt;
    eval::CorpusCache cache;
    const eval::Embedder embedder(*plain.model, *plain.tokenizer, model::Layout::kPacked);
    const auto found = evaluator.evaluate(embedder, *world, cache, interrupt).value();
    if (world->rank() == ranks - 1) {  // any rank: all have the same
      result = found;
    }
  });
  return result;
}

void check_golden(const eval::EvaluationResult& result, const io::Json& golden, const std::string& prefix,
                  const std::string& similarity) {
  CHECK(result.rows == golden["queries"].get<int64_t>());
  int64_t compared = 0;
  for (const auto& [name, value] : result.values) {
    const std::string peer_name = name.substr(prefix.size());
    if (peer_name.starts_with(similarity)) {
      INFO(name);
      CHECK(value == Approx(golden["metrics"].at(peer_name).get<double>()).margin(1e-6));
      compared += 1;
    }
  }
  CHECK(compared == 15);
}

}  // namespace

TEST_CASE("every metric equals the peer's, exactly the same at 1, 2 and 3 ranks") {  // A23
  const test::PlainModel minilm(test::minilm_path());
  const test::PlainModel tiny(test::golden_path("tiny_bert"));
  const auto minilm_golden = test::golden_json("ir_minilm.json")["default"];
  const auto tiny_golden = test::golden_json("ir_tiny.json")["default"];
  check_golden(evaluate(minilm, beir_config("x"), 1), minilm_golden, "x_", "cosine");
  const auto one = evaluate(tiny, beir_config(""), 1);
  check_golden(one, tiny_golden, "", "cosine");
  CHECK(one.primary == "cosine_ndcg@10");
  REQUIRE(one.csv.has_value());
  CHECK(one.csv->file == "Information-Retrieval_evaluation_results.csv");
  std::string columns;
  for (const auto& [column, value] : one.csv->cells) {
    columns += column + ",";
  }
  CHECK(columns ==
        "cosine-Accuracy@1,cosine-Accuracy@3,cosine-Accuracy@5,cosine-Accuracy@10,cosine-Precision@1,cosine-Recall@1,"
        "cosine-Precision@3,cosine-Recall@3,cosine-Precision@5,cosine-Recall@5,cosine-Precision@10,cosine-Recall@10,"
        "cosine-MRR@10,cosine-NDCG@10,cosine-MAP@100,");
  CHECK(one.csv->cells[13].second == one.primary_value());
  for (const int64_t ranks : {2, 3}) {
    const auto many = evaluate(tiny, beir_config(""), ranks);
    CHECK(many.values == one.values);
    CHECK(many.per_query == one.per_query);
  }
}

TEST_CASE("dot products and distances score the vectors as they are") {
  model::ModelConfig without_normalize;
  without_normalize.normalize = false;
  const test::PlainModel tiny(test::golden_path("tiny_bert"), without_normalize);
  auto config = beir_config("raw");
  config.similarity_fn_names = {model::Similarity::kCosine, model::Similarity::kDot, model::Similarity::kEuclidean,
                                model::Similarity::kManhattan};
  const auto golden = test::golden_json("ir_tiny.json")["without_normalize"];
  const auto result = evaluate(tiny, config, 2);
  CHECK(result.values.size() == 60);
  for (const char* similarity : {"cosine", "dot", "euclidean", "manhattan"}) {
    check_golden(result, golden, "raw_", similarity);
  }
}

TEST_CASE("evaluators of one corpus embed it once and find what they find alone") {
  const test::PlainModel tiny(test::golden_path("tiny_bert"));
  const auto alone = evaluate(tiny, beir_config("a"), 1);
  const auto world = dist::ProcessGroup::single();
  const eval::Embedder embedder(*tiny.model, *tiny.tokenizer, model::Layout::kPacked);
  const eval::RetrievalEvaluator first(beir_config("a"), {16, model::Similarity::kCosine});
  const eval::RetrievalEvaluator second(beir_config("b"), {16, model::Similarity::kCosine});
  REQUIRE(first.corpus_key() == second.corpus_key());
  CHECK(first.corpus_key() != eval::RetrievalEvaluator(beir_config("c"), {8, model::Similarity::kCosine}).corpus_key());
  eval::CorpusCache cache;
  first.announce(cache);
  second.announce(cache);
  eval::Interrupt interrupt;
  CHECK(first.evaluate(embedder, *world, cache, interrupt)->values == alone.values);
  CHECK(second.evaluate(embedder, *world, cache, interrupt)->per_query == alone.per_query);
  int64_t computed = 0;
  const auto count = [&] {
    computed += 1;
    return at::zeros({1});
  };
  cache.block(first.corpus_key(), 0, count);
  CHECK(computed == 0);
  cache.block("used by one", 0, count);
  cache.block("used by one", 0, count);
  CHECK(computed == 2);
}
