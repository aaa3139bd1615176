#include <catch2/catch.hpp>

#include "base/error.h"
#include "recipe/recipe.h"

namespace stft::recipe {

TEST_CASE("the global batch gives the per-device batch", "[recipe]") {
  Recipe recipe;
  recipe.train.global_batch_size = 96;
  recipe.train.gradient_accumulation_steps = 2;
  for (const int64_t ranks : {1, 2, 3, 4, 6}) {
    CHECK(resolve(recipe, ranks).train.per_device_train_batch_size * ranks * 2 == 96);
  }
  CHECK_THROWS_WITH(resolve(recipe, 5),
                    "train.global_batch_size: 96 rows do not divide by 5 rank(s) x 2 gradient_accumulation_steps; 90 "
                    "or 100 would");
}

TEST_CASE("without a global batch the per-device batch stands", "[recipe]") {
  Recipe recipe;
  recipe.train.per_device_train_batch_size = 7;
  CHECK(resolve(recipe, 3).train.per_device_train_batch_size == 7);
  CHECK_THROWS_AS(resolve(recipe, 0), UserError);
}

TEST_CASE("hybrid groups divide the ranks, and all problems are told", "[recipe]") {
  Recipe recipe;
  recipe.sharding.strategy = shard::Strategy::kHybridShard;
  recipe.sharding.hybrid_shard_size = 2;
  CHECK_NOTHROW(resolve(recipe, 4));
  recipe.train.global_batch_size = 7;
  CHECK_THROWS_WITH(resolve(recipe, 3),
                    Catch::Contains("train.global_batch_size: 7 rows") &&
                        Catch::Contains("\nsharding.hybrid_shard_size: 3 rank(s) do not divide into groups of 2"));
}

TEST_CASE("metric names of retrieval evaluators", "[recipe]") {
  Recipe recipe;
  CHECK(metric_names(recipe, model::Similarity::kCosine).empty());
  eval::EvaluatorConfig named;
  named.name = "dev";
  eval::EvaluatorConfig unnamed;
  unnamed.similarity_fn_names = {model::Similarity::kCosine, model::Similarity::kDot};
  recipe.evaluators = {named, unnamed};
  const std::vector<std::string> names = metric_names(recipe, model::Similarity::kDot);
  CHECK(names.size() == 45);
  CHECK_THAT(names, Catch::VectorContains(std::string("dev_dot_ndcg@10")));
  CHECK_THAT(names, Catch::VectorContains(std::string("dev_dot_accuracy@1")));
  CHECK_THAT(names, Catch::VectorContains(std::string("cosine_map@100")));
  CHECK_THAT(names, Catch::VectorContains(std::string("dot_recall@5")));
  CHECK_THAT(names, !Catch::VectorContains(std::string("dev_cosine_ndcg@10")));
  recipe.model.similarity_fn_name = model::Similarity::kCosine;
  CHECK_THAT(metric_names(recipe, model::Similarity::kDot), Catch::VectorContains(std::string("dev_cosine_mrr@10")));
}

TEST_CASE("the best checkpoint's metric goes by its name in the log, the loss by default", "[recipe]") {
  Recipe recipe;
  eval::EvaluatorConfig sts;
  sts.type = eval::EvaluatorType::kEmbeddingSimilarity;
  sts.name = "sts";
  sts.similarity_fn_names = {model::Similarity::kCosine, model::Similarity::kManhattan};
  recipe.evaluators = {sts};
  const auto best = [&](std::optional<std::string> given) {
    recipe.checkpoint.metric_for_best_model = std::move(given);
    return best_metric(recipe, model::Similarity::kCosine).value_or("none");
  };
  CHECK(metric_names(recipe, model::Similarity::kCosine) ==
        std::vector<std::string>{"sts_pearson_cosine", "sts_spearman_cosine", "sts_pearson_manhattan",
                                 "sts_spearman_manhattan", "sts_pearson_max", "sts_spearman_max"});
  CHECK(best("sts_spearman_max") == "sts_spearman_max");
  CHECK(best("eval_sts_spearman_max") == "sts_spearman_max");
  CHECK(best("loss") == "none");
  CHECK(best(std::nullopt) == "none");
  data::DatasetConfig set;
  set.name = "dev";
  recipe.data.eval = {set};
  CHECK(best(std::nullopt) == "none");
  for (const char* given : {"loss", "eval_loss"}) {
    CHECK(best(given) == "eval_loss");
  }
  for (const char* given : {"dev_loss", "eval_dev_loss"}) {
    CHECK(best(given) == "eval_dev_loss");
  }
  recipe.checkpoint.load_best_model_at_end = true;
  CHECK(best(std::nullopt) == "eval_loss");
}

}  // namespace stft::recipe
