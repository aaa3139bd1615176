// The losses of a micro-batch, from embeddings alone.
#include "train/batch_loss.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <catch2/catch.hpp>
#include <mutex>
#include <numeric>

#include "loss/cosent.h"
#include "loss/similarity.h"
#include "support/golden.h"
#include "support/thread_ranks.h"

using namespace stft;

namespace {

constexpr int64_t kWidth = 6;

const tokenizer::Tokenizer& tiny_tokenizer() {
  static const auto loaded = tokenizer::Tokenizer::load(test::golden_path("tiny_bert"));
  return loaded;
}

data::Dataset scored_rows() {
  data::DatasetConfig config;
  config.paths = {test::golden_path("data/scored.csv")};
  config.columns.text_1 = "definition";
  config.columns.text_2 = "lemmas";
  config.columns.score = "score";
  return data::Dataset::load(config);
}

data::Dataset triplets() {
  data::DatasetConfig config;
  config.paths = {test::golden_path("data/triplets.jsonl")};
  config.columns.anchor = "anchor";
  config.columns.positive = "positive";
  config.columns.numbered_negatives = {"negative_1"};
  return data::Dataset::load(config);
}

data::LocalMicroBatch batch_of(const data::Dataset& dataset, int64_t rows, int64_t rank, int64_t ranks) {
  std::vector<int64_t> numbers(static_cast<size_t>(rows));
  std::iota(numbers.begin(), numbers.end(), int64_t{0});
  data::BatchOptions options;
  options.max_length = 16;
  options.rank = rank;
  options.ranks = ranks;
  return data::BatchMaker(dataset, tiny_tokenizer(), options).make(numbers);
}

// A vector that is a function of the text's row and column only. The text of a rank without rows has one, too.
at::Tensor vectors_of(const data::LocalMicroBatch& batch) {
  std::vector<at::Tensor> rows;
  for (int64_t i = 0; i < batch.texts.size(); ++i) {
    const double start = 7.0 * batch.texts.rows[static_cast<size_t>(i)] + batch.texts.columns[static_cast<size_t>(i)];
    rows.push_back((at::arange(kWidth) * 1.3 + start).sin());
  }
  return at::stack(rows).set_requires_grad(true);
}

struct Result {
  double loss = 0;
  at::Tensor gradient = at::zeros({64, 4, kWidth});  // by row and column; row 63 gathers what a rank without rows gets
};

void add(Result& result, const at::Tensor& loss, const data::LocalMicroBatch& batch, const at::Tensor& vectors) {
  result.loss += loss.item<double>();
  for (int64_t i = 0; i < batch.texts.size(); ++i) {
    const int64_t row = batch.local.count > 0 ? batch.texts.rows[static_cast<size_t>(i)] : 63;
    result.gradient[row][batch.texts.columns[static_cast<size_t>(i)]] += vectors.grad()[i];
  }
}

Result local_result(const loss::LossConfig& config, const data::LocalMicroBatch& batch) {
  const auto vectors = vectors_of(batch);
  const auto loss = train::local_loss(config, batch, vectors);
  torch::autograd::backward({loss}, {});
  Result result;
  add(result, loss, batch, vectors);
  return result;
}

Result result_on(int64_t ranks, const loss::LossConfig& config, const data::Dataset& dataset, int64_t rows) {
  Result result;
  std::mutex mutex;
  test::run_ranks(ranks, [&](std::unique_ptr<dist::ProcessGroup> world) {
    const auto batch = batch_of(dataset, rows, world->rank(), ranks);
    const auto vectors = vectors_of(batch);
    const auto loss = train::batch_loss(config, batch, vectors, *world);
    torch::autograd::backward({loss}, {});
    const std::scoped_lock lock(mutex);
    add(result, loss, batch, vectors);
  });
  return result;
}

}  // namespace

TEST_CASE("the parts of all ranks sum to the loss of the whole batch, in value and gradient") {
  for (const auto type : {loss::LossType::kCoSent, loss::LossType::kMultipleNegativesRanking}) {
    loss::LossConfig config;
    config.type = type;
    config.scale = 5;
    const data::Dataset dataset = type == loss::LossType::kCoSent ? scored_rows() : triplets();
    for (const int64_t rows : {1, 2, 4, 11}) {
      const Result whole = local_result(config, batch_of(dataset, rows, 0, 1));
      if (rows > 1) {
        CHECK(whole.loss > 0.1);
        CHECK(whole.gradient.abs().max().item<double>() > 1e-2);
      } else if (type == loss::LossType::kCoSent) {
        CHECK(whole.loss == 0);
        CHECK(whole.gradient.abs().max().item<double>() == 0);
      }
      for (const int64_t ranks : {1, 2, 3}) {
        INFO("loss " << static_cast<int>(type) << ", rows " << rows << ", ranks " << ranks);
        const Result parts = result_on(ranks, config, dataset, rows);
        CHECK(parts.loss == Approx(whole.loss).epsilon(1e-6).margin(1e-7));
        CHECK(test::max_difference(parts.gradient, whole.gradient) < 1e-6);
      }
    }
  }
}

TEST_CASE("CoSENTLoss orders the cosines of the pairs by their scores") {
  const auto batch = batch_of(scored_rows(), 9, 0, 1);
  const auto vectors = vectors_of(batch);
  loss::LossConfig config;
  config.scale = 12;
  const auto scores = loss::pairwise_cos_sim(vectors.narrow(0, 0, 9), vectors.narrow(0, 9, 9));
  const auto labels = at::tensor(batch.scores);
  CHECK(train::local_loss(config, batch, vectors).item<double>() ==
        Approx(loss::cosent(scores, labels, 12).item<double>()).epsilon(1e-6));
  CHECK(scores[4].item<double>() == Approx(at::cosine_similarity(vectors[4], vectors[13], 0).item<double>()));
}
