// Typed access to one mapping of a recipe. Every key that is asked for becomes known to the schema; every value of the
// wrong type or range becomes a problem with its place, and reads as unset so that reading goes on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "recipe/choices.h"
#include "recipe/diagnostics.h"
#include "recipe/yaml_document.h"

namespace stft::recipe {

struct IntegerRange {
  int64_t low = std::numeric_limits<int64_t>::min();
  int64_t high = std::numeric_limits<int64_t>::max();
};

// All finite numbers from low to high; an end that is open does not belong to it.
struct NumberRange {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool open_low = false;
  bool open_high = false;
};

inline constexpr IntegerRange kCount{1, std::numeric_limits<int32_t>::max()};  // rows, ranks, dimensions
inline constexpr NumberRange kFinite{};
inline constexpr NumberRange kAboveZero{0.0, std::numeric_limits<double>::infinity(), true, false};
inline constexpr NumberRange kFromZero{0.0};
inline constexpr NumberRange kBelowOne{0.0, 1.0, false, true};  // [0, 1)

// What a plain (unquoted) scalar is by the core schema of YAML 1.2; words such as yes and off are strings.
enum class ScalarKind { kNull, kBoolean, kInteger, kNumber, kString };
ScalarKind scalar_kind(const std::string& text);

// How messages show a value: "fast" (quoted), 5, a list, a mapping, null.
std::string describe_found(const YamlNode& node);

class Reader {
 public:
  // `node`: the mapping, or nullptr for a block that is absent (every key then reads as unset). Anything else than a
  // mapping is a problem. `path` is its key path, empty for the root.
  Reader(const YamlNode* node, std::string path, Diagnostics& diagnostics);

  // All of these give no value when the key is absent, null, or wrong (a problem then).
  std::optional<bool> boolean(std::string_view key);
  std::optional<int64_t> integer(std::string_view key, IntegerRange range = {});
  std::optional<double> number(std::string_view key, NumberRange range = kFinite);
  std::optional<std::string> text(std::string_view key);
  std::optional<std::vector<std::string>> texts(std::string_view key);  // one string or a list of strings
  std::optional<std::vector<int64_t>> integers(std::string_view key, IntegerRange range = {});
  std::optional<std::vector<double>> numbers(std::string_view key, NumberRange range = kFinite);
  std::optional<std::map<std::string, std::string>> text_map(std::string_view key);
  std::optional<std::map<std::string, int64_t>> integer_map(std::string_view key, IntegerRange range);
  // In the order of the file.
  std::optional<std::vector<std::pair<std::string, double>>> number_map(std::string_view key, NumberRange range);

  template <typename E, std::size_t N>
  std::optional<E> choice(std::string_view key, const Choice<E> (&choices)[N]) {
    const YamlNode* node = child(key);
    return node == nullptr ? std::nullopt : choice_of(*node, key_path(key), choices);
  }
  // One word or a list of words, without repeats.
  template <typename E, std::size_t N>
  std::optional<std::vector<E>> choice_list(std::string_view key, const Choice<E> (&choices)[N]) {
    const YamlNode* node = child(key);
    if (node == nullptr) {
      return std::nullopt;
    }
    std::vector<E> values;
    for (const Element& element : elements(*node, key)) {
      if (const std::optional<E> value = choice_of(*element.node, element.path, choices)) {
        values.push_back(*value);
      }
    }
    refuse_repeats(*node, key);
    return values;
  }

  // The values of a list, or the value itself when it is no list, each with its key path.
  struct Element {
    const YamlNode* node;
    std::string path;
  };
  std::vector<Element> elements(const YamlNode& node, std::string_view key) const;

  // The value itself, nullptr when absent or null.
  const YamlNode* child(std::string_view key);
  Reader map(std::string_view key);
  // Adds a problem when the key is absent or null.
  void require(std::string_view key);

  // Keys not asked for so far are unknown. To be called last; never called: unknown keys pass.
  void finish();

  std::string key_path(std::string_view key) const { return join_key(path_, key); }
  const std::string& path() const { return path_; }
  bool is_absent() const { return node_ == nullptr; }
  const YamlNode* node() const { return node_; }
  Diagnostics& diagnostics() { return diagnostics_; }

 private:
  template <typename E, std::size_t N>
  std::optional<E> choice_of(const YamlNode& node, const std::string& path, const Choice<E> (&choices)[N]) {
    std::vector<std::string> names;
    for (const Choice<E>& choice : choices) {
      names.emplace_back(choice.name);
      if (node.kind == YamlKind::kScalar && node.text == choice.name) {
        return choice.value;
      }
    }
    refuse_choice(node, path, names);
    return std::nullopt;
  }

  void refuse_choice(const YamlNode& node, const std::string& path, const std::vector<std::string>& names);
  void refuse_repeats(const YamlNode& node, std::string_view key);

  const YamlNode* node_;
  std::string path_;
  Diagnostics& diagnostics_;
  std::vector<std::string> asked_;
};

}  // namespace stft::recipe
