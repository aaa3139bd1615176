#include "tokenizer/added_tokens.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/error.h"
#include "tokenizer/unicode.h"

namespace stft::tokenizer {
namespace {

bool is_single_word(std::string_view text, std::size_t begin, std::size_t end) {
  const bool joined_left = begin > 0 && has_flag(decode_char_before(text, begin), kWordCharacter);
  const bool joined_right = end < text.size() && has_flag(decode_char(text, end).value, kWordCharacter);
  return !joined_left && !joined_right;
}

// Where the white space before `end` begins, not before `limit`.
std::size_t white_space_begin(std::string_view text, std::size_t end, std::size_t limit) {
  while (end > limit) {
    const char32_t c = decode_char_before(text, end);
    if (!has_flag(c, kWhiteSpace)) {
      break;
    }
    end -= utf8_length(c);
  }
  return std::max(end, limit);
}

// Where white space ends, for begins that ascend: a stretch is walked once however often it is asked for.
class WhiteSpaceEnd {
 public:
  explicit WhiteSpaceEnd(std::string_view text) : text_(text) {}

  std::size_t behind(std::size_t begin) {
    if (begin >= begin_ && begin <= end_) {
      return end_;
    }
    begin_ = end_ = begin;
    while (end_ < text_.size()) {
      const DecodedChar c = decode_char(text_, end_);
      if (!has_flag(c.value, kWhiteSpace)) {
        break;
      }
      end_ += c.length;
    }
    return end_;
  }

 private:
  std::string_view text_;
  std::size_t begin_ = 1;  // no stretch yet
  std::size_t end_ = 0;
};

// The fragments' strings may not grow with the square of the text.
void check_overlap(const std::vector<Fragment>& fragments, std::size_t text_size) {
  constexpr std::size_t kAllowance = std::size_t{1} << 20;
  std::size_t total = 0;
  for (const Fragment& fragment : fragments) {
    total += fragment.end - fragment.begin;
  }
  if (total > 16 * text_size + kAllowance) {
    throw UserError("added tokens overlap too often in a text of " + std::to_string(text_size) +
                    " bytes: one that begins with white space has rstrip");
  }
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<Entry> entries) : entries_(std::move(entries)) {
  std::vector<Trie::Entry> keys;
  std::set<std::string_view> known;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (known.insert(entries_[i].pattern).second) {
      keys.push_back({entries_[i].pattern, static_cast<std::int32_t>(i)});
      first_bytes_[static_cast<unsigned char>(entries_[i].pattern.front())] = true;
    }
  }
  trie_ = Trie(std::move(keys));
  if (std::count(first_bytes_.begin(), first_bytes_.end(), true) == 1) {
    only_first_byte_ =
        static_cast<int>(std::find(first_bytes_.begin(), first_bytes_.end(), true) - first_bytes_.begin());
  }
}

std::size_t AddedTokenMatcher::find_candidate(std::string_view text, std::size_t from) const {
  if (only_first_byte_ >= 0) {
    return text.find(static_cast<char>(static_cast<unsigned char>(only_first_byte_)), from);
  }
  while (from < text.size() && !first_bytes_[static_cast<unsigned char>(text[from])]) {
    ++from;
  }
  return from < text.size() ? from : std::string_view::npos;
}

std::vector<Fragment> AddedTokenMatcher::split(std::string_view text) const {
  std::vector<Fragment> fragments;
  std::size_t covered = 0;
  WhiteSpaceEnd white_space(text);
  std::size_t position = entries_.empty() ? std::string_view::npos : find_candidate(text, 0);
  while (position != std::string_view::npos) {
    const Trie::Match match = trie_.longest_match(Trie::kRoot, text.substr(position));
    if (match.length == 0) {
      position = find_candidate(text, position + 1);
      continue;
    }
    const AddedToken& token = entries_[static_cast<std::size_t>(match.value)].token;
    std::size_t begin = position;
    std::size_t end = position + match.length;
    position = find_candidate(text, end);
    if (token.single_word && !is_single_word(text, begin, end)) {
      continue;
    }
    if (token.lstrip) {
      begin = white_space_begin(text, begin, covered);
    }
    if (token.rstrip) {
      end = white_space.behind(end);
    }
    if (begin >= end) {
      continue;
    }
    if (covered < begin) {
      fragments.push_back({covered, begin, nullptr});
    }
    fragments.push_back({begin, end, &token});
    covered = end;
  }
  if (covered < text.size()) {
    fragments.push_back({covered, text.size(), nullptr});
  }
  check_overlap(fragments, text.size());
  return fragments;
}

}  // namespace stft::tokenizer
