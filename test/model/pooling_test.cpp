#include "model/pooling.h"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>

#include "model/model_spec.h"
#include "support/family_cases.h"

using namespace stft;
using model::Layout;
using model::PoolingMode;

namespace {

// The texts' token vectors in a batch's layout; padding holds what must not count.
at::Tensor laid_out(const std::vector<at::Tensor>& texts, const model::TokenBatch& batch) {
  std::vector<at::Tensor> in_memory(texts.size());
  const int64_t longest = batch.buckets.back().length;
  for (size_t i = 0; i < texts.size(); ++i) {
    auto text = texts[i];
    if (batch.layout == Layout::kPadded && text.size(0) < longest) {
      text = at::cat({text, at::full({longest - text.size(0), text.size(1)}, 1e3)});
    }
    in_memory[static_cast<size_t>(batch.memory_to_caller_N[static_cast<int64_t>(i)].item<int64_t>())] = text;
  }
  return at::cat(in_memory);
}

}  // namespace

TEST_CASE("every pooling mode equals sentence-transformers', packed and padded") {
  const std::string golden = test::golden_path("poolings.safetensors");
  std::vector<at::Tensor> texts;
  std::vector<std::vector<int32_t>> ids;
  for (int i = 0; i < 3; ++i) {
    texts.push_back(test::read_tensor(golden, "text_" + std::to_string(i)));
    ids.emplace_back(static_cast<size_t>(texts.back().size(0)), 7);
  }
  for (const Layout layout : {Layout::kPacked, Layout::kPadded}) {
    INFO("padded " << (layout == Layout::kPadded));
    const auto batch = test::batch_of(ids, layout);
    const auto hidden = laid_out(texts, batch);
    for (const PoolingMode mode :
         {PoolingMode::kCls, PoolingMode::kMean, PoolingMode::kMax, PoolingMode::kMeanSqrtLenTokens,
          PoolingMode::kWeightedMean, PoolingMode::kLastToken}) {
      const std::string name = model::pooling_mode_name(mode);
      INFO(name);
      CHECK(test::max_difference(model::pool(hidden, batch, {mode}), test::read_tensor(golden, name)) < 1e-5);
    }
    const auto several = model::pool(hidden, batch, {PoolingMode::kLastToken, PoolingMode::kWeightedMean});
    CHECK(test::max_difference(several, test::read_tensor(golden, "several")) < 1e-5);
  }
}

TEST_CASE("a text without tokens stands as one token, packed and padded") {
  for (const Layout layout : {Layout::kPacked, Layout::kPadded}) {
    const auto batch = test::batch_of({{5, 6}, {}, {7}}, layout);
    CHECK(batch.real_tokens() == 4);
    const auto hidden = batch.token_ids_T.to(at::kFloat).unsqueeze(1) + 1;
    const auto pooled = model::pool(hidden, batch, {PoolingMode::kLastToken});
    CHECK(at::equal(pooled.view({-1}), at::tensor({7.0F, 1.0F, 8.0F})));
  }
}
