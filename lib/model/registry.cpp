#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "model/families.h"

namespace stft::model {
namespace {

struct Family {
  const char* model_type;
  EncoderFactory build;
  bool is_decoder = false;
  const char* hidden_size = "hidden_size";
  io::Json (*exported_config)(const io::Json& config, const std::string& origin) = nullptr;
};

constexpr std::array kFamilies = {
    Family{"albert", build_albert},                                       // paraphrase-albert
    Family{"bert", build_bert},                                           // MiniLM, BGE, E5, GTE
    Family{"camembert", build_roberta},                                   //
    Family{"deberta-v2", build_deberta_v2},                               // DeBERTa v2 and v3
    Family{"distilbert", build_distilbert, false, "dim"},                 //
    Family{"electra", build_electra},                                     //
    Family{"gemma2", build_gemma2, true},                                 // BGE-multilingual-gemma2
    Family{"gemma3_text", build_gemma3, true},                            // EmbeddingGemma
    Family{"gte", build_gte, false, "hidden_size", exported_gte_config},  // gte-multilingual-base
    Family{"llama", build_llama, true},                                   // SmolLM2, TinyLlama
    Family{"mistral", build_mistral, true},                               // E5-Mistral, SFR
    Family{"modernbert", build_modernbert},                               // gte-modernbert
    Family{"mpnet", build_mpnet},                                         // all-mpnet-base
    Family{"nomic_bert", build_nomic_bert, false, "hidden_size", exported_nomic_bert_config},  // nomic-embed-text
    Family{"qwen2", build_qwen2, true},                                                        // GTE-Qwen2
    Family{"qwen3", build_qwen3, true},                                                        // Qwen3-Embedding
    Family{"roberta", build_roberta},                                                          // all-distilroberta
    Family{"t5", build_t5, false, "d_model"},  // sentence-t5, GTR, Instructor
    Family{"xlm-roberta", build_roberta},      // multilingual-E5, BGE-M3
};

const Family* find_family(const std::string& model_type) {
  const auto found = std::find_if(kFamilies.begin(), kFamilies.end(),
                                  [&](const Family& family) { return model_type == family.model_type; });
  return found == kFamilies.end() ? nullptr : &*found;
}

}  // namespace

std::unique_ptr<Encoder> build_encoder(const EncoderInput& input) {
  const std::string model_type = io::get_string(input.config, "model_type", input.origin);
  const Family* family = find_family(model_type);
  if (family == nullptr) {
    std::string names;
    for (const Family& known : kFamilies) {
      names += (names.empty() ? "" : ", ") + std::string(known.model_type);
    }
    throw UserError(
        fmt::format("{}: model_type '{}' is not available yet (available: {})", input.origin, model_type, names));
  }
  if (!family->is_decoder && io::optional_bool(input.config, "is_causal", input.origin).value_or(false)) {
    throw UserError(fmt::format("{}: is_causal true: '{}' is bidirectional", input.origin, model_type));
  }
  return family->build(input);
}

int64_t configured_hidden_size(const io::Json& config, const std::string& origin) {
  const Family* family = find_family(io::optional_string(config, "model_type", origin).value_or(""));
  const char* key = family != nullptr ? family->hidden_size : "hidden_size";
  const bool has_older_name = config.is_object() && !config.contains(key) && config.contains("n_embd");
  return io::get_int(config, has_older_name ? "n_embd" : key, origin);
}

io::Json config_for_export(const io::Json& config, const std::string& origin) {
  const Family* family = find_family(io::optional_string(config, "model_type", origin).value_or(""));
  return family != nullptr && family->exported_config != nullptr ? family->exported_config(config, origin) : config;
}

bool is_decoder_family(const io::Json& config) {
  const auto model_type = config.find("model_type");
  const Family* family =
      model_type != config.end() && model_type->is_string() ? find_family(model_type->get<std::string>()) : nullptr;
  return family != nullptr && family->is_decoder;
}

}  // namespace stft::model
