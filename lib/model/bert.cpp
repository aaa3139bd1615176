// BERT (Devlin et al., 2018), with learned absolute positions.
#include "model/families.h"
#include "model/post_norm_encoder.h"

namespace stft::model {

std::unique_ptr<Encoder> build_bert(const EncoderInput& input) {
  const FamilyConfig config(input.config, input.origin);
  PostNormConfig result = read_post_norm_config(config, input);
  result.names.prefix = "bert.";
  result.type_vocab_size = config.positive("type_vocab_size");
  return build_post_norm_encoder(std::move(result), input.parts);
}

}  // namespace stft::model
