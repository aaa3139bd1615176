// The block `data:`.
#include <algorithm>
#include <filesystem>

#include "recipe/nearest.h"
#include "recipe/scalars.h"
#include "recipe/sections.h"

namespace stft::recipe {

namespace {

const std::vector<std::string>& role_names() {
  static const std::vector<std::string> names = {"anchor", "positive", "negative", "negative_1",
                                                 "text_1", "text_2",   "label",    "score"};
  return names;
}

// negative_7 -> 7; nothing for other names.
std::optional<std::size_t> negative_number(const std::string& role) {
  constexpr std::string_view kPrefix = "negative_";
  const std::string digits = role.rfind(kPrefix, 0) == 0 ? role.substr(kPrefix.size()) : std::string();
  const bool is_number = !digits.empty() && digits.size() <= 3 && digits[0] != '0' &&
                         digits.find_first_not_of("0123456789") == std::string::npos;
  return is_number ? std::optional<std::size_t>(std::stoul(digits)) : std::nullopt;
}

// Where the column of a role is kept; nullptr for the numbered negatives and for unknown roles.
std::string* named_column(data::ColumnMap& columns, const std::string& role) {
  const std::pair<std::string_view, std::string*> roles[] = {
      {"anchor", &columns.anchor}, {"positive", &columns.positive}, {"negative", &columns.negative},
      {"text_1", &columns.text_1}, {"text_2", &columns.text_2},     {"label", &columns.label},
      {"score", &columns.score}};
  for (const auto& [name, column] : roles) {
    if (name == role) {
      return column;
    }
  }
  return nullptr;
}

void refuse_role(Reader& reader, const YamlKey& key) {
  std::string text =
      "unknown role; the roles are anchor, positive, negative, negative_1.., text_1, text_2, label, score";
  const std::string suggestion = nearest(key.text, role_names());
  if (!suggestion.empty() && is_close(key.text, suggestion)) {
    text = "unknown role; did you mean " + suggestion + "?";
  }
  reader.diagnostics().add_at(key.source, reader.key_path(key.text), text);
}

data::ColumnMap read_columns(Reader& set) {
  Reader reader = set.map("columns");
  data::ColumnMap columns;
  std::map<std::size_t, std::string> numbered;
  const std::vector<YamlKey> keys = reader.is_absent() ? std::vector<YamlKey>() : reader.node()->keys;
  for (const YamlKey& key : keys) {
    std::string* column = named_column(columns, key.text);
    const std::optional<std::size_t> number = negative_number(key.text);
    if (column == nullptr && !number.has_value()) {
      refuse_role(reader, key);
      continue;
    }
    const std::optional<std::string> name = reader.text(key.text);
    if (name.has_value() && name->empty()) {
      reader.diagnostics().add(reader.key_path(key.text), "expected a column name, found \"\"");
    } else if (name.has_value()) {
      (column != nullptr ? *column : numbered[*number]) = *name;
    }
  }
  for (const auto& [number, name] : numbered) {
    if (number != columns.numbered_negatives.size() + 1) {
      const std::string missing = "negative_" + std::to_string(columns.numbered_negatives.size() + 1);
      reader.diagnostics().add(reader.key_path("negative_" + std::to_string(number)), "given without " + missing);
      break;
    }
    columns.numbered_negatives.push_back(name);
  }
  return columns;
}

data::DatasetConfig read_dataset(const YamlNode& node, const std::string& path, Diagnostics& diagnostics) {
  Reader reader(&node, path, diagnostics);
  data::DatasetConfig set;
  set.source = node.source.text();
  set.key_path = path;
  reader.require("path");
  set.paths = reader.texts("path").value_or(set.paths);
  const std::string stem = set.paths.empty() ? std::string() : std::filesystem::path(set.paths[0]).stem().string();
  set.name = reader.text("name").value_or(stem);
  set.columns = read_columns(reader);
  set.prompts = reader.text_map("prompts").value_or(set.prompts);
  set.weight = reader.number("weight", kAboveZero).value_or(set.weight);
  set.limit = reader.integer("limit", {1});
  set.streaming = reader.boolean("streaming").value_or(set.streaming);
  set.shuffle_buffer = reader.integer("shuffle_buffer", kCount).value_or(set.shuffle_buffer);
  set.has_own_loss = reader.child("loss") != nullptr;
  reader.finish();
  return set;
}

// One mapping, or a list of them.
std::vector<data::DatasetConfig> read_datasets(Reader& block, std::string_view key) {
  std::vector<data::DatasetConfig> sets;
  const YamlNode* node = block.child(key);
  if (node == nullptr) {
    return sets;
  }
  for (const Reader::Element& element : block.elements(*node, key)) {
    if (node->kind == YamlKind::kList) {
      block.diagnostics().record_given(element.path, element.node->source);
    }
    sets.push_back(read_dataset(*element.node, element.path, block.diagnostics()));
  }
  return sets;
}

}  // namespace

data::DataConfig read_data(Reader& root) {
  Reader reader = root.map("data");
  data::DataConfig data;
  reader.require("train");
  data.train = read_datasets(reader, "train");
  data.eval = read_datasets(reader, "eval");
  const YamlNode* train = reader.child("train");
  if (train != nullptr && train->kind == YamlKind::kList && train->items.empty()) {
    reader.diagnostics().add("data.train", "lists no data set");
  }
  reader.finish();
  return data;
}

}  // namespace stft::recipe
