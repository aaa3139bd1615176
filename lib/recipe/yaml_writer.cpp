#include "recipe/yaml_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "recipe/overrides.h"
#include "recipe/reader.h"

namespace stft::recipe {

namespace {

// Words that YAML 1.1 readers take for booleans.
bool is_old_boolean(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  constexpr std::array<std::string_view, 6> kWords = {"y", "n", "yes", "no", "on", "off"};
  return std::find(kWords.begin(), kWords.end(), text) != kWords.end();
}

bool is_plain(const std::string& text) {
  constexpr std::string_view kSafe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./@+-";
  const bool starts_safely = !text.empty() && (std::isalnum(static_cast<unsigned char>(text[0])) != 0 ||
                                               text[0] == '/' || text[0] == '_' || text[0] == '.');
  return starts_safely && text.find_first_not_of(kSafe) == std::string::npos &&
         scalar_kind(text) == ScalarKind::kString && !is_old_boolean(text) &&
         // Dates, sexagesimals and other forms that some reader might know begin with a digit.
         std::isdigit(static_cast<unsigned char>(text[0])) == 0 && text.find("...") != 0;
}

}  // namespace

std::string yaml_string(const std::string& text) {
  if (is_plain(text)) {
    return text;
  }
  std::string quoted = "\"";
  for (const char c : escape_environment(text)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted.append({'\\', c});
    } else if (c == '\n') {
      quoted += "\\n";
    } else if (c == '\t') {
      quoted += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      quoted += fmt::format("\\x{:02X}", byte);
    } else {
      quoted.push_back(c);
    }
  }
  return quoted + "\"";
}

std::string yaml_number(double value) {
  std::string text = fmt::format("{}", value);
  const std::size_t exponent = text.find('e');
  if (exponent != std::string::npos && text.find('.') == std::string::npos) {
    text.insert(exponent, ".0");  // without a point YAML 1.1 readers take it for a string
  }
  return text;
}

std::string yaml_list(const std::vector<std::string>& scalars) {
  std::string list = "[";
  for (const std::string& scalar : scalars) {
    list.append(list.size() > 1 ? ", " : "").append(scalar);
  }
  return list + "]";
}

void YamlWriter::indent() {
  const int spaces = 2 * level_ - (starts_item_ ? 2 : 0);
  out_.append(static_cast<std::size_t>(spaces), ' ').append(starts_item_ ? "- " : "");
  starts_item_ = false;
}

void YamlWriter::scalar(std::string_view key, const std::string& value) {
  indent();
  out_.append(key).append(": ").append(value).append("\n");
}

void YamlWriter::begin(std::string_view key) {
  indent();
  out_.append(key).append(":\n");
  ++level_;
}

void YamlWriter::begin_item() {
  starts_item_ = true;
  ++level_;
}

void YamlWriter::end() {
  --level_;
}

}  // namespace stft::recipe
