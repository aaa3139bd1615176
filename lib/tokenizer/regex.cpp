#include "tokenizer/regex.h"

#include <oniguruma.h>

#include <array>
#include <mutex>

#include "base/clock.h"
#include "base/error.h"
#include "tokenizer/regex_properties.h"
#include "tokenizer/unicode.h"

namespace stft::tokenizer {
namespace {

// What finding all matches of a text may cost before it is given up: hostile patterns take quadratic or exponential
// time, or the memory, otherwise. Steps back are counted only by searches that take more than kCheapRetries of them;
// the time, of this thread's own computing, is for searches that run far ahead without stepping back.
constexpr unsigned long kCheapRetries = 200;
constexpr unsigned long kRetryBudget = 100'000'000;
constexpr unsigned long kRetriesPerByte = 100;
constexpr unsigned kMaxStackEntries = 1U << 24;
constexpr double kMaxSeconds = 20;
constexpr double kSecondsPerByte = 5e-6;
constexpr unsigned long kSearchesPerLook = 64;
constexpr int kTimeOver = ONIGERR_FAIL_TO_INITIALIZE - 1000;  // unlike all codes of libonig

std::string reason(int code, OnigErrorInfo* info) {
  std::array<OnigUChar, ONIG_MAX_ERROR_MESSAGE_LEN> message{};
  const int length = info != nullptr ? onig_error_code_to_str(message.data(), code, info)
                                     : onig_error_code_to_str(message.data(), code);
  return std::string(reinterpret_cast<const char*>(message.data()), static_cast<std::size_t>(length));
}

const OnigUChar* bytes_of(const char* text) {
  return reinterpret_cast<const OnigUChar*>(text);
}

struct RegionDeleter {
  void operator()(OnigRegion* region) const { onig_region_free(region, 1); }
};

struct MatchParamDeleter {
  void operator()(OnigMatchParam* param) const { onig_free_match_param(param); }
};

// Searches of one text, within one budget of steps back.
class Searcher {
 public:
  Searcher(OnigRegex regex, std::string_view text)
      : regex_(regex),
        text_(text),
        region_(onig_region_new()),
        param_(onig_new_match_param()),
        budget_(kRetryBudget + kRetriesPerByte * text.size()),
        deadline_(thread_cpu_seconds() + kMaxSeconds + kSecondsPerByte * static_cast<double>(text.size())) {}

  // What onig_search returns for a search from `from`; where it found a match, match() tells.
  int search(std::size_t from) {
    if (++searches_ % kSearchesPerLook == 0 && thread_cpu_seconds() > deadline_) {
      return kTimeOver;
    }
    const OnigUChar* begin = bytes_of(text_.data());
    const OnigUChar* end = begin + text_.size();
    for (unsigned long limit = kCheapRetries;; limit *= 10) {
      onig_initialize_match_param(param_.get());
      onig_set_retry_limit_in_match_of_match_param(param_.get(), limit);
      onig_set_retry_limit_in_search_of_match_param(param_.get(), limit);
      onig_region_clear(region_.get());
      const int found =
          onig_search_with_param(regex_, begin, end, begin + from, end, region_.get(), ONIG_OPTION_NONE, param_.get());
      const bool is_over = found == ONIGERR_RETRY_LIMIT_IN_SEARCH_OVER || found == ONIGERR_RETRY_LIMIT_IN_MATCH_OVER;
      if (!is_over || limit >= budget_) {
        return found;
      }
      budget_ -= limit;
    }
  }

  Span match() const { return {static_cast<std::size_t>(region_->beg[0]), static_cast<std::size_t>(region_->end[0])}; }

 private:
  OnigRegex regex_;
  std::string_view text_;
  std::unique_ptr<OnigRegion, RegionDeleter> region_;
  std::unique_ptr<OnigMatchParam, MatchParamDeleter> param_;
  unsigned long budget_;
  double deadline_;
  unsigned long searches_ = 0;
};

// Where each code point begins, and the end.
std::vector<std::size_t> char_begins(std::string_view utf8) {
  std::vector<std::size_t> begins;
  for (std::size_t i = 0; i < utf8.size(); ++i) {
    if ((static_cast<unsigned char>(utf8[i]) & 0xC0) != 0x80) {
      begins.push_back(i);
    }
  }
  begins.push_back(utf8.size());
  return begins;
}

}  // namespace

struct Regex::Compiled {
  Compiled() = default;
  Compiled(const Compiled&) = delete;
  Compiled& operator=(const Compiled&) = delete;
  ~Compiled() {
    if (regex != nullptr) {
      onig_free(regex);
    }
  }
  OnigRegex regex = nullptr;
};

Regex::Regex(const std::string& pattern) : pattern_(pattern) {
  static std::once_flag initialized;
  std::call_once(initialized, [] {
    std::array<OnigEncoding, 1> encodings = {ONIG_ENCODING_UTF8};
    onig_initialize(encodings.data(), static_cast<int>(encodings.size()));
    onig_set_match_stack_limit_size(kMaxStackEntries);
    define_regex_properties();
  });
  auto compiled = std::make_shared<Compiled>();
  OnigErrorInfo info{};
  const std::string adapted = with_own_properties(pattern);
  const OnigUChar* begin = bytes_of(adapted.data());
  const int code = onig_new(&compiled->regex, begin, begin + adapted.size(), ONIG_OPTION_NONE, ONIG_ENCODING_UTF8,
                            ONIG_SYNTAX_DEFAULT, &info);
  if (code != ONIG_NORMAL) {
    throw UserError("the regular expression '" + shortened(pattern) + "' is not valid: " + reason(code, &info));
  }
  compiled_ = std::move(compiled);
}

std::vector<Span> Regex::find_all(std::string_view text) const {
  std::vector<Span> matches;
  Searcher searcher(compiled_->regex, text);
  std::size_t from = 0;
  while (from <= text.size()) {
    const int found = searcher.search(from);
    if (found == ONIG_MISMATCH) {
      break;
    }
    if (found < 0) {
      throw UserError("the regular expression '" + shortened(pattern_) + "' gave up on a text of " +
                      std::to_string(text.size()) +
                      " bytes: " + (found == kTimeOver ? std::string("it takes too long") : reason(found, nullptr)));
    }
    const Span match = searcher.match();
    if (match.begin == match.end && !matches.empty() && matches.back().end == match.end) {
      from = match.end + (match.end < text.size() ? decode_char(text, match.end).length : 1);
      continue;
    }
    matches.push_back(match);
    from = match.end;
  }
  return matches;
}

std::vector<Span> Regex::find_all(std::span<const AlignedChar> text) const {
  std::string utf8;
  append_utf8(text, utf8);
  std::vector<Span> matches = find_all(utf8);
  if (utf8.size() == text.size()) {
    return matches;
  }
  const std::vector<std::size_t> begins = char_begins(utf8);
  const auto index_of = [&](std::size_t byte) {
    return static_cast<std::size_t>(std::lower_bound(begins.begin(), begins.end(), byte) - begins.begin());
  };
  for (Span& match : matches) {
    match = {index_of(match.begin), index_of(match.end)};
  }
  return matches;
}

}  // namespace stft::tokenizer
