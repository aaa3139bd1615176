#include "peft/name_pattern.h"

#include <oniguruma.h>

#include <array>
#include <mutex>

#include "base/error.h"

namespace stft::peft {
namespace {

constexpr unsigned long kMostRetries = 1'000'000;  // names are short; a pattern that needs more is hostile

const OnigUChar* bytes_of(const std::string& text) {
  return reinterpret_cast<const OnigUChar*>(text.data());
}

std::string shown(const std::string& pattern) {
  return pattern.size() > 80 ? pattern.substr(0, 80) + "..." : pattern;
}

// libonig's own ONIG_SYNTAX_PYTHON refuses a group behind "?"; Perl's with (?P<name>...) has what patterns of names
// use.
OnigSyntaxType* python_syntax() {
  static OnigSyntaxType syntax = [] {
    OnigSyntaxType made{};
    onig_copy_syntax(&made, ONIG_SYNTAX_PERL_NG);
    onig_set_syntax_op2(&made, onig_get_syntax_op2(&made) | ONIG_SYN_OP2_QMARK_CAPITAL_P_NAME);
    return made;
  }();
  return &syntax;
}

struct ParamDeleter {
  void operator()(OnigMatchParam* param) const { onig_free_match_param(param); }
};

std::unique_ptr<OnigMatchParam, ParamDeleter> match_param() {
  std::unique_ptr<OnigMatchParam, ParamDeleter> param(onig_new_match_param());
  onig_initialize_match_param(param.get());
  onig_set_retry_limit_in_match_of_match_param(param.get(), kMostRetries);
  onig_set_retry_limit_in_search_of_match_param(param.get(), kMostRetries);
  return param;
}

void check_found(int found, const std::string& pattern, const std::string& name) {
  if (found < 0 && found != ONIG_MISMATCH) {
    throw UserError("the regular expression '" + shown(pattern) + "' takes too many steps on '" + name + "'");
  }
}

}  // namespace

struct NamePattern::Compiled {
  Compiled() = default;
  Compiled(const Compiled&) = delete;
  Compiled& operator=(const Compiled&) = delete;
  ~Compiled() {
    for (OnigRegex regex : {anywhere, whole}) {
      if (regex != nullptr) {
        onig_free(regex);
      }
    }
  }
  OnigRegex anywhere = nullptr;
  OnigRegex whole = nullptr;
};

NamePattern::NamePattern(const std::string& pattern) : pattern_(pattern) {
  static std::once_flag initialized;
  std::call_once(initialized, [] {
    std::array<OnigEncoding, 1> encodings = {ONIG_ENCODING_UTF8};
    onig_initialize(encodings.data(), static_cast<int>(encodings.size()));
  });
  auto compiled = std::make_shared<Compiled>();
  OnigErrorInfo info{};
  const auto compile = [&](OnigRegex& regex, const std::string& text) {
    const int code = onig_new(&regex, bytes_of(text), bytes_of(text) + text.size(), ONIG_OPTION_NONE,
                              ONIG_ENCODING_UTF8, python_syntax(), &info);
    if (code != ONIG_NORMAL) {
      std::array<OnigUChar, ONIG_MAX_ERROR_MESSAGE_LEN> message{};
      const int length = onig_error_code_to_str(message.data(), code, &info);
      throw UserError("the regular expression '" + shown(pattern) + "' is not valid: " +
                      std::string(reinterpret_cast<const char*>(message.data()), static_cast<std::size_t>(length)));
    }
  };
  // Alone first: "a)|(b" would be valid only inside the parentheses.
  compile(compiled->anywhere, pattern);
  compile(compiled->whole, "\\A(?:" + pattern + ")\\z");
  compiled_ = std::move(compiled);
}

bool NamePattern::matches(const std::string& name) const {
  const auto param = match_param();
  const OnigUChar* begin = bytes_of(name);
  const OnigUChar* end = begin + name.size();
  const int found = onig_match_with_param(compiled_->whole, begin, end, begin, nullptr, ONIG_OPTION_NONE, param.get());
  check_found(found, pattern_, name);
  return found == static_cast<int>(name.size());
}

bool NamePattern::is_found_in(const std::string& name) const {
  const auto param = match_param();
  const OnigUChar* begin = bytes_of(name);
  const OnigUChar* end = begin + name.size();
  const int found =
      onig_search_with_param(compiled_->anywhere, begin, end, begin, end, nullptr, ONIG_OPTION_NONE, param.get());
  check_found(found, pattern_, name);
  return found >= 0;
}

}  // namespace stft::peft
