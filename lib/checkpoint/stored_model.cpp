#include "checkpoint/stored_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <utility>

#include "base/error.h"
#include "checkpoint/adapter_files.h"
#include "checkpoint/checkpoint_store.h"
#include "checkpoint/export_model.h"
#include "io/directory.h"
#include "io/file.h"
#include "peft/adapter_file.h"

namespace stft::checkpoint {
namespace {

namespace fs = std::filesystem;

// A directory without a manifest: every tensor of its files, as it is. `transformer_file`: the name of module 0's.
WeightPlan plan_of_files(const std::optional<model::ModelSpec>& spec,
                         const std::map<int64_t, std::unique_ptr<TensorSource>>& sources,
                         const std::string& transformer_file) {
  WeightPlan plan;
  for (const auto& [module, source] : sources) {
    PlannedFile file;
    file.module = module;
    const std::string folder = spec ? spec->modules[static_cast<size_t>(module)].path : "";
    file.path = (fs::path(folder) / (module == 0 ? transformer_file : "model.safetensors")).string();
    file.metadata = source->metadata();
    // Without a spec it is an adapter, of a transformer.
    const std::string prefix = spec ? sharded_prefix(*spec, module) : "model.0.model.";
    for (const std::string& key : source->keys()) {
      const auto found = source->find(key);
      file.tensors.push_back({key, prefix + key, found->dtype, found->shape, true, -1});
    }
    plan.push_back(std::move(file));
  }
  return plan;
}

void check_is_model(const std::string& directory) {
  const fs::path path(directory);
  if (!fs::exists(path / "config.json") && !fs::exists(path / "modules.json")) {
    throw UserError(fmt::format("'{}' is no model directory: {}", directory,
                                checkpoint_steps(directory).empty()
                                    ? "it holds neither config.json nor modules.json"
                                    : "it is a run; give one of its checkpoints, or its final/"));
  }
}

bool has_weights(const model::ModuleSpec& module) {
  return module.kind == model::ModuleKind::kTransformer || module.kind == model::ModuleKind::kStaticEmbedding ||
         module.kind == model::ModuleKind::kDense;
}

}  // namespace

std::optional<std::string> local_base(const std::string& adapter_directory) {
  const fs::path kept = fs::path(adapter_directory) / kBaseFolder;
  if (read_manifest(adapter_directory) && fs::exists(kept / "config.json")) {
    return kept.string();
  }
  const std::string name = peft::read_adapter_config(adapter_directory).base_model;
  const fs::path beside = fs::absolute(adapter_directory).lexically_normal();
  const fs::path parent = (beside.has_filename() ? beside : beside.parent_path()).parent_path();
  for (const fs::path& candidate : {fs::path(name), parent / name}) {
    if (!name.empty() && io::is_directory(candidate.string())) {
      return candidate.string();
    }
  }
  return std::nullopt;
}

const model::ModelSpec& StoredModel::spec() const {
  if (!spec_) {
    throw UserError(fmt::format("'{}': the base model '{}' that {} names is not there; name it by --base-model",
                                directory_, peft::read_adapter_config(directory_).base_model,
                                peft::kAdapterConfigFile));
  }
  return *spec_;
}

// An adapter's other modules lie with it; those of a directory of PEFT's with its base.
void StoredModel::open_sources() {
  if (is_sharded_) {
    const std::string path = (fs::path(directory_) / kShardedModelFolder).string();
    sources_[0] = open_sharded(std::make_shared<const DcpDirectory>(DcpDirectory::open(path)), "");
    return;
  }
  if (is_adapter_) {
    sources_[0] = std::move(open_adapter(directory_).tensors);
  }
  if (is_adapter_ && manifest_) {
    for (const PlannedFile& file : manifest_->weights) {
      if (file.is_base) {
        kept_base_ = open_safetensors((fs::path(directory_) / kBaseFolder).string());
      } else if (file.module != 0) {
        sources_[file.module] = open_safetensors((fs::path(directory_) / file.path).parent_path().string());
      }
    }
    return;
  }
  for (size_t i = is_adapter_ ? 1 : 0; spec_ && i < spec_->modules.size(); ++i) {
    if (auto kept = i == 0 ? open_kept_base(spec_->directory) : nullptr) {
      sources_[0] = std::move(kept);
    } else if (has_weights(spec_->modules[i])) {
      sources_[static_cast<int64_t>(i)] =
          open_safetensors((fs::path(spec_->directory) / spec_->modules[i].path).string());
    }
  }
}

StoredModel StoredModel::open(const std::string& directory, FileCheck check, const std::string& base) {
  if (!io::is_directory(directory)) {
    throw UserError("'" + directory + "' is not a directory");
  }
  StoredModel result;
  result.directory_ = directory;
  result.manifest_ = read_manifest(directory);
  const std::string sharded = (fs::path(directory) / kShardedModelFolder).string();
  result.is_sharded_ = io::is_directory(sharded);
  result.is_adapter_ = peft::is_adapter_directory(directory);
  check_is_complete(directory, check);
  if (result.is_sharded_ && !result.manifest_) {
    throw UserError(
        fmt::format("'{}' has no {}: it was not written by stft (reading other SHARDED checkpoints is not "
                    "available yet)",
                    directory, kManifestFile));
  }
  if (!result.is_adapter_) {
    check_is_model(directory);
    result.spec_ = model::read_model_spec(directory);
  } else if (const auto found = base.empty() ? local_base(directory) : std::optional(base);
             found && (!base.empty() || fs::exists(fs::path(*found) / "config.json"))) {
    result.spec_ = model::read_model_spec(directory, *found);
  }
  result.open_sources();
  if (result.manifest_) {
    result.plan_ = result.manifest_->weights;
    result.input_dtype_ = result.manifest_->input_dtype;
  } else {
    result.plan_ = plan_of_files(result.spec_, result.sources_,
                                 result.is_adapter_ ? peft::kAdapterWeightsFile : "model.safetensors");
    if (result.spec_) {
      result.input_dtype_ = checkpoint::input_dtype(*result.spec_);
    }
  }
  std::vector<std::string> missing;
  for (const PlannedFile& file : result.plan_) {
    for (const PlannedTensor& tensor : file.tensors) {
      const Place place = result.place_of(file, tensor);
      const auto found = place.source != nullptr ? place.source->find(place.key) : std::nullopt;
      if (!found || found->shape != tensor.shape) {
        missing.push_back(fmt::format("'{}' {}", place.key, found ? "has another shape" : "is missing"));
      } else if (result.manifest_ && found->dtype != written_dtype(tensor, WeightPrecision::kMaster)) {
        missing.push_back(fmt::format("'{}' has another type", place.key));
      }
      result.by_sharded_key_[tensor.sharded_key] = place;
    }
  }
  if (!missing.empty()) {
    throw UserError(fmt::format("'{}' does not hold what its manifest says:\n{}", directory, fmt::join(missing, "\n")));
  }
  return result;
}

StoredModel::Place StoredModel::place_of(const PlannedFile& file, const PlannedTensor& tensor) const {
  if (file.is_base && !is_sharded_) {
    return {kept_base_.get(), tensor.key};
  }
  const auto source = sources_.find(is_sharded_ ? 0 : file.module);
  return {source == sources_.end() ? nullptr : source->second.get(), is_sharded_ ? tensor.sharded_key : tensor.key};
}

WeightPlan StoredModel::own_plan() const {
  WeightPlan plan = plan_;
  std::erase_if(plan, [](const PlannedFile& file) { return file.is_base; });
  return plan;
}

WholeTensors StoredModel::tensors() const {
  return [this](const PlannedFile& file, const PlannedTensor& tensor) {
    const Place place = place_of(file, tensor);
    return read_whole(*place.source, place.key);
  };
}

std::vector<std::byte> StoredModel::read_rows(const PlannedFile& file, const PlannedTensor& tensor,
                                              RowRange rows) const {
  const Place place = place_of(file, tensor);
  auto description = *place.source->find(place.key);
  if (!description.shape.empty()) {
    description.shape.front() = rows.count;
  }
  std::vector<std::byte> bytes(*io::tensor_bytes(description.dtype, description.shape));
  place.source->read_rows(place.key, rows.first, rows.count, bytes);
  return bytes;
}

shard::RowSource StoredModel::rows() const {
  return [this](const model::Parameter& parameter, const shard::ShardLayout& layout, at::Tensor destination) {
    const std::string key = sharded_key(parameter);
    auto found = by_sharded_key_.find(key);
    if (found == by_sharded_key_.end()) {
      found = by_sharded_key_.find(plain_sharded_key(parameter));
    }
    const auto description =
        found == by_sharded_key_.end() ? std::nullopt : found->second.source->find(found->second.key);
    if (!description || description->shape != parameter.shape) {
      throw UserError(fmt::format("'{}': the tensor '{}' is missing or has another shape than the model's [{}]",
                                  directory_, key, fmt::join(parameter.shape, ", ")));
    }
    read_rows_into(*found->second.source, found->second.key, {layout.first_row, layout.own_rows}, destination);
  };
}

}  // namespace stft::checkpoint
