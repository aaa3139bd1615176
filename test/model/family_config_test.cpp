// What a family's config.json may not say.
#include <catch2/catch.hpp>
#include <functional>

#include "base/error.h"
#include "io/temporary_directory.h"
#include "support/family_model.h"

using namespace stft;

namespace {

struct Mistake {
  const char* family;
  std::function<void(io::Json&)> make;
  std::vector<std::string> expected;
};

std::string message_for(const io::Json& config) {
  model::ParameterTable parameters;
  std::vector<model::Block> blocks;
  model::ProjectionTable projections;
  return test::message_of<UserError>([&] {
    model::build_encoder({config, "dir/config.json", std::nullopt, {parameters, blocks, projections}});
  });
}

}  // namespace

TEST_CASE("a configuration that no model can have is refused by file, key and value") {
  const std::vector<Mistake> mistakes = {
      {"llama", [](io::Json& c) { c["model_type"] = "new"; }, {"'new' is not available yet", "xlm-roberta"}},
      {"llama", [](io::Json& c) { c["num_key_value_heads"] = 3; }, {"num_attention_heads 4", "num_key_value_heads 3"}},
      {"llama", [](io::Json& c) { c["head_dim"] = 5; }, {"even head width", "5"}},
      {"llama", [](io::Json& c) { c["head_dim"] = 1 << 30; }, {"even head width", "65536"}},
      {"llama", [](io::Json& c) { c["hidden_act"] = "mish"; }, {"hidden_act 'mish'", "silu"}},
      {"llama", [](io::Json& c) { c["pad_token_id"] = 500; }, {"pad_token_id", "500"}},
      {"llama", [](io::Json& c) { c["rms_norm_eps"] = 0; }, {"rms_norm_eps"}},
      {"llama", [](io::Json& c) { c["num_hidden_layers"] = 5000; }, {"num_hidden_layers", "4094"}},
      {"llama", [](io::Json& c) { c["rope_scaling"] = "yarn"; }, {"rope_scaling", "expected an object"}},
      {"llama",
       [](io::Json& c) {
         c["rope_scaling"] = {{"rope_type", "su"}};
       },
       {"rope_type 'su'", "longrope"}},
      {"llama",
       [](io::Json& c) {
         c["rope_scaling"] = {{"type", "linear"}, {"factor", -2}};
       },
       {"factor", "-2"}},
      {"llama",
       [](io::Json& c) {
         c["rope_scaling"] = {{"type", "longrope"}, {"short_factor", {1, 1}}, {"long_factor", {1, 1}}};
       },
       {"short_factor", "list of 6"}},
      {"llama",
       [](io::Json& c) {
         c["rope_scaling"] = {{"type", "llama3"}, {"factor", 2}, {"low_freq_factor", 4}, {"high_freq_factor", 4}};
       },
       {"high_freq_factor"}},
      {"llama", [](io::Json& c) { c["partial_rotary_factor"] = 0.5; }, {"partial_rotary_factor"}},
      {"mistral", [](io::Json& c) { c["sliding_window"] = 0; }, {"sliding_window", "0"}},
      {"qwen2", [](io::Json& c) { c["layer_types"] = {"full_attention"}; }, {"layer_types", "list of 2"}},
      {"qwen2",
       [](io::Json& c) {
         c["layer_types"] = {"sliding_attention", "full_attention"};
       },
       {"layer_types", "without a sliding_window"}},
      {"qwen3",
       [](io::Json& c) {
         c["layer_types"] = {"chunked_attention", "full_attention"};
       },
       {"layer_types", "chunked_attention"}},
      {"gemma2", [](io::Json& c) { c["use_bidirectional_attention"] = true; }, {"use_bidirectional_attention"}},
      {"gemma3", [](io::Json& c) { c["attn_logit_softcapping"] = 3; }, {"attn_logit_softcapping"}},
      {"bert", [](io::Json& c) { c["is_causal"] = true; }, {"is_causal", "bidirectional"}},
      {"bert", [](io::Json& c) { c["is_decoder"] = true; }, {"is_decoder"}},
      {"roberta", [](io::Json& c) { c["pad_token_id"] = nullptr; }, {"pad_token_id"}},
      {"roberta", [](io::Json& c) { c["max_position_embeddings"] = 2; }, {"max_position_embeddings"}},
      {"mpnet", [](io::Json& c) { c["relative_attention_num_buckets"] = 3; }, {"relative_attention_num_buckets"}},
      {"albert", [](io::Json& c) { c["num_hidden_groups"] = 3; }, {"num_hidden_groups 3"}},
      {"albert", [](io::Json& c) { c["inner_group_num"] = 2; }, {"inner_group_num"}},
      {"t5", [](io::Json& c) { c["relative_attention_max_distance"] = 1; }, {"relative_attention_max_distance"}},
      {"t5", [](io::Json& c) { c["feed_forward_proj"] = "gated-x"; }, {"feed_forward_proj 'x'"}},
      {"deberta", [](io::Json& c) { c["conv_kernel_size"] = 3; }, {"conv_kernel_size"}},
      {"deberta", [](io::Json& c) { c["position_buckets"] = 2; }, {"position_buckets"}},
      {"deberta", [](io::Json& c) { c["pos_att_type"] = 3; }, {"pos_att_type"}},
      {"modernbert", [](io::Json& c) { c["local_attention"] = "x"; }, {"local_attention"}},
      {"nomic_bert", [](io::Json& c) { c["head_dim"] = 2; }, {"head_dim"}},
  };
  for (const Mistake& mistake : mistakes) {
    auto config = test::trainable_config(mistake.family);
    CHECK(message_for(config).empty());
    mistake.make(config);
    const std::string message = message_for(config);
    INFO(mistake.family << ": " << message);
    CHECK_THAT(message, Catch::Contains("config.json"));
    for (const std::string& expected : mistake.expected) {
      CHECK_THAT(message, Catch::Contains(expected));
    }
  }
}
