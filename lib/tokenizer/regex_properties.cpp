#include "tokenizer/regex_properties.h"

#include <fmt/format.h>
#include <oniguruma.h>

#include <algorithm>
#include <cctype>
#include <span>
#include <vector>

#include "base/error.h"
#include "tokenizer/regex_property_tables.h"

namespace stft::tokenizer {
namespace {

constexpr std::string_view kWordProperty = "OwnWord";
constexpr std::string_view kWordInClassProperty = "OwnWordInClass";

// Superscripts and fractions that match \w alone, but not \w within brackets.
constexpr CodePointRange kLatinWord[] = {{0xB2, 0xB3}, {0xB9, 0xB9}, {0xBC, 0xBE}};

// The ranges that libonig has for a property by itself.
std::vector<CodePointRange> installed_ranges(int ctype) {
  OnigCodePoint ascii_limit = 0;
  const OnigCodePoint* ranges = nullptr;
  STFT_CHECK(ONIG_ENCODING_UTF8->get_ctype_code_range(static_cast<OnigCtype>(ctype), &ascii_limit, &ranges) == 0,
             "libonig has no ranges for a character property");
  std::vector<CodePointRange> result(ranges[0]);
  for (OnigCodePoint i = 0; i < ranges[0]; ++i) {
    result[i] = {ranges[1 + 2 * i], ranges[2 + 2 * i]};
  }
  return result;
}

// The union as libonig wants it: the number of ranges, then their ends.
std::vector<OnigCodePoint> merged(std::vector<CodePointRange> ranges, std::span<const CodePointRange> added) {
  ranges.insert(ranges.end(), added.begin(), added.end());
  std::sort(ranges.begin(), ranges.end(),
            [](const CodePointRange& a, const CodePointRange& b) { return a.first < b.first; });
  std::vector<OnigCodePoint> flat = {0};
  for (const CodePointRange& range : ranges) {
    if (flat.size() > 1 && range.first <= flat.back() + 1) {
      flat.back() = std::max<OnigCodePoint>(flat.back(), range.last);
    } else {
      flat.insert(flat.end(), {range.first, range.last});
    }
  }
  flat[0] = static_cast<OnigCodePoint>((flat.size() - 1) / 2);
  return flat;
}

void define(std::string_view name, std::vector<OnigCodePoint> ranges) {
  // libonig keeps a pointer to the ranges for as long as the process runs.
  static std::vector<std::vector<OnigCodePoint>> kept;
  kept.push_back(std::move(ranges));
  STFT_CHECK(onig_unicode_define_user_property(std::string(name).c_str(), kept.back().data()) == 0,
             "libonig takes no property " + std::string(name));
}

int ctype_of(std::string_view name) {
  std::string copy(name);
  auto* begin = reinterpret_cast<OnigUChar*>(copy.data());
  return ONIG_ENCODING_UTF8->property_name_to_ctype(ONIG_ENCODING_UTF8, begin, begin + copy.size());
}

// The short name of a property that define_regex_properties replaces, or nothing.
std::string_view short_name(std::string_view name) {
  struct Alias {
    std::string_view plain;
    std::string_view name;
  };
  static constexpr Alias kAliases[] = {
      {"letter", "L"},
      {"uppercaseletter", "Lu"},
      {"lowercaseletter", "Ll"},
      {"modifierletter", "Lm"},
      {"otherletter", "Lo"},
      {"mark", "M"},
      {"combiningmark", "M"},
      {"number", "N"},
      {"decimalnumber", "Nd"},
      {"digit", "Nd"},
      {"othernumber", "No"},
      {"punctuation", "P"},
      {"otherpunctuation", "Po"},
      {"punct", "P"},
      {"symbol", "S"},
      {"mathsymbol", "Sm"},
      {"othersymbol", "So"},
      {"hani", "Han"},
      {"word", kWordProperty},
  };
  std::string plain;
  for (const char c : name) {
    if (c != ' ' && c != '_' && c != '-') {
      plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  const auto* const found =
      std::find_if(std::begin(kAliases), std::end(kAliases), [&](const Alias& alias) { return alias.plain == plain; });
  return found == std::end(kAliases) ? std::string_view{} : found->name;
}

// Whether the pattern stands inside a look-behind, where libonig allows no further look-around.
class LookBehind {
 public:
  // Sees an unescaped parenthesis outside of brackets.
  void see(std::string_view from_here) {
    if (from_here.front() == '(') {
      inside_.push_back(inside() || from_here.starts_with("(?<=") || from_here.starts_with("(?<!"));
    } else if (from_here.front() == ')' && !inside_.empty()) {
      inside_.pop_back();
    }
  }
  bool inside() const { return !inside_.empty() && inside_.back(); }

 private:
  std::vector<bool> inside_;  // by open parenthesis
};

}  // namespace

void define_regex_properties() {
  // All are read before one is replaced: a name that is defined hides libonig's own.
  std::vector<std::vector<OnigCodePoint>> unions;
  for (const RegexProperty& property : added_to_properties()) {
    unions.push_back(merged(installed_ranges(ctype_of(property.name)), property.added));
  }
  define(kWordInClassProperty, merged(installed_ranges(ONIGENC_CTYPE_WORD), added_to_word()));
  std::vector<CodePointRange> word = installed_ranges(ONIGENC_CTYPE_WORD);
  word.insert(word.end(), std::begin(kLatinWord), std::end(kLatinWord));
  define(kWordProperty, merged(std::move(word), added_to_word()));
  for (std::size_t i = 0; i < unions.size(); ++i) {
    define(added_to_properties()[i].name, std::move(unions[i]));
  }
}

std::string with_own_properties(std::string_view pattern) {
  std::string result;
  int depth = 0;  // of brackets
  LookBehind look_behind;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char escaped = pattern[i] == '\\' && i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (escaped == '\0') {
      result += pattern[i];
      if (depth == 0) {
        look_behind.see(pattern.substr(i));
      }
      if (pattern[i] == '[') {
        ++depth;
        if (pattern.substr(i + 1, 1) == "]" || pattern.substr(i + 1, 2) == "^]") {  // this bracket stands for itself
          const std::size_t length = pattern[i + 1] == '^' ? 2 : 1;
          result.append(pattern.substr(i + 1, length));
          i += length;
        }
      } else if (pattern[i] == ']' && depth > 0) {
        --depth;
      }
      continue;
    }
    ++i;
    if ((escaped == 'b' || escaped == 'B') && depth == 0 && !look_behind.inside()) {
      const std::string word = fmt::format("\\p{{{}}}", kWordProperty);
      result += escaped == 'b' ? fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", word)
                               : fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", word);
      continue;
    }
    if (std::string_view("wWdD").find(escaped) != std::string_view::npos) {
      const bool is_word = escaped == 'w' || escaped == 'W';
      result += escaped == 'w' || escaped == 'd' ? "\\p{" : "\\P{";
      result.append(!is_word ? "Nd" : depth > 0 ? kWordInClassProperty : kWordProperty).append("}");
      continue;
    }
    result.append({'\\', escaped});
    const std::size_t close = pattern.find('}', i);
    if ((escaped == 'p' || escaped == 'P') && pattern.substr(i + 1, 1) == "{" && close != std::string_view::npos) {
      const std::size_t name_begin = i + (pattern.substr(i + 2, 1) == "^" ? 3 : 2);
      const std::string_view name = pattern.substr(name_begin, close - name_begin);
      const std::string_view known = short_name(name);
      result.append(pattern.substr(i + 1, name_begin - i - 1)).append(known.empty() ? name : known).append("}");
      i = close;
    }
  }
  return result;
}

}  // namespace stft::tokenizer
