#include "tokenizer/tokenizer_class.h"

#include <map>
#include <set>
#include <utility>

namespace stft::tokenizer {
namespace {

constexpr const char* kBackendName = "TokenizersBackend";

using Names = std::map<std::string, TokenizerClass>;

const Names& known_classes() {
  static const Names known = {
      {"BertTokenizer", TokenizerClass::kBert},
      {"DistilBertTokenizer", TokenizerClass::kBert},
      {"ElectraTokenizer", TokenizerClass::kBert},
      {"MobileBertTokenizer", TokenizerClass::kBert},
      {"SqueezeBertTokenizer", TokenizerClass::kBert},
      {"MPNetTokenizer", TokenizerClass::kMpnet},
      {"RobertaTokenizer", TokenizerClass::kRoberta},
      {"LongformerTokenizer", TokenizerClass::kRoberta},
      {"BartTokenizer", TokenizerClass::kRoberta},
      {"GPT2Tokenizer", TokenizerClass::kGpt2},
      {"Qwen2Tokenizer", TokenizerClass::kQwen2},
      {"CLIPTokenizer", TokenizerClass::kClip},
      {"LlamaTokenizer", TokenizerClass::kLlama},
      {"GemmaTokenizer", TokenizerClass::kGemma},
      {"T5Tokenizer", TokenizerClass::kT5},
      {"XLMRobertaTokenizer", TokenizerClass::kXlmRoberta},
      {"CamembertTokenizer", TokenizerClass::kCamembert},
      {"AlbertTokenizer", TokenizerClass::kAlbert},
      {"DebertaV2Tokenizer", TokenizerClass::kDebertaV2},
  };
  return known;
}

// The classes of the model types; a type that is missing here has none, or one that is not in known_classes.
const std::map<std::string, std::string>& classes_of_model_types() {
  static const std::map<std::string, std::string> classes = {
      {"albert", "AlbertTokenizer"},
      {"bart", "RobertaTokenizer"},
      {"bert", "BertTokenizer"},
      {"camembert", "CamembertTokenizer"},
      {"clip", "CLIPTokenizer"},
      {"convbert", "BertTokenizer"},
      {"data2vec-text", "RobertaTokenizer"},
      {"deberta-v2", "DebertaV2Tokenizer"},
      {"distilbert", "BertTokenizer"},
      {"electra", "BertTokenizer"},
      {"ernie", "BertTokenizer"},
      {"gemma", "GemmaTokenizer"},
      {"gemma2", "GemmaTokenizer"},
      {"gemma3", "GemmaTokenizer"},
      {"gemma3_text", "GemmaTokenizer"},
      {"gpt2", "GPT2Tokenizer"},
      {"gpt_neo", "GPT2Tokenizer"},
      {"gptj", "GPT2Tokenizer"},
      {"gte", "XLMRobertaTokenizer"},
      {"jina_embeddings_v3", "XLMRobertaTokenizer"},
      {"longformer", "RobertaTokenizer"},
      {"megatron-bert", "BertTokenizer"},
      {"mistral", "TokenizersBackend"},
      {"mixtral", "TokenizersBackend"},
      {"modernbert", "TokenizersBackend"},
      {"modernbert-decoder", "TokenizersBackend"},
      {"mpnet", "MPNetTokenizer"},
      {"mt5", "T5Tokenizer"},
      {"nomic_bert", "BertTokenizer"},
      {"opt", "GPT2Tokenizer"},
      {"phi", "GPT2Tokenizer"},
      {"phi3", "TokenizersBackend"},
      {"qwen2", "Qwen2Tokenizer"},
      {"qwen2_moe", "Qwen2Tokenizer"},
      {"qwen3", "Qwen2Tokenizer"},
      {"qwen3_moe", "Qwen2Tokenizer"},
      {"roberta", "RobertaTokenizer"},
      {"roberta-prelayernorm", "RobertaTokenizer"},
      {"squeezebert", "BertTokenizer"},
      {"t5", "T5Tokenizer"},
      {"t5gemma", "GemmaTokenizer"},
      {"umt5", "TokenizersBackend"},
      {"xlm-roberta", "XLMRobertaTokenizer"},
      {"xlm-roberta-xl", "TokenizersBackend"},
      {"xmod", "XLMRobertaTokenizer"},
  };
  return classes;
}

// For these transformers trusts its own table more than the files.
bool overrules_files(const std::string& model_type) {
  return model_type == "qwen2" || model_type == "modernbert" || model_type == "modernbert-decoder" ||
         model_type == "phi3";
}

std::string string_at(const io::Json& json, const std::string& key) {
  const io::Json& value = member(json, key);
  return value.is_string() ? value.get<std::string>() : std::string();
}

std::string without_fast(std::string name) {
  if (name.ends_with("Fast") && name != "PreTrainedTokenizerFast") {
    name.resize(name.size() - 4);
  }
  return name;
}

}  // namespace

ChosenClass choose_class(const ConfigFiles& files) {
  ChosenClass result;
  std::string named = without_fast(string_at(files.tokenizer_config, "tokenizer_class"));
  std::string stated_by = files.path_of("tokenizer_config.json") + ": tokenizer_class";
  if (named.empty()) {
    named = without_fast(string_at(files.model_config, "tokenizer_class"));
    stated_by = files.path_of("config.json") + ": tokenizer_class";
  }
  const std::string model_type = string_at(files.model_config, "model_type");
  const auto registered = classes_of_model_types().find(model_type);
  if (registered != classes_of_model_types().end() && registered->second != named &&
      (named.empty() || registered->second == kBackendName || overrules_files(model_type))) {
    named = registered->second;
    stated_by = files.path_of("config.json") + ": model_type";
  }
  if (named.empty()) {
    return result;
  }
  const auto known = known_classes().find(named);
  return {known == known_classes().end() ? TokenizerClass::kBackend : known->second, named, stated_by};
}

bool is_rebuilt_elsewhere(const std::string& name) {
  static const std::set<std::string> names = {
      "BarthezTokenizer", "BigBirdTokenizer", "CodeLlamaTokenizer", "CohereTokenizer",  "DebertaTokenizer",
      "FunnelTokenizer",  "GPTNeoXTokenizer", "HerbertTokenizer",   "LukeTokenizer",    "MBart50Tokenizer",
      "MBartTokenizer",   "NllbTokenizer",    "PegasusTokenizer",   "Qwen3_5Tokenizer", "RemBertTokenizer",
      "WhisperTokenizer", "XGLMTokenizer",    "XLNetTokenizer"};
  return names.contains(name);
}

VocabularyKind vocabulary_kind(TokenizerClass id) {
  switch (id) {
    case TokenizerClass::kBert:
    case TokenizerClass::kMpnet:
      return VocabularyKind::kVocabTxt;
    case TokenizerClass::kRoberta:
    case TokenizerClass::kGpt2:
    case TokenizerClass::kQwen2:
    case TokenizerClass::kClip:
      return VocabularyKind::kVocabAndMerges;
    default:
      return VocabularyKind::kSentencePiece;
  }
}

ModelKind model_kind(TokenizerClass id) {
  switch (id) {
    case TokenizerClass::kBert:
    case TokenizerClass::kMpnet:
      return ModelKind::kWordPiece;
    case TokenizerClass::kT5:
    case TokenizerClass::kXlmRoberta:
    case TokenizerClass::kCamembert:
    case TokenizerClass::kAlbert:
    case TokenizerClass::kDebertaV2:
      return ModelKind::kUnigram;
    default:
      return ModelKind::kBpe;
  }
}

std::vector<NamedDefault> named_defaults(TokenizerClass id) {
  const std::vector<NamedDefault> fairseq = {{"bos_token", "<s>"},    {"eos_token", "</s>"},  {"unk_token", "<unk>"},
                                             {"sep_token", "</s>"},   {"pad_token", "<pad>"}, {"cls_token", "<s>"},
                                             {"mask_token", "<mask>"}};
  switch (id) {
    case TokenizerClass::kBert:
      return {{"unk_token", "[UNK]"},
              {"sep_token", "[SEP]"},
              {"pad_token", "[PAD]"},
              {"cls_token", "[CLS]"},
              {"mask_token", "[MASK]"}};
    case TokenizerClass::kMpnet:
      return {{"bos_token", "<s>"},   {"eos_token", "</s>"}, {"unk_token", "[UNK]"},        {"sep_token", "</s>"},
              {"pad_token", "<pad>"}, {"cls_token", "<s>"},  {"mask_token", "<mask>", true}};
    case TokenizerClass::kRoberta:
    case TokenizerClass::kXlmRoberta:
      return fairseq;
    case TokenizerClass::kCamembert: {
      std::vector<NamedDefault> named = fairseq;
      named.back().lstrip = true;
      return named;
    }
    case TokenizerClass::kGpt2:
      return {{"bos_token", "<|endoftext|>"}, {"eos_token", "<|endoftext|>"}, {"unk_token", "<|endoftext|>"}};
    case TokenizerClass::kQwen2:
      return {{"eos_token", "<|endoftext|>"}, {"unk_token", "<|endoftext|>"}, {"pad_token", "<|endoftext|>"}};
    case TokenizerClass::kClip:
      return {{"bos_token", "<|startoftext|>"},
              {"eos_token", "<|endoftext|>"},
              {"unk_token", "<|endoftext|>"},
              {"pad_token", "<|endoftext|>"}};
    case TokenizerClass::kLlama:
      return {{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"unk_token", "<unk>"}};
    case TokenizerClass::kGemma:
      return {{"bos_token", "<bos>"},
              {"eos_token", "<eos>"},
              {"unk_token", "<unk>"},
              {"pad_token", "<pad>"},
              {"mask_token", "<mask>"}};
    case TokenizerClass::kT5:
      return {{"eos_token", "</s>"}, {"unk_token", "<unk>"}, {"pad_token", "<pad>"}};
    case TokenizerClass::kAlbert:
      return {{"bos_token", "[CLS]"}, {"eos_token", "[SEP]"}, {"unk_token", "<unk>"},  {"sep_token", "[SEP]"},
              {"pad_token", "<pad>"}, {"cls_token", "[CLS]"}, {"mask_token", "[MASK]"}};
    case TokenizerClass::kDebertaV2:
      return {{"bos_token", "[CLS]"}, {"eos_token", "[SEP]"}, {"unk_token", "[UNK]"},  {"sep_token", "[SEP]"},
              {"pad_token", "[PAD]"}, {"cls_token", "[CLS]"}, {"mask_token", "[MASK]"}};
    case TokenizerClass::kBackend:
      return {};
  }
  return {};
}

bool pads_left(TokenizerClass id) {
  return id == TokenizerClass::kLlama || id == TokenizerClass::kGemma;
}

}  // namespace stft::tokenizer
