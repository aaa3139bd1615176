// The block `loss:`.
#include "recipe/availability.h"
#include "recipe/sections.h"

namespace stft::recipe {

namespace {

std::optional<loss::MatryoshkaConfig> read_matryoshka(Reader& block) {
  Reader reader = block.map("matryoshka");
  if (reader.is_absent()) {
    return std::nullopt;
  }
  loss::MatryoshkaConfig matryoshka;
  reader.require("dims");
  matryoshka.dims = reader.integers("dims", kCount).value_or(matryoshka.dims);
  const std::vector<double> ones(matryoshka.dims.size(), 1.0);
  matryoshka.weights = reader.numbers("weights", kFromZero).value_or(ones);
  if (matryoshka.weights.size() != matryoshka.dims.size()) {
    reader.diagnostics().add(reader.key_path("weights"), "holds " + std::to_string(matryoshka.weights.size()) +
                                                             " numbers for " + std::to_string(matryoshka.dims.size()) +
                                                             " dims");
  }
  reader.finish();
  return matryoshka;
}

void read_ranking_options(Reader& reader, loss::LossConfig& config) {
  config.directions = reader.choice_list("directions", kDirections).value_or(config.directions);
  config.partition_mode = reader.choice("partition_mode", kPartitionModes).value_or(config.partition_mode);
  config.hardness_mode = reader.choice("hardness_mode", kHardnessModes);
  config.hardness_strength = reader.number("hardness_strength", kFromZero).value_or(config.hardness_strength);
  config.gather_across_devices = reader.boolean("gather_across_devices").value_or(config.gather_across_devices);
  config.mask_duplicates = reader.boolean("mask_duplicates").value_or(config.mask_duplicates);
  config.guide = reader.text("guide");
  config.teacher = reader.text("teacher");
}

// They would change nothing, and who sets one expects something of it.
void refuse_ranking_options(Reader& reader, loss::LossType type) {
  const std::string name = name_of(kLossTypes, type);
  for (const std::string_view key : {"directions", "partition_mode", "hardness_mode", "hardness_strength",
                                     "gather_across_devices", "mask_duplicates", "guide", "teacher"}) {
    if (reader.child(key) == nullptr) {
      continue;
    }
    const std::string reason =
        key == "gather_across_devices" ? ", which always takes the whole global micro-batch" : "";
    reader.diagnostics().add(reader.key_path(key), "not an option of " + name + reason + "; its options are " +
                                                       "scale, similarity_fct, matryoshka");
  }
}

}  // namespace

loss::LossConfig read_loss(Reader& root) {
  Reader reader = root.map("loss");
  loss::LossConfig config;
  const std::optional<std::string> type = reader.text("type");
  if (!type.has_value() && reader.child("type") != nullptr) {
    return config;  // its problem is told already
  }
  if (const std::string refusal = type.has_value() ? refuse_loss(*type) : std::string(); !refusal.empty()) {
    // The options belong to a loss that is not there, so they are neither read nor called unknown.
    reader.diagnostics().add("loss.type", refusal);
    return config;
  }
  config.type = reader.choice("type", kLossTypes).value_or(config.type);
  config.scale = reader.number("scale", kAboveZero).value_or(config.scale);
  config.similarity_fct = reader.choice("similarity_fct", kLossSimilarities).value_or(config.similarity_fct);
  config.matryoshka = read_matryoshka(reader);
  if (config.type == loss::LossType::kMultipleNegativesRanking) {
    read_ranking_options(reader, config);
  } else {
    refuse_ranking_options(reader, config.type);
  }
  reader.finish();
  return config;
}

}  // namespace stft::recipe
