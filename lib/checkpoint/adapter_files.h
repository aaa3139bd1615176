// The files of an adapter: PEFT's, sentence-transformers' directory of an adapter alone, or an adapter-only checkpoint
// of stft, FULL or SHARDED.
//
// [Note: base_model/] With checkpoint.adapter_only: false a checkpoint holds the adapter's base too, whose original may
// change or go. FULL: base_model/ is the base as a Hugging Face directory, in its own names and types. It lies below
// the adapter's directory and not in it: a config.json beside adapter_config.json would make a whole model of it for
// readers that look for that file first, and transformers takes the base from base_model_name_or_path in any case. So
// in Python: PeftModel.from_pretrained(AutoModel.from_pretrained(DIR + "/base_model"), DIR). SHARDED: the tensors lie
// with the adapter's in pytorch_model_fsdp_0, under the names of the state dict of the model that PEFT wrapped, and
// base_model/ has the config.json. final/ is the adapter alone.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/pretrained.h"
#include "checkpoint/tensor_source.h"
#include "model/sentence_model.h"
#include "peft/lora.h"
#include "peft/stored_adapter.h"
#include "shard/shard_engine.h"

namespace stft::checkpoint {

struct AdapterFiles {
  peft::StoredAdapter description;
  std::unique_ptr<TensorSource> tensors;  // by the keys of PEFT's file
};

// UserError for what read_adapter_config and describe_adapter refuse, for weights that are missing or of another type
// than F32, F16, BF16, F64, and for an unfinished checkpoint.
AdapterFiles open_adapter(const std::string& directory);

// The tensors of the base in `directory` when that is the base_model/ of a SHARDED checkpoint, by the base's own keys;
// null: it is not.
std::unique_ptr<TensorSource> open_kept_base(const std::string& directory);

// The names of every tensor that the transformer's files hold: attach_stored's `allowed`.
std::vector<std::string> tensors_of_files(const PretrainedWeights& weights);

// Rows of a model with an adapter. `base` gives the tensors that come from the model. The adapter's, and those of the
// base that it brings along, come from `files`, or, without files, are as PEFT initialises them. Borrows model, adapter
// and files.
struct AdapterRows {
  const model::SentenceModel& model;
  const peft::Adapter& adapter;
  const AdapterFiles* files = nullptr;
  uint64_t seed = 0;
};
shard::RowSource with_adapter(shard::RowSource base, const AdapterRows& rows);

// What is trained from `trained`, the rest from `base`.
shard::RowSource with_frozen(shard::RowSource trained, shard::RowSource base);

// A frozen parameter is kept as its file has it, in half the memory when that is F16 or BF16.
void keep_stored_dtypes(model::SentenceModel& model, const PretrainedWeights& weights);

}  // namespace stft::checkpoint
