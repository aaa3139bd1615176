// The blocks `run:` and `model:`.
#include <algorithm>

#include "recipe/sections.h"

namespace stft::recipe {

namespace {

std::optional<model::DenseConfig> read_dense(Reader& block) {
  Reader reader = block.map("dense");
  if (reader.is_absent()) {
    return std::nullopt;
  }
  model::DenseConfig dense;
  reader.require("out_features");
  dense.out_features = reader.integer("out_features", {1, 65536}).value_or(dense.out_features);
  dense.activation_function = reader.choice("activation_function", kActivations).value_or(dense.activation_function);
  dense.bias = reader.boolean("bias").value_or(dense.bias);
  reader.finish();
  return dense;
}

// "none" is what the peer calls no reporter at all.
std::vector<Reporter> read_reporters(Reader& reader) {
  const YamlNode* node = reader.child("report_to");
  if (node != nullptr && node->kind == YamlKind::kScalar && node->text == "none") {
    return {};
  }
  return reader.choice_list("report_to", kReporters).value_or(RunConfig{}.report_to);
}

}  // namespace

RunConfig read_run(Reader& root) {
  Reader reader = root.map("run");
  RunConfig run;
  reader.require("output_dir");
  run.output_dir = reader.text("output_dir").value_or("");
  run.seed = static_cast<uint64_t>(
      reader.integer("seed", {0, std::numeric_limits<int64_t>::max()}).value_or(static_cast<int64_t>(run.seed)));
  run.report_to = read_reporters(reader);
  run.report_jsonl = std::find(run.report_to.begin(), run.report_to.end(), Reporter::kJsonl) != run.report_to.end();
  run.debug_collectives = reader.boolean("debug_collectives").value_or(run.debug_collectives);
  reader.finish();
  return run;
}

model::ModelConfig read_model(Reader& root) {
  Reader reader = root.map("model");
  model::ModelConfig model;
  reader.require("name_or_path");
  model.name_or_path = reader.text("name_or_path").value_or("");
  model.revision = reader.text("revision").value_or(model.revision);
  model.max_seq_length = reader.integer("max_seq_length", kCount);
  model.pooling = reader.choice_list("pooling", kPoolingModes).value_or(model.pooling);
  model.include_prompt = reader.boolean("include_prompt");
  model.normalize = reader.boolean("normalize");
  model.dense = read_dense(reader);
  model.dropout = reader.number("dropout", kBelowOne);
  model.prompts = reader.text_map("prompts").value_or(model.prompts);
  model.truncate_dim = reader.integer("truncate_dim", kCount);
  model.similarity_fn_name = reader.choice("similarity_fn_name", kSimilarities);
  model.attention = reader.choice("attention", kAttentionKinds).value_or(model.attention);
  model.causal = reader.boolean("causal");
  reader.finish();
  return model;
}

}  // namespace stft::recipe
