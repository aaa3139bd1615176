#include "recipe/compare.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "recipe/yaml_document.h"

namespace stft::recipe {

namespace {

constexpr const char* kNotSet = "(not set)";

using FlatKeys = std::vector<std::pair<std::string, std::string>>;

void flatten(const YamlNode& node, const std::string& path, FlatKeys& flat) {
  const auto child = [&](const std::string& name) { return path.empty() ? name : path + "." + name; };
  switch (node.kind) {
    case YamlKind::kNull:
      flat.emplace_back(path, "null");
      return;
    case YamlKind::kScalar:
      flat.emplace_back(path, node.text);
      return;
    case YamlKind::kList:
    case YamlKind::kMapping:
      if (node.items.empty()) {
        flat.emplace_back(path, node.kind == YamlKind::kList ? "[]" : "{}");
      }
      for (std::size_t i = 0; i < node.items.size(); ++i) {
        flatten(node.items[i], child(node.kind == YamlKind::kList ? std::to_string(i) : node.keys[i].text), flat);
      }
  }
}

FlatKeys flat_keys(const ResolvedText& text) {
  Diagnostics diagnostics(text.name);
  const YamlNode root = parse_yaml(text.yaml, {text.name, 1}, diagnostics);
  if (root.kind != YamlKind::kMapping) {
    throw UserError(text.name + ": expected a recipe, found no mapping");
  }
  FlatKeys flat;
  flatten(root, "", flat);
  return flat;
}

bool is_fixed(const std::string& key) {
  static constexpr std::array<std::string_view, 11> kFixed = {"run.seed",
                                                              "model.",
                                                              "adapter",
                                                              "quantization",
                                                              "loss.",
                                                              "data.train.",
                                                              "train.shuffle",
                                                              "train.optim",
                                                              "train.batch_sampler",
                                                              "train.multi_dataset_batch_sampler",
                                                              "train.dataloader_drop_last"};
  return std::any_of(kFixed.begin(), kFixed.end(), [&](std::string_view fixed) {
    const bool is_section = fixed.ends_with('.');
    return key.starts_with(fixed) && (is_section || key.size() == fixed.size() || key[fixed.size()] == '.');
  });
}

}  // namespace

std::vector<Difference> compare_resolved(const ResolvedText& ours, const ResolvedText& theirs) {
  const FlatKeys left = flat_keys(ours);
  const FlatKeys right = flat_keys(theirs);
  const std::map<std::string, std::string> in_left(left.begin(), left.end());
  const std::map<std::string, std::string> in_right(right.begin(), right.end());
  std::vector<Difference> differences;
  for (const auto& [key, value] : left) {
    const auto other = in_right.find(key);
    if (other == in_right.end() || other->second != value) {
      differences.push_back({key, value, other == in_right.end() ? kNotSet : other->second});
    }
  }
  for (const auto& [key, value] : right) {
    if (!in_left.contains(key)) {
      differences.push_back({key, kNotSet, value});
    }
  }
  return differences;
}

std::string flat_text(const ResolvedText& text) {
  std::string lines;
  for (const auto& [key, value] : flat_keys(text)) {
    std::string line = key + ": " + value;
    std::replace(line.begin(), line.end(), '\n', ' ');
    lines += line + "\n";
  }
  return lines;
}

std::vector<Difference> fixed_differences(const std::vector<Difference>& differences) {
  std::vector<Difference> fixed;
  std::copy_if(differences.begin(), differences.end(), std::back_inserter(fixed),
               [](const Difference& difference) { return is_fixed(difference.key); });
  return fixed;
}

}  // namespace stft::recipe
