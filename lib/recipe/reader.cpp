#include "recipe/reader.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "recipe/nearest.h"
#include "recipe/scalars.h"

namespace stft::recipe {

namespace {

// Whether the value counts as not given: null, or a plain scalar that an environment variable turned into one.
bool is_null(const YamlNode& node) {
  return node.kind == YamlKind::kNull || (node.kind == YamlKind::kScalar && !node.quoted && !node.text.empty() &&
                                          scalar_kind(node.text) == ScalarKind::kNull);
}

}  // namespace

Reader::Reader(const YamlNode* node, std::string path, Diagnostics& diagnostics)
    : node_(node), path_(std::move(path)), diagnostics_(diagnostics) {
  if (node_ != nullptr && node_->kind != YamlKind::kMapping) {
    diagnostics_.add_at(node_->source, path_, "expected a mapping (key: value), found " + describe_found(*node_));
    node_ = nullptr;
  }
}

const YamlNode* Reader::child(std::string_view key) {
  const std::string path = key_path(key);
  diagnostics_.record_known(path);
  asked_.emplace_back(key);
  if (node_ == nullptr) {
    return nullptr;
  }
  for (std::size_t i = 0; i < node_->keys.size(); ++i) {
    if (node_->keys[i].text == key) {
      diagnostics_.record_given(path, node_->keys[i].source);
      return is_null(node_->items[i]) ? nullptr : &node_->items[i];
    }
  }
  return nullptr;
}

std::optional<bool> Reader::boolean(std::string_view key) {
  const YamlNode* node = child(key);
  return node == nullptr ? std::nullopt : read_boolean(*node, key_path(key), diagnostics_);
}

std::optional<int64_t> Reader::integer(std::string_view key, IntegerRange range) {
  const YamlNode* node = child(key);
  return node == nullptr ? std::nullopt : read_integer(*node, key_path(key), range, diagnostics_);
}

std::optional<double> Reader::number(std::string_view key, NumberRange range) {
  const YamlNode* node = child(key);
  return node == nullptr ? std::nullopt : read_number(*node, key_path(key), range, diagnostics_);
}

std::optional<std::string> Reader::text(std::string_view key) {
  const YamlNode* node = child(key);
  return node == nullptr ? std::nullopt : read_text(*node, key_path(key), diagnostics_);
}

std::vector<Reader::Element> Reader::elements(const YamlNode& node, std::string_view key) const {
  std::vector<Element> found;
  if (node.kind != YamlKind::kList) {
    found.push_back({&node, key_path(key)});
    return found;
  }
  for (std::size_t i = 0; i < node.items.size(); ++i) {
    found.push_back({&node.items[i], join_key(key_path(key), std::to_string(i))});
  }
  return found;
}

std::optional<std::vector<std::string>> Reader::texts(std::string_view key) {
  const YamlNode* node = child(key);
  if (node == nullptr) {
    return std::nullopt;
  }
  if (node->kind == YamlKind::kMapping) {
    diagnostics_.add_at(node->source, key_path(key), "expected a string or a list of strings, found a mapping");
    return std::nullopt;
  }
  std::vector<std::string> values;
  for (const Element& element : elements(*node, key)) {
    if (const std::optional<std::string> value = read_text(*element.node, element.path, diagnostics_)) {
      values.push_back(*value);
    }
  }
  return values;
}

std::optional<std::vector<int64_t>> Reader::integers(std::string_view key, IntegerRange range) {
  const YamlNode* node = child(key);
  if (node == nullptr) {
    return std::nullopt;
  }
  std::vector<int64_t> values;
  for (const Element& element : elements(*node, key)) {
    if (const std::optional<int64_t> value = read_integer(*element.node, element.path, range, diagnostics_)) {
      values.push_back(*value);
    }
  }
  return values;
}

std::optional<std::vector<double>> Reader::numbers(std::string_view key, NumberRange range) {
  const YamlNode* node = child(key);
  if (node == nullptr) {
    return std::nullopt;
  }
  std::vector<double> values;
  for (const Element& element : elements(*node, key)) {
    if (const std::optional<double> value = read_number(*element.node, element.path, range, diagnostics_)) {
      values.push_back(*value);
    }
  }
  return values;
}

std::optional<std::map<std::string, std::string>> Reader::text_map(std::string_view key) {
  if (child(key) == nullptr) {
    return std::nullopt;
  }
  const Reader inner = map(key);
  std::map<std::string, std::string> values;
  for (std::size_t i = 0; inner.node_ != nullptr && i < inner.node_->keys.size(); ++i) {
    const std::string& name = inner.node_->keys[i].text;
    if (const std::optional<std::string> value = read_text(inner.node_->items[i], inner.key_path(name), diagnostics_)) {
      values.emplace(name, *value);
    }
  }
  return values;
}

std::optional<std::map<std::string, int64_t>> Reader::integer_map(std::string_view key, IntegerRange range) {
  if (child(key) == nullptr) {
    return std::nullopt;
  }
  const Reader inner = map(key);
  std::map<std::string, int64_t> values;
  for (std::size_t i = 0; inner.node_ != nullptr && i < inner.node_->keys.size(); ++i) {
    const std::string& name = inner.node_->keys[i].text;
    if (const std::optional<int64_t> value =
            read_integer(inner.node_->items[i], inner.key_path(name), range, diagnostics_)) {
      values.emplace(name, *value);
    }
  }
  return values;
}

std::optional<std::vector<std::pair<std::string, double>>> Reader::number_map(std::string_view key, NumberRange range) {
  if (child(key) == nullptr) {
    return std::nullopt;
  }
  const Reader inner = map(key);
  std::vector<std::pair<std::string, double>> values;
  for (std::size_t i = 0; inner.node_ != nullptr && i < inner.node_->keys.size(); ++i) {
    const std::string& name = inner.node_->keys[i].text;
    if (const std::optional<double> value =
            read_number(inner.node_->items[i], inner.key_path(name), range, diagnostics_)) {
      values.emplace_back(name, *value);
    }
  }
  return values;
}

Reader Reader::map(std::string_view key) {
  return Reader(child(key), key_path(key), diagnostics_);
}

void Reader::require(std::string_view key) {
  if (child(key) == nullptr) {
    diagnostics_.add(key_path(key), "required, but missing");
  }
}

void Reader::finish() {
  if (node_ == nullptr) {
    return;
  }
  const std::unordered_set<std::string> known(asked_.begin(), asked_.end());
  for (const YamlKey& key : node_->keys) {
    if (known.count(key.text) == 0) {
      diagnostics_.add_unknown(key.source, key_path(key.text));
    }
  }
}

void Reader::refuse_choice(const YamlNode& node, const std::string& path, const std::vector<std::string>& names) {
  if (node.kind == YamlKind::kList || node.kind == YamlKind::kMapping) {
    diagnostics_.add_at(node.source, path, "expected one of " + join_names(names) + ", found " + describe_found(node));
    return;
  }
  std::string text = describe_found(node) + " is not one of " + join_names(names);
  const std::string suggestion = nearest(node.text, names);
  if (!suggestion.empty() && is_close(node.text, suggestion)) {
    text += "; did you mean " + suggestion + "?";
  }
  diagnostics_.add_at(node.source, path, text);
}

void Reader::refuse_repeats(const YamlNode& node, std::string_view key) {
  std::unordered_set<std::string> seen;
  for (const YamlNode& item : node.items) {
    if (item.kind == YamlKind::kScalar && !seen.insert(item.text).second) {
      diagnostics_.add_at(item.source, key_path(key), "lists \"" + item.text + "\" twice");
    }
  }
}

}  // namespace stft::recipe
