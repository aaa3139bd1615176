#include "tokenizer/post_processor.h"

#include <algorithm>

#include "tokenizer/unicode.h"

namespace stft::tokenizer {
namespace {

constexpr char32_t kByteLevelBlank = 0x0120;  // how byte-level vocabularies write a blank

bool is_blank(char32_t c) {
  return c == kByteLevelBlank || has_flag(c, kWhiteSpace);
}

std::int64_t leading_blanks(std::string_view token) {
  std::int64_t count = 0;
  for (std::size_t position = 0; position < token.size(); ++count) {
    const DecodedChar c = decode_char(token, position);
    if (!is_blank(c.value)) {
      break;
    }
    position += c.length;
  }
  return count;
}

std::int64_t trailing_blanks(std::string_view token) {
  std::int64_t count = 0;
  while (!token.empty()) {
    const char32_t c = decode_char_before(token, token.size());
    if (!is_blank(c)) {
      break;
    }
    token.remove_suffix(utf8_length(c));
    ++count;
  }
  return count;
}

Encoding trimmed(Encoding encoding, bool add_prefix_space) {
  for (std::size_t i = 0; i < encoding.tokens.size(); ++i) {
    auto& [begin, end] = encoding.offsets[i];
    std::int64_t leading = leading_blanks(encoding.tokens[i]);
    const std::int64_t trailing = trailing_blanks(encoding.tokens[i]);
    if (leading == 1 && (i == 0 || begin == 0) && add_prefix_space) {
      leading = 0;  // the blank that byte-level tokenizers put before a text
    }
    begin = std::min(begin + leading, end);
    if (trailing > 0 && end >= trailing) {
      end = std::max(end - trailing, begin);
    }
  }
  return encoding;
}

}  // namespace

Encoding PostProcessor::process(Encoding content) const {
  if (trimming) {
    content = trimmed(std::move(content), trimming->add_prefix_space);
  }
  Encoding result;
  const auto append_special = [&](const std::vector<SpecialToken>& specials) {
    for (const SpecialToken& special : specials) {
      result.ids.push_back(special.id);
      result.tokens.push_back(special.token);
      result.offsets.emplace_back(0, 0);
    }
  };
  append_special(prefix);
  result.ids.insert(result.ids.end(), content.ids.begin(), content.ids.end());
  std::move(content.tokens.begin(), content.tokens.end(), std::back_inserter(result.tokens));
  result.offsets.insert(result.offsets.end(), content.offsets.begin(), content.offsets.end());
  append_special(suffix);
  return result;
}

}  // namespace stft::tokenizer
