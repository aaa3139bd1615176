// ELECTRA (Clark et al., 2020): BERT with embeddings of a width of their own.
#include "model/families.h"
#include "model/post_norm_encoder.h"

namespace stft::model {

std::unique_ptr<Encoder> build_electra(const EncoderInput& input) {
  const FamilyConfig config(input.config, input.origin);
  PostNormConfig result = read_post_norm_config(config, input);
  result.names.prefix = "electra.";
  result.type_vocab_size = config.positive("type_vocab_size", 2);
  result.embedding_size = config.positive("embedding_size", 128);
  if (result.embedding_size != result.hidden_size) {
    result.names.embedding_projection = "embeddings_project";
  }
  return build_post_norm_encoder(std::move(result), input.parts);
}

}  // namespace stft::model
