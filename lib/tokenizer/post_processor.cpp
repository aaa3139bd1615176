#include "tokenizer/post_processor.h"

#include <algorithm>
#include <iterator>

#include "tokenizer/byte_level.h"
#include "tokenizer/unicode.h"

namespace stft::tokenizer {
namespace {

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

Encoding applied(const OffsetTrimming& step, Encoding encoding) {
  for (std::size_t i = 0; i < encoding.tokens.size(); ++i) {
    auto& [begin, end] = encoding.offsets[i];
    std::int64_t leading = leading_blanks(encoding.tokens[i]);
    const std::int64_t trailing = trailing_blanks(encoding.tokens[i]);
    if (leading == 1 && (i == 0 || begin == 0) && step.add_prefix_space) {
      leading = 0;  // the blank that byte-level tokenizers put before a text
    }
    begin = std::min(begin + leading, end);
    if (trailing > 0 && end >= trailing) {
      end = std::max(end - trailing, begin);
    }
  }
  return encoding;
}

Encoding applied(const SpecialTokens& step, Encoding content) {
  Encoding result;
  const auto append_special = [&](const std::vector<SpecialToken>& specials) {
    for (const SpecialToken& special : specials) {
      result.ids.push_back(special.id);
      result.tokens.push_back(special.token);
      result.offsets.emplace_back(0, 0);
      result.is_special.push_back(true);
    }
  };
  append_special(step.prefix);
  result.ids.insert(result.ids.end(), content.ids.begin(), content.ids.end());
  std::move(content.tokens.begin(), content.tokens.end(), std::back_inserter(result.tokens));
  result.offsets.insert(result.offsets.end(), content.offsets.begin(), content.offsets.end());
  result.is_special.insert(result.is_special.end(), content.is_special.begin(), content.is_special.end());
  append_special(step.suffix);
  return result;
}

}  // namespace

std::string listed(const std::vector<SpecialToken>& tokens) {
  std::string text;
  for (const SpecialToken& token : tokens) {
    text += (text.empty() ? "" : ", ") + token.token + " (" + std::to_string(token.id) + ")";
  }
  return text.empty() ? "nothing" : text;
}

PostProcessor::PostProcessor(std::vector<PostProcessorStep> steps) : steps_(std::move(steps)) {
  for (const PostProcessorStep& step : steps_) {
    if (const auto* specials = std::get_if<SpecialTokens>(&step)) {
      all_.prefix.insert(all_.prefix.begin(), specials->prefix.begin(), specials->prefix.end());
      all_.suffix.insert(all_.suffix.end(), specials->suffix.begin(), specials->suffix.end());
    }
  }
}

Encoding PostProcessor::process(Encoding content) const {
  for (const PostProcessorStep& step : steps_) {
    content = std::visit([&](const auto& s) { return applied(s, std::move(content)); }, step);
  }
  return content;
}

}  // namespace stft::tokenizer
