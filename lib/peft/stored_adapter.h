// An adapter as its files name it: which module has which tensors, and which tensors of the base it brings along.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "peft/adapter_file.h"
#include "peft/lora.h"

namespace stft::peft {

// Shapes of adapter_model.safetensors' tensors, by key.
using TensorShapes = std::map<std::string, std::vector<int64_t>>;

// Keys are empty for what the module has not.
struct StoredModule {
  Target target;
  bool is_embedding = false;  // of a table: A is [r, rows], B is [width, r]
  std::string down, up, up_bias, magnitude;
};

struct StoredAdapter {
  AdapterFileConfig file;
  std::string weights_path;                     // for messages
  std::map<std::string, StoredModule> modules;  // by name
  std::map<std::string, std::string> replaced;  // name of a base's tensor ("pooler.dense.weight") -> its key

  double scale(const StoredModule& module) const { return scale_of(module.target, file.config.use_rslora); }
};

// UserError naming the tensor for names that are none of PEFT's, tensors without elements or of shapes that do not fit
// each other (a part of a tensor, as one rank of several may have saved it), and modules that lack a tensor.
StoredAdapter describe_adapter(AdapterFileConfig file, const TensorShapes& shapes, const std::string& weights_path);

// Adds the adapter's branches to the model, see attach_lora(). `config`: what training sets by itself (dropout, dtype).
// Modules and tensors that the model does not build are left out; `allowed` are the names of those that its files have.
// UserError for others, and for shapes that are not the model's.
Adapter attach_stored(model::SentenceModel& model, const StoredAdapter& stored,
                      const std::vector<std::string>& allowed);

// The name without what the family's models with a head put in front of it ("bert.", "model.").
std::string without_family(const std::string& name, const std::string& family_prefix);

}  // namespace stft::peft
