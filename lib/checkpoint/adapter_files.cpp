#include "checkpoint/adapter_files.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <utility>

#include "base/error.h"
#include "checkpoint/checkpoint_store.h"
#include "checkpoint/dtype.h"
#include "checkpoint/manifest.h"
#include "peft/adapter_init.h"

namespace stft::checkpoint {
namespace {

namespace fs = std::filesystem;

// The tensors of a SHARDED checkpoint under the keys that its manifest gives them.
class RenamedSource final : public TensorSource {
 public:
  RenamedSource(std::unique_ptr<TensorSource> inner, std::map<std::string, std::string> names)
      : inner_(std::move(inner)), names_(std::move(names)) {}

  std::optional<TensorDescription> find(const std::string& key) const override {
    const auto name = names_.find(key);
    return name == names_.end() ? std::nullopt : inner_->find(name->second);
  }

  std::vector<std::string> keys() const override {
    std::vector<std::string> keys;
    for (const auto& [key, name] : names_) {
      keys.push_back(key);
    }
    return keys;
  }

  void read_rows(const std::string& key, int64_t first_row, int64_t rows,
                 std::span<std::byte> destination) const override {
    inner_->read_rows(names_.at(key), first_row, rows, destination);
  }

  std::map<std::string, std::string> metadata() const override { return inner_->metadata(); }
  const std::string& path() const override { return inner_->path(); }

 private:
  std::unique_ptr<TensorSource> inner_;
  std::map<std::string, std::string> names_;
};

// Of a SHARDED checkpoint of an adapter the tensors of its own file, or those of its base; null: it is none.
std::unique_ptr<TensorSource> open_part(const std::string& checkpoint, bool of_base) {
  const std::string sharded = (fs::path(checkpoint) / kShardedModelFolder).string();
  if (!fs::is_directory(sharded)) {
    return nullptr;
  }
  const auto manifest = read_manifest(checkpoint);
  if (!manifest) {
    return nullptr;
  }
  std::map<std::string, std::string> names;
  for (const PlannedFile& file : manifest->weights) {
    for (const PlannedTensor& tensor : file.tensors) {
      if (file.module == 0 && file.is_base == of_base) {
        names[tensor.key] = tensor.sharded_key;
      }
    }
  }
  if (names.empty()) {
    return nullptr;
  }
  return std::make_unique<RenamedSource>(
      open_sharded(std::make_shared<const DcpDirectory>(DcpDirectory::open(sharded)), ""), std::move(names));
}

std::unique_ptr<TensorSource> open_tensors(const std::string& directory) {
  check_is_complete(directory, FileCheck::kSizes);
  if (auto sharded = open_part(directory, false)) {
    return sharded;
  }
  const std::string path = (fs::path(directory) / peft::kAdapterWeightsFile).string();
  if (!fs::exists(path)) {
    throw UserError(fmt::format("'{}' has no {}{}", directory, peft::kAdapterWeightsFile,
                                fs::exists(fs::path(directory) / "adapter_model.bin")
                                    ? "; adapter_model.bin is not available: save it with safe_serialization"
                                    : ""));
  }
  return open_safetensors_file(path);
}

}  // namespace

AdapterFiles open_adapter(const std::string& directory) {
  AdapterFiles files;
  auto config = peft::read_adapter_config(directory);
  files.tensors = open_tensors(directory);
  peft::TensorShapes shapes;
  for (const std::string& key : files.tensors->keys()) {
    const auto found = files.tensors->find(key);
    if (!found) {
      throw UserError(fmt::format("{}: '{}' is missing", files.tensors->path(), key));
    }
    if (!is_weight_dtype(found->dtype)) {
      throw UserError(fmt::format("{}: '{}' has type {}, expected F32, F16, BF16 or F64", files.tensors->path(), key,
                                  io::dtype_name(found->dtype)));
    }
    shapes[key] = found->shape;
  }
  files.description = peft::describe_adapter(std::move(config), shapes, files.tensors->path());
  return files;
}

std::unique_ptr<TensorSource> open_kept_base(const std::string& directory) {
  const fs::path path = fs::absolute(directory).lexically_normal();
  const fs::path folder = path.has_filename() ? path : path.parent_path();
  if (folder.filename() != kBaseFolder || !peft::is_adapter_directory(folder.parent_path().string())) {
    return nullptr;
  }
  return open_part(folder.parent_path().string(), true);
}

std::vector<std::string> tensors_of_files(const PretrainedWeights& weights) {
  return weights.source_of(0)->keys();
}

shard::RowSource with_adapter(shard::RowSource base, const AdapterRows& rows) {
  std::map<const model::Parameter*, const peft::AdapterTensor*> added;
  for (const peft::AdapterTensor& tensor : rows.adapter.tensors) {
    added[&rows.model.parameters()[static_cast<size_t>(tensor.parameter)]] = &tensor;
  }
  std::map<const model::Parameter*, std::string> keys;
  for (const auto& [index, key] : rows.adapter.stored_keys) {
    keys[&rows.model.parameters()[static_cast<size_t>(index)]] = key;
  }
  return [base = std::move(base), rows, added = std::move(added), keys = std::move(keys)](
             const model::Parameter& parameter, const shard::ShardLayout& layout, at::Tensor destination) {
    const auto key = keys.find(&parameter);
    if (rows.files != nullptr && key != keys.end()) {
      const auto found = rows.files->tensors->find(key->second);
      if (!found || found->shape != parameter.shape) {
        throw UserError(fmt::format("{}: '{}' is missing or does not have the base model's shape",
                                    rows.files->tensors->path(), key->second));
      }
      read_rows_into(*rows.files->tensors, key->second, {layout.first_row, layout.own_rows}, destination);
      return;
    }
    const auto tensor = added.find(&parameter);
    if (tensor == added.end()) {
      base(parameter, layout, std::move(destination));
      return;
    }
    if (tensor->second->kind != peft::AdapterTensorKind::kMagnitude) {
      peft::initialise_rows(parameter, {tensor->second->kind, rows.adapter.config.init_lora_weights, rows.seed},
                            {layout.first_row, layout.own_rows}, std::move(destination));
      return;
    }
    // B is zero at the start, so the norm is that of the base's row.
    const auto index = static_cast<size_t>(rows.adapter.projections[tensor->second->module]);
    const model::Projection& projection = rows.model.projections()[index];
    shard::ShardLayout of_weight = layout;
    of_weight.row_numel = projection.in;
    const auto weight = at::empty({layout.own_rows * projection.in}, at::kFloat);
    base(*projection.weight, of_weight, weight);
    destination.copy_(
        at::linalg_norm(weight.view({layout.own_rows, projection.in}), std::nullopt, at::IntArrayRef({1})));
  };
}

shard::RowSource with_frozen(shard::RowSource trained, shard::RowSource base) {
  return [trained = std::move(trained), base = std::move(base)](
             const model::Parameter& parameter, const shard::ShardLayout& layout, at::Tensor destination) {
    (parameter.is_trainable ? trained : base)(parameter, layout, std::move(destination));
  };
}

void keep_stored_dtypes(model::SentenceModel& model, const PretrainedWeights& weights) {
  for (size_t i = 0; i < weights.sources().size(); ++i) {
    model::Parameter& parameter = model.parameters()[i];
    const auto& stored = weights.sources()[i].stored;
    if (parameter.is_trainable || !stored) {
      continue;
    }
    if (stored->dtype == io::Dtype::kBF16) {
      parameter.stored_dtype = at::kBFloat16;
    } else if (stored->dtype == io::Dtype::kF16) {
      parameter.stored_dtype = at::kHalf;
    }
  }
}

}  // namespace stft::checkpoint
