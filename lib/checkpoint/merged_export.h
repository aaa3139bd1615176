// Private to lib/checkpoint: an adapter merged into its base.
#pragma once

#include "checkpoint/export_model.h"
#include "checkpoint/stored_model.h"

namespace stft::checkpoint {

// A new directory with all of a model but its weights, whose type its config.json tells.
void begin_directory(const model::ModelSpec& spec, WeightPrecision precision,
                     const std::optional<std::string>& input_dtype, const std::string& directory);

// Writes options.out: the base's directory with the adapter of `stored` merged into its tensors, one tensor in memory
// at a time, and the modules of `stored`. UserError when `stored` is no adapter, adapts what the base has not, or
// changes nothing.
void export_merged(const StoredModel& stored, const ExportOptions& options);

}  // namespace stft::checkpoint
