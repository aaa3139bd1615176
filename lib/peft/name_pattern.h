// Patterns over names of modules and parameters, in the syntax of Python's `re`.
#pragma once

#include <memory>
#include <string>

namespace stft::peft {

class NamePattern {
 public:
  // UserError naming the pattern when it is no regular expression.
  explicit NamePattern(const std::string& pattern);

  // re.fullmatch. UserError when the search takes too many steps.
  bool matches(const std::string& name) const;
  // re.search. UserError likewise.
  bool is_found_in(const std::string& name) const;

 private:
  struct Compiled;
  std::string pattern_;
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace stft::peft
