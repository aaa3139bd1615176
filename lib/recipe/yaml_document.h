// A YAML (so JSON too) document as a small tree of our own, in which every value knows where it was written. The tree
// is built from parser events, so that duplicate keys, deep nesting and alias bombs are met before they cost anything.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/diagnostics.h"

namespace stft::recipe {

inline constexpr std::size_t kMaxYamlDepth = 64;         // mappings and lists inside each other
inline constexpr std::size_t kMaxYamlValues = 50'000;    // values after aliases were replaced by what they name
inline constexpr std::size_t kMaxYamlBytes = 4u << 20u;  // of a recipe file

struct YamlKey {
  std::string text;
  Source source;
};

enum class YamlKind { kNull, kScalar, kList, kMapping };

// One value. A mapping holds keys[i] -> items[i] in file order, without duplicates.
struct YamlNode {
  YamlKind kind = YamlKind::kNull;
  bool quoted = false;    // scalar: a string whatever it looks like
  bool expanded = false;  // scalar: holds text of an environment variable
  std::string text;       // scalar
  std::vector<YamlKey> keys;
  std::vector<YamlNode> items;
  Source source;

  // The value of `key` in a mapping, nullptr when there is none.
  const YamlNode* find(std::string_view key) const;
  YamlNode* find(std::string_view key);
};

// Parses one document. `name` is what messages call it: a path with a line above 0 when lines are to be named, or
// the --set argument with line 0. Aliases are replaced by copies. Duplicate keys are added to `diagnostics` (the first
// one counts). Throws UserError when the text is not valid YAML, holds more than one document, or passes a limit above.
YamlNode parse_yaml(const std::string& text, const Source& name, Diagnostics& diagnostics);

// Reads and parses a recipe file. Throws UserError also when the file cannot be read or is larger than kMaxYamlBytes.
YamlNode read_yaml_file(const std::string& path, Diagnostics& diagnostics);

}  // namespace stft::recipe
