// Private to lib/checkpoint: an adapter merged into its base.
#pragma once

#include "checkpoint/export_model.h"
#include "checkpoint/stored_model.h"

namespace stft::checkpoint {

// Writes options.out: the base's directory with the adapter of `stored` merged into its tensors, one tensor in memory
// at a time, and the modules of `stored`. UserError when `stored` is no adapter, adapts what the base has not, or
// changes nothing.
void export_merged(const StoredModel& stored, const ExportOptions& options);

}  // namespace stft::checkpoint
