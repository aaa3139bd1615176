#include "eval/retrieval_evaluator.h"

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
    const eval::RetrievalEvaluator evaluator(config, 16, plain.model->spec().similarity);
    const auto found =
        evaluator.evaluate(eval::Embedder(*plain.model, *plain.tokenizer, model::Layout::kPacked), *world);
    if (world->rank() == ranks - 1) {  // any rank: all have the same
      result = found;
    }
  });
  return result;
}

void check_golden(const eval::EvaluationResult& result, const io::Json& golden, const std::string& prefix,
                  const std::string& similarity) {
  CHECK(result.queries == golden["queries"].get<int64_t>());
  CHECK(result.documents == golden["documents"].get<int64_t>());
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
  for (const int64_t ranks : {2, 3}) {
    const auto many = evaluate(tiny, beir_config(""), ranks);
    CHECK(many.values == one.values);
    CHECK(many.per_query == one.per_query);
  }
}

TEST_CASE("dot product scores the vectors as they are") {
  model::ModelConfig without_normalize;
  without_normalize.normalize = false;
  const test::PlainModel tiny(test::golden_path("tiny_bert"), without_normalize);
  auto config = beir_config("raw");
  config.similarity_fn_names = {model::Similarity::kCosine, model::Similarity::kDot};
  const auto golden = test::golden_json("ir_tiny.json")["without_normalize"];
  const auto result = evaluate(tiny, config, 2);
  CHECK(result.values.size() == 30);
  check_golden(result, golden, "raw_", "cosine");
  check_golden(result, golden, "raw_", "dot");
}
