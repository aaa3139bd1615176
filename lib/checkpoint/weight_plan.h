// Which tensor of a model goes into which file, under which names and types: the map between a model's parameters, the
// safetensors files of its directory and the keys of a SHARDED checkpoint.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/pretrained.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "model/sentence_model.h"
#include "peft/lora.h"

namespace stft::checkpoint {

struct PlannedTensor {
  std::string key;                    // in the safetensors file
  std::string sharded_key;            // in a SHARDED checkpoint
  io::Dtype dtype = io::Dtype::kF32;  // of the input model, and so of exports that ask for no other
  std::vector<int64_t> shape;
  bool is_parameter = false;  // else carried unchanged from the input
  int64_t parameter = -1;     // its index in the model's table; only in a plan made by plan_weights
};

struct PlannedFile {
  int64_t module = 0;
  std::string path;  // below the model's directory: "model.safetensors", "2_Dense/model.safetensors"
  std::map<std::string, std::string> metadata;
  std::vector<PlannedTensor> tensors;
  bool is_base = false;  // of an adapter, whose own file is another one
};

using WeightPlan = std::vector<PlannedFile>;

// What of a model with an adapter.
enum class AdapterScope {
  kAdapterOnly,  // what is trained
  kWithBase      // and the base, as its files have it: base_model/model.safetensors
};

// With an adapter the transformer's file is PEFT's adapter_model.safetensors, with what is trained and nothing else.
WeightPlan plan_weights(const model::SentenceModel& model, const PretrainedWeights& weights,
                        const peft::Adapter* adapter = nullptr, AdapterScope scope = AdapterScope::kAdapterOnly);

// As the manifest keeps it. UserError naming `origin` for anything malformed.
io::Json to_json(const WeightPlan& plan);
WeightPlan weight_plan_from_json(const io::Json& json, const std::string& origin);

// What floating-point tensors are written as.
enum class WeightPrecision {
  kAsInput,  // each in the input's type
  kMaster,   // parameters as fp32, carried tensors in the input's type: what training continues from
  kFloat32,
  kBFloat16,
  kFloat16
};

io::Dtype written_dtype(const PlannedTensor& tensor, WeightPrecision precision);

}  // namespace stft::checkpoint
