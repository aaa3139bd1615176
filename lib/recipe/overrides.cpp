#include "recipe/overrides.h"

#include <charconv>
#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

namespace stft::recipe {

namespace {

std::vector<std::string> split_path(const std::string& path) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (std::size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', begin)) {
    parts.push_back(path.substr(begin, dot - begin));
    begin = dot + 1;
  }
  parts.push_back(path.substr(begin));
  return parts;
}

std::optional<std::size_t> parse_index(const std::string& text) {
  std::size_t index = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
  if (error != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return index;
}

// One step of a key path into `node`, made where it is missing. nullptr: `problem` tells why there is no such place.
struct Step {
  YamlNode* node = nullptr;
  std::string problem;
};

Step step_into_list(YamlNode& node, const std::string& part, const Source& source) {
  const std::optional<std::size_t> index = parse_index(part);
  if (!index.has_value() || *index > node.items.size()) {
    return {nullptr, "a list of " + std::to_string(node.items.size()) + ": expected an index from 0 to " +
                         std::to_string(node.items.size()) + ", found '" + part + "'"};
  }
  if (*index == node.items.size()) {
    node.items.push_back(YamlNode{});
    node.items.back().source = source;
  }
  return {&node.items[*index], ""};
}

Step step_into(YamlNode& node, const std::string& parent, const std::string& part, const Source& source) {
  if (node.kind == YamlKind::kList) {
    return step_into_list(node, part, source);
  }
  if (node.kind == YamlKind::kScalar) {
    return {nullptr, "is a single value and has no '" + part + "'"};
  }
  if (node.kind == YamlKind::kMapping && part == "0" && (parent == "data.train" || parent == "data.eval")) {
    return {&node, ""};
  }
  node.kind = YamlKind::kMapping;
  if (YamlNode* child = node.find(part); child != nullptr) {
    return {child, ""};
  }
  node.keys.push_back({part, source});
  node.items.push_back(YamlNode{});
  node.items.back().source = source;
  return {&node.items.back(), ""};
}

// Marks the key of the last step as coming from the argument, so that messages name it.
void mark_key(YamlNode& parent, const std::string& part, const Source& source) {
  for (YamlKey& key : parent.keys) {
    if (key.text == part) {
      key.source = source;
    }
  }
}

bool is_variable_name(const std::string& name) {
  const bool has_only_letters =
      name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos;
  return !name.empty() && has_only_letters && (name[0] < '0' || name[0] > '9');
}

// What one ${...} stands for, or the problem with it.
struct Expansion {
  std::string text;
  std::string problem;
};

Expansion expand_reference(const std::string& reference) {
  const std::size_t colon = reference.find(":-");
  const std::string name = reference.substr(0, colon);
  if (!is_variable_name(name)) {
    return {"", "'${" + reference + "}' does not name an environment variable; a literal ${ is written $${"};
  }
  const char* value = std::getenv(name.c_str());
  if (colon != std::string::npos) {
    return {value != nullptr && *value != '\0' ? value : reference.substr(colon + 2), ""};
  }
  if (value == nullptr) {
    return {"", "environment variable " + name + " is not set and '${" + name + "}' gives no default (${" + name +
                    ":-default})"};
  }
  return {value, ""};
}

void expand_scalar(YamlNode& node, const std::string& key_path, Diagnostics& diagnostics) {
  std::string expanded;
  std::size_t done = 0;
  for (std::size_t open = node.text.find("${"); open != std::string::npos; open = node.text.find("${", done)) {
    if (open > done && node.text[open - 1] == '$') {
      expanded.append(node.text, done, open - 1 - done).append("${");
      done = open + 2;
      continue;
    }
    const std::size_t close = node.text.find('}', open);
    if (close == std::string::npos) {
      diagnostics.add_at(node.source, key_path, "'${' without '}'; a literal ${ is written $${");
      return;
    }
    const Expansion expansion = expand_reference(node.text.substr(open + 2, close - open - 2));
    if (!expansion.problem.empty()) {
      diagnostics.add_at(node.source, key_path, expansion.problem);
      return;
    }
    expanded.append(node.text, done, open - done).append(expansion.text);
    done = close + 1;
    node.expanded = true;
  }
  node.text = expanded.append(node.text, done, std::string::npos);
}

void expand_node(YamlNode& node, const std::string& key_path, Diagnostics& diagnostics) {
  if (node.kind == YamlKind::kScalar) {
    expand_scalar(node, key_path, diagnostics);
  }
  for (std::size_t i = 0; i < node.items.size(); ++i) {
    const std::string name = node.kind == YamlKind::kMapping ? node.keys[i].text : std::to_string(i);
    expand_node(node.items[i], join_key(key_path, name), diagnostics);
  }
}

}  // namespace

void apply_override(YamlNode& root, const std::string& argument, Diagnostics& diagnostics) {
  const Source source{"--set " + argument, 0};
  const std::size_t equals = argument.find('=');
  if (equals == std::string::npos || equals == 0) {
    diagnostics.add_at(source, "", "expected KEY=VALUE, such as train.learning_rate=1e-5");
    return;
  }
  const std::vector<std::string> parts = split_path(argument.substr(0, equals));
  if (parts.size() > kMaxYamlDepth) {
    diagnostics.add_at(source, "", "nested more than " + std::to_string(kMaxYamlDepth) + " levels deep");
    return;
  }
  YamlNode value = parse_yaml(argument.substr(equals + 1), source, diagnostics);
  YamlNode* node = &root;
  std::string path;
  for (const std::string& part : parts) {
    const Step step = part.empty() ? Step{nullptr, "empty key"} : step_into(*node, path, part, source);
    if (step.node == nullptr) {
      diagnostics.add_at(source, path, step.problem);
      return;
    }
    if (&part == &parts.back()) {
      mark_key(*node, part, source);
    }
    path = join_key(path, part);
    node = step.node;
  }
  value.source = source;
  *node = std::move(value);
}

void expand_environment(YamlNode& root, Diagnostics& diagnostics) {
  expand_node(root, "", diagnostics);
}

std::string escape_environment(const std::string& text) {
  std::string escaped;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '$' && i + 1 < text.size() && text[i + 1] == '{') {
      escaped.push_back('$');
    }
    escaped.push_back(text[i]);
  }
  return escaped;
}

}  // namespace stft::recipe
