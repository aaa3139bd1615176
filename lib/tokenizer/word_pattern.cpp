#include "tokenizer/word_pattern.h"

#include <algorithm>
#include <utility>

#include "tokenizer/unicode.h"

namespace stft::tokenizer {
namespace {

constexpr const char* kGpt2Text = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr const char* kLlama3Text =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2Text =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr char32_t kLongS = 0x17F;  // folds to s

enum class Kind { kLetter, kNumber, kSpace, kOther };

Kind kind_of(char32_t c) {
  const auto flags = char_flags(c);
  return (flags & kLetter) != 0       ? Kind::kLetter
         : (flags & kNumber) != 0     ? Kind::kNumber
         : (flags & kWhiteSpace) != 0 ? Kind::kSpace
                                      : Kind::kOther;
}

bool is_line_end(char32_t c) {
  return c == U'\r' || c == U'\n';
}

class Scanner {
 public:
  Scanner(WordPattern pattern, std::span<const AlignedChar> text, Span range)
      : text_(text), end_(range.end), folds_case_(pattern != WordPattern::kGpt2), pattern_(pattern) {}

  // Where the word that begins at `at` ends.
  std::size_t word_end(std::size_t at) const {
    if (text_[at].value == U'\'') {
      if (const std::size_t length = contraction_length(at + 1); length > 0) {
        return at + 1 + length;
      }
    }
    return pattern_ == WordPattern::kGpt2 ? gpt2_word_end(at) : llama3_word_end(at);
  }

 private:
  // ` ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+` and the white space.
  std::size_t gpt2_word_end(std::size_t at) const {
    const std::size_t first = at + (text_[at].value == U' ' && at + 1 < end_ ? 1 : 0);
    const Kind kind = kind_of(text_[first].value);
    return kind == Kind::kSpace ? space_end(at) : run_end(first, kind);
  }

  std::size_t llama3_word_end(std::size_t at) const {
    const char32_t c = text_[at].value;
    const Kind kind = kind_of(c);
    if (kind == Kind::kLetter) {
      return run_end(at, kind);
    }
    if (kind == Kind::kNumber) {
      const std::size_t most = pattern_ == WordPattern::kLlama3 ? 3 : 1;
      return std::min(run_end(at, kind, at + most), at + most);
    }
    const bool has_next = at + 1 < end_;
    const Kind next = has_next ? kind_of(text_[at + 1].value) : Kind::kSpace;
    if (next == Kind::kLetter && !is_line_end(c)) {
      return run_end(at + 1, Kind::kLetter);
    }
    if (kind == Kind::kOther || (c == U' ' && next == Kind::kOther)) {
      std::size_t end = run_end(at + (kind == Kind::kOther ? 0 : 1), Kind::kOther);
      while (end < end_ && is_line_end(text_[end].value)) {
        ++end;
      }
      return end;
    }
    // `\s*[\r\n]+`: up to the last line end of the white space.
    const std::size_t end = run_end(at, Kind::kSpace);
    for (std::size_t i = end; i > at; --i) {
      if (is_line_end(text_[i - 1].value)) {
        return i;
      }
    }
    return space_end(at);
  }

  // `\s+(?!\S)|\s+`: the last blank of several stays with the word behind.
  std::size_t space_end(std::size_t at) const {
    const std::size_t end = run_end(at, Kind::kSpace);
    return end == end_ || end == at + 1 ? end : end - 1;
  }

  std::size_t run_end(std::size_t at, Kind kind) const { return run_end(at, kind, end_); }

  std::size_t run_end(std::size_t at, Kind kind, std::size_t limit) const {
    limit = std::min(limit, end_);
    while (at < limit && kind_of(text_[at].value) == kind) {
      ++at;
    }
    return at;
  }

  // Of s, t, m, d, re, ve, ll at `at`; 0 for none.
  std::size_t contraction_length(std::size_t at) const {
    switch (letter(at)) {
      case U's':
      case U't':
      case U'm':
      case U'd':
        return 1;
      case U'r':
      case U'v':
        return letter(at + 1) == U'e' ? 2 : 0;
      case U'l':
        return letter(at + 1) == U'l' ? 2 : 0;
      default:
        return 0;
    }
  }

  char32_t letter(std::size_t at) const {
    if (at >= end_) {
      return 0;
    }
    const char32_t c = text_[at].value;
    if (!folds_case_) {
      return c;
    }
    return c == kLongS ? U's' : c >= U'A' && c <= U'Z' ? c + (U'a' - U'A') : c;
  }

  std::span<const AlignedChar> text_;
  std::size_t end_;
  bool folds_case_;
  WordPattern pattern_;
};

}  // namespace

std::string text_of(WordPattern pattern) {
  switch (pattern) {
    case WordPattern::kGpt2:
      return kGpt2Text;
    case WordPattern::kLlama3:
      return kLlama3Text;
    case WordPattern::kQwen2:
      return kQwen2Text;
  }
  return "";
}

std::optional<WordPattern> known_word_pattern(const std::string& pattern) {
  for (const WordPattern known : {WordPattern::kGpt2, WordPattern::kLlama3, WordPattern::kQwen2}) {
    if (pattern == text_of(known)) {
      return known;
    }
  }
  return std::nullopt;
}

std::vector<Span> find_words(WordPattern pattern, std::span<const AlignedChar> text, Span range) {
  const Scanner scanner(pattern, text, range);
  std::vector<Span> words;
  for (std::size_t at = range.begin; at < range.end;) {
    const std::size_t end = scanner.word_end(at);
    words.push_back({at, end});
    at = end;
  }
  return words;
}

}  // namespace stft::tokenizer
