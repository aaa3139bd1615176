#include "checkpoint/merged_export.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/error.h"
#include "checkpoint/adapter_files.h"
#include "checkpoint/dequantized_weights.h"
#include "checkpoint/dtype.h"
#include "checkpoint/four_bit_choice.h"
#include "checkpoint/model_files.h"
#include "checkpoint/pretrained.h"
#include "io/directory.h"
#include "model/sentence_model.h"
#include "peft/merge.h"

namespace stft::checkpoint {
namespace {

at::Tensor as_float(const WholeTensor& whole, const std::vector<int64_t>& shape) {
  auto values = at::empty(shape, at::kFloat);
  read_as_float({static_cast<const std::byte*>(whole.memory.const_data_ptr()), whole.memory.nbytes()}, whole.dtype,
                values.view({-1}));
  return values;
}

at::ScalarType scalar_type(io::Dtype dtype) {
  return dtype == io::Dtype::kBF16 ? at::kBFloat16 : dtype == io::Dtype::kF16 ? at::kHalf : at::kFloat;
}

// The transformer's tensors under the model's own names, without a tied copy, which would be stale.
class Base {
 public:
  explicit Base(const std::string& directory)
      : stored_(StoredModel::open(directory, FileCheck::kChecksums)), model_(stored_.spec()) {
    if (!stored_.manifest()) {
      weights_ = PretrainedWeights::open(model_);
    }
    file_ = weights_ ? plan_weights(model_, *weights_).front() : stored_.plan().front();
  }

  const PlannedFile& file() const { return file_; }
  const model::SentenceModel& model() const { return model_; }
  // Then its weights are what a run computes with.
  bool has_four_bit() const { return weights_ && weights_->source_of(0)->has_four_bit(); }
  const std::optional<std::string>& input_dtype() const { return stored_.input_dtype(); }

  WholeTensor read(const PlannedTensor& tensor) const {
    return weights_ ? read_whole(*weights_->source_of(0), tensor.key) : stored_.tensors()(file_, tensor);
  }

 private:
  StoredModel stored_;
  model::SentenceModel model_;
  std::optional<PretrainedWeights> weights_;  // of a directory without a manifest
  PlannedFile file_;
};

// The tensors of a base with an adapter merged into them.
class Merger {
 public:
  Merger(const Base& base, const AdapterFiles& adapter, const ExportOptions& options)
      : base_(base),
        adapter_(adapter),
        precision_(options.precision),
        dequantized_base_(options.dequantized_base),
        prefix_(base.model().encoder().weight_prefix()) {
    std::set<std::string> keys;
    for (const PlannedTensor& tensor : base.file().tensors) {
      keys.insert(tensor.key);
    }
    for (const auto& [name, module] : adapter.description.modules) {
      weights_[find_key(keys, name + ".weight")] = &module;
      if (!module.up_bias.empty()) {
        biases_[find_key(keys, name + ".bias")] = &module;
      }
    }
    for (const auto& [name, key] : adapter.description.replaced) {
      replaced_[find_key(keys, name)] = key;
    }
    for (const model::Projection& projection : base.model().projections()) {
      if (dequantized_base_ && !base.has_four_bit() && can_be_four_bit(projection)) {
        const std::string key = find_key(keys, projection.name + ".weight");
        if (!replaced_.contains(key)) {
          quantized_.insert(key);
        }
      }
    }
  }

  WholeTensor tensor(const PlannedTensor& planned) {
    WholeTensor whole = base_.read(planned);
    const auto weight = weights_.find(planned.key);
    const auto bias = biases_.find(planned.key);
    const auto replacement = replaced_.find(planned.key);
    const bool is_quantized = quantized_.contains(planned.key);
    if (weight == weights_.end() && bias == biases_.end() && replacement == replaced_.end() && !is_quantized) {
      return whole;
    }
    if (!is_weight_dtype(whole.dtype)) {
      throw UserError(fmt::format("'{}' of the base model is {}: an adapter cannot be merged into it", planned.key,
                                  io::dtype_name(whole.dtype)));
    }
    at::Tensor original = as_float(whole, planned.shape);
    if (is_quantized) {
      original = through_four_bit(original, *dequantized_base_, whole.dtype, planned.key);
    }
    at::Tensor merged = original;
    if (replacement != replaced_.end()) {
      merged = read(replacement->second).to(at::kFloat);
      check_shape(merged, planned, replacement->second);
    }
    if (weight != weights_.end()) {
      merged = merge_weight(merged, *weight->second, planned);
    }
    if (bias != biases_.end()) {
      peft::ModuleTensors tensors;
      tensors.up_bias = read(bias->second->up_bias);
      tensors.scale = adapter_.description.scale(*bias->second);
      check_shape(tensors.up_bias, planned, bias->second->up_bias);
      merged = peft::merged_bias(merged, tensors);
    }
    const at::ScalarType written = scalar_type(written_dtype(planned, precision_));
    has_changed_ = has_changed_ || !at::equal(merged.to(written), original.to(written));
    return {io::Dtype::kF32, merged.contiguous()};
  }

  // Whether a tensor differs from the base's in the type that it is written in.
  bool has_changed() const { return has_changed_; }

 private:
  // The base's key of a tensor that the adapter names.
  std::string find_key(const std::set<std::string>& keys, const std::string& name) const {
    for (const std::string& key : {name, prefix_ + name, peft::without_family(name, prefix_)}) {
      if (keys.contains(key)) {
        return key;
      }
    }
    throw UserError(fmt::format("{}: adapts '{}', which the base model has not", adapter_.tensors->path(), name));
  }

  at::Tensor read(const std::string& key) const {
    const auto found = adapter_.tensors->find(key);
    auto values = at::empty(found->shape, at::kFloat).view({-1});
    read_rows_into(*adapter_.tensors, key, all_rows(found->shape), values);
    return values.view(found->shape).to(scalar_type(found->dtype));
  }

  void check_shape(const at::Tensor& values, const PlannedTensor& planned, const std::string& key) const {
    if (values.sizes() != at::IntArrayRef(planned.shape)) {
      throw UserError(fmt::format("{}: '{}' does not have the shape of the base's '{}'", adapter_.tensors->path(), key,
                                  planned.key));
    }
  }

  at::Tensor merge_weight(const at::Tensor& weight, const peft::StoredModule& module,
                          const PlannedTensor& planned) const {
    peft::ModuleTensors tensors;
    tensors.down = read(module.down);
    tensors.up = read(module.up);
    tensors.magnitude = module.magnitude.empty() ? at::Tensor() : read(module.magnitude);
    tensors.scale = adapter_.description.scale(module);
    tensors.is_embedding = module.is_embedding;
    const int64_t rows = (module.is_embedding ? tensors.down.size(1) : tensors.up.size(0));
    const int64_t columns = (module.is_embedding ? tensors.up.size(0) : tensors.down.size(1));
    if (planned.shape != std::vector<int64_t>{rows, columns}) {
      throw UserError(fmt::format("{}: the adapter of '{}' is for [{}, {}], the base model has another shape",
                                  adapter_.tensors->path(), module.target.name, rows, columns));
    }
    return peft::merged_weight(weight, tensors);
  }

  const Base& base_;
  const AdapterFiles& adapter_;
  WeightPrecision precision_;
  std::optional<quant::QuantizationConfig> dequantized_base_;
  std::string prefix_;
  std::map<std::string, const peft::StoredModule*> weights_, biases_;
  std::map<std::string, std::string> replaced_;
  std::set<std::string> quantized_;  // keys of the weights that the run computed with in 4 bits
  bool has_changed_ = false;
};

}  // namespace

void export_merged(const StoredModel& stored, const ExportOptions& options) {
  if (!stored.is_adapter()) {
    throw UserError("--merge-lora: '" + stored.directory() + "' has no adapter, so there is nothing to merge");
  }
  const model::ModelSpec& spec = stored.spec();
  const Base base(spec.base);
  const AdapterFiles adapter = open_adapter(stored.directory());
  Merger merger(base, adapter, options);
  WeightPlan plan = {base.file()};
  for (const PlannedFile& file : stored.plan()) {
    if (file.module != 0) {
      plan.push_back(file);
    }
  }
  const auto of_modules = stored.tensors();
  const auto world = dist::ProcessGroup::single();
  const std::string temporary = options.out + ".tmp";
  Attempt attempt(*world, "writing '" + options.out + "'", temporary);
  attempt.run([&] {
    begin_directory(spec, options.precision, base.input_dtype(), temporary);
    replace_tokenizer(stored.directory(), temporary);
  });
  const auto tensors = [&](const PlannedFile& file, const PlannedTensor& tensor) {
    return file.module == 0 ? merger.tensor(tensor) : of_modules(file, tensor);
  };
  attempt.run([&] { write_weights(plan, options.precision, tensors, temporary, attempt); });
  attempt.run([&] {
    if (!merger.has_changed() && plan.size() == 1) {  // a Dense is trained along with an adapter
      throw UserError(
          "--merge-lora: the adapter of '" + stored.directory() +
          "' changes nothing (every B is zero, or what it adds is lost in rounding), so the result would be "
          "the base model");
    }
    io::make_durable(temporary);
    io::replace_directory(temporary, options.out);
  });
  attempt.agree();
}

}  // namespace stft::checkpoint
