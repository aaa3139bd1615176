#include "tokenizer/stage_json.h"

#include <utility>

#include "tokenizer/pre_tokenizer.h"

namespace stft::tokenizer {

using io::Json;

Json replace_json(const Json& pattern, const std::string& content) {
  return {{"type", "Replace"}, {"pattern", pattern}, {"content", content}};
}

Json split_json(const Json& pattern, const std::string& behavior, bool invert) {
  return {{"type", "Split"}, {"pattern", pattern}, {"behavior", behavior}, {"invert", invert}};
}

Json metaspace_json(const std::string& prepend_scheme, bool splits) {
  return {{"type", "Metaspace"}, {"replacement", kMetaspace}, {"prepend_scheme", prepend_scheme}, {"split", splits}};
}

Json precompiled_json(const Json& charsmap) {
  return {{"type", "Precompiled"}, {"precompiled_charsmap", charsmap}};
}

Json normalizers_json(Json list) {
  return {{"type", "Sequence"}, {"normalizers", std::move(list)}};
}

Json pre_tokenizers_json(Json list) {
  return {{"type", "Sequence"}, {"pretokenizers", std::move(list)}};
}

}  // namespace stft::tokenizer
