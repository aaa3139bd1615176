// sentence-transformers' StaticEmbedding (an EmbeddingBag in mean mode) as an encoder whose token vectors are the rows
// of its table; Minish Lab's model2vec models have the same form.
#include <ATen/ATen.h>

#include <limits>

#include "model/families.h"
#include "model/layers.h"
#include "model/run_block.h"

namespace stft::model {
namespace {

class StaticEmbedding final : public Encoder {
 public:
  StaticEmbedding(const StaticEmbeddingSpec& spec, EncoderParts parts) : spec_(spec) {
    BlockBuilder builder(parts);
    builder.begin_block("embedding", false);
    table_ = builder.embedding("embedding", spec.rows, spec.width, std::nullopt);
  }

  at::Tensor forward(const TokenBatch& batch, const ForwardContext& context) const override {
    return run_block(context, {0}, {}, [&](const at::Tensor&) {
      auto vectors_TD = table_(batch.token_ids_T);
      if (!batch.empty_T.empty()) {
        auto is_token_T1 = at::ones({vectors_TD.size(0), 1}, vectors_TD.options().requires_grad(false));
        is_token_T1.index_fill_(0, at::tensor(batch.empty_T, at::kLong), 0);
        vectors_TD = vectors_TD * is_token_T1;
      }
      return vectors_TD;
    });
  }

  int64_t hidden_size() const override { return spec_.width; }
  int64_t max_positions() const override { return std::numeric_limits<int32_t>::max(); }
  int64_t vocab_size() const override { return spec_.rows; }
  std::string weight_prefix() const override { return {}; }
  std::vector<PublishedName> published_names() const override { return {{"embeddings", {"embedding.weight"}}}; }

 private:
  StaticEmbeddingSpec spec_;
  Embedding table_;
};

}  // namespace

std::unique_ptr<Encoder> build_static_embedding(const StaticEmbeddingSpec& spec, EncoderParts parts) {
  return std::make_unique<StaticEmbedding>(spec, parts);
}

}  // namespace stft::model
