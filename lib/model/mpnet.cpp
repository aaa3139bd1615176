// MPNet (Song et al., 2020): RoBERTa's positions, and a bias of the scores by relative position that all layers share.
#include "model/families.h"
#include "model/post_norm_encoder.h"

namespace stft::model {

std::unique_ptr<Encoder> build_mpnet(const EncoderInput& input) {
  const FamilyConfig config(input.config, input.origin);
  PostNormConfig result = read_post_norm_config(config, input);
  PostNormNames& names = result.names;
  names.prefix = "mpnet.";
  names.token_type = "";
  names.relative_bias = "encoder.relative_attention_bias.weight";
  names.query = "attention.attn.q";
  names.key = "attention.attn.k";
  names.value = "attention.attn.v";
  names.attention_output = "attention.attn.o";
  names.attention_norm = "attention.LayerNorm";
  result.padding_token = 1;  // whatever the config says
  result.counts_from_padding = true;
  require_room_for_positions(config, result);
  result.relative = RelativeBuckets{config.positive("relative_attention_num_buckets", 32), 128};
  if (result.relative->buckets != 32) {
    config.refuse("relative_attention_num_buckets", "other than 32 is not available yet");
  }
  return build_post_norm_encoder(std::move(result), input.parts);
}

}  // namespace stft::model
