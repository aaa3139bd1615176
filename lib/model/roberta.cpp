// RoBERTa (Liu et al., 2019) and, in the same form, XLM-RoBERTa and CamemBERT: BERT whose positions are counted from
// behind the padding token's id.
#include "model/families.h"
#include "model/post_norm_encoder.h"

namespace stft::model {

std::unique_ptr<Encoder> build_roberta(const EncoderInput& input) {
  const FamilyConfig config(input.config, input.origin);
  PostNormConfig result = read_post_norm_config(config, input);
  result.names.prefix = "roberta.";
  result.type_vocab_size = config.positive("type_vocab_size", 2);
  result.padding_token = config.padding_token(result.vocab_size, 1);
  result.counts_from_padding = true;
  if (!result.padding_token) {
    config.refuse("pad_token_id", "expected a token, found null");
  }
  require_room_for_positions(config, result);
  return build_post_norm_encoder(std::move(result), input.parts);
}

}  // namespace stft::model
