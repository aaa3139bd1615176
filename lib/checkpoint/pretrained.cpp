#include "checkpoint/pretrained.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/rng.h"
#include "checkpoint/adapter_files.h"
#include "checkpoint/checkpoint_store.h"
#include "checkpoint/dtype.h"
#include "checkpoint/published_names.h"
#include "quant/bnb_config.h"

namespace stft::checkpoint {
namespace {

using model::ModuleKind;

// Weights are stored under their own names or under the family's, as in a model with a head ("bert.encoder...").
std::string family_prefix(const TensorSource& tensors, const model::Encoder& encoder, const std::string& first_name) {
  const std::string prefix = encoder.weight_prefix();
  return !tensors.find(first_name) && tensors.find(prefix + first_name) ? prefix : "";
}

// Whether two tensors hold the same bytes; some rows at a time, for tables of embeddings are large.
bool are_equal(const TensorSource& tensors, const std::string& a, const std::string& b) {
  const auto first = tensors.find(a);
  const auto second = tensors.find(b);
  if (!first || !second || first->dtype != second->dtype || first->shape != second->shape) {
    return false;
  }
  constexpr int64_t kChunkBytes = int64_t{1} << 22;
  const int64_t rows = all_rows(first->shape).count;
  const auto bytes_of_all = static_cast<int64_t>(*io::tensor_bytes(first->dtype, first->shape));
  const int64_t row_bytes = bytes_of_all / std::max<int64_t>(rows, 1);
  const int64_t step = std::max<int64_t>(1, kChunkBytes / std::max<int64_t>(row_bytes, 1));
  std::vector<std::byte> of_first(static_cast<size_t>(step * row_bytes));
  std::vector<std::byte> of_second(of_first.size());
  for (int64_t row = 0; row < rows; row += step) {
    const int64_t count = std::min(step, rows - row);
    const auto bytes = static_cast<size_t>(count * row_bytes);
    tensors.read_rows(a, row, count, std::span(of_first).first(bytes));
    tensors.read_rows(b, row, count, std::span(of_second).first(bytes));
    if (!std::equal(of_first.begin(), of_first.begin() + static_cast<std::ptrdiff_t>(bytes), of_second.begin())) {
      return false;
    }
  }
  return true;
}

// What is wrong with a stored tensor as the source of a parameter; empty when nothing is.
std::string fault_of(const std::optional<TensorDescription>& stored, const model::Parameter& parameter,
                     const std::string& key) {
  if (!stored) {
    return fmt::format("'{}' is missing", key);
  }
  if (stored->shape != parameter.shape) {
    return fmt::format("'{}' has shape [{}], expected [{}]", key, fmt::join(stored->shape, ", "),
                       fmt::join(parameter.shape, ", "));
  }
  if (!is_weight_dtype(stored->dtype)) {
    return fmt::format("'{}' has type {}, expected F32, F16, BF16 or F64", key, io::dtype_name(stored->dtype));
  }
  return {};
}

void initialise_dense(const model::Parameter& parameter, const shard::ShardLayout& layout,
                      const model::DenseSpec& dense, at::Tensor destination) {
  const double bound = 1.0 / std::sqrt(static_cast<double>(dense.in_features));
  uint32_t name_hash = 2166136261U;  // FNV-1a
  for (const char c : parameter.name) {
    name_hash = (name_hash ^ static_cast<unsigned char>(c)) * 16777619U;
  }
  const rng::Key key = {static_cast<uint32_t>(*dense.initial_seed), static_cast<uint32_t>(*dense.initial_seed >> 32)};
  const auto first = static_cast<uint64_t>(layout.first_row * layout.row_numel);
  for (int64_t i = 0; i < layout.own_numel(); ++i) {
    const uint64_t position = first + static_cast<uint64_t>(i);
    const auto drawn = rng::philox4x32({static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32),
                                        name_hash, static_cast<uint32_t>(parameter.module)},
                                       key);
    const double unit = static_cast<double>(drawn[0]) / 4294967296.0;
    destination.data_ptr<float>()[i] = static_cast<float>((2.0 * unit - 1.0) * bound);
  }
}

std::map<int64_t, std::unique_ptr<TensorSource>> open_sources(const model::ModelSpec& spec) {
  namespace fs = std::filesystem;
  std::map<std::string, std::shared_ptr<const DcpDirectory>> checkpoints;  // of the directories that are SHARDED
  for (const std::string& directory : {spec.directory, spec.base}) {
    check_is_complete(directory, FileCheck::kSizes);
    const fs::path sharded = fs::path(directory) / kShardedModelFolder;
    if (fs::is_directory(sharded) && !checkpoints.contains(directory)) {
      checkpoints[directory] = std::make_shared<const DcpDirectory>(DcpDirectory::open(sharded.string()));
    }
  }
  std::map<int64_t, std::unique_ptr<TensorSource>> sources;
  for (size_t i = 0; i < spec.modules.size(); ++i) {
    const model::ModuleSpec& module = spec.modules[i];
    const bool has_weights = module.kind == ModuleKind::kTransformer || module.kind == ModuleKind::kStaticEmbedding ||
                             (module.kind == ModuleKind::kDense && !module.dense.initial_seed);
    if (has_weights) {
      const auto index = static_cast<int64_t>(i);
      const std::string& directory = i == 0 ? spec.base : spec.directory;
      const auto checkpoint = checkpoints.find(directory);
      if (auto kept = i == 0 ? open_kept_base(directory) : nullptr) {
        sources[index] = std::move(kept);
        continue;
      }
      sources[index] = checkpoint != checkpoints.end() ? open_sharded(checkpoint->second, sharded_prefix(spec, index))
                                                       : open_safetensors((fs::path(directory) / module.path).string());
    }
  }
  return sources;
}

}  // namespace

PretrainedWeights PretrainedWeights::open(const model::SentenceModel& model) {
  PretrainedWeights result;
  const model::ModelSpec& spec = model.spec();
  result.spec_ = &spec;
  result.table_ = &model.parameters();
  quant::read_quantization_config(spec.config, (std::filesystem::path(spec.base) / "config.json").string());
  result.tensors_ = open_sources(spec);
  auto& of_encoder = result.tensors_.at(0);
  std::set<std::string> names;
  for (const model::Parameter& parameter : model.parameters()) {
    if (parameter.module == 0) {
      names.insert(parameter.name);
    }
  }
  of_encoder = with_our_names(std::move(of_encoder), model.encoder(), names);
  result.prefix_ = family_prefix(*result.tensors_.at(0), model.encoder(), model.parameters().front().name);
  std::vector<std::string> faults;
  for (const model::Parameter& parameter : model.parameters()) {
    ParameterSource source;
    source.key = (parameter.module == 0 ? result.prefix_ : "") + parameter.name;
    if (const TensorSource* tensors = result.source_of(parameter.module)) {
      source.stored = tensors->find(source.key);
      if (const std::string fault = fault_of(source.stored, parameter, source.key); !fault.empty()) {
        faults.push_back(fmt::format("{}: {}", tensors->path(), fault));
      }
    }
    result.sources_.push_back(std::move(source));
  }
  if (!faults.empty()) {
    throw UserError(fmt::format("{}", fmt::join(faults, "\n")));
  }
  result.unused_ = result.find_unused(model.encoder().tied_weight());
  return result;
}

const TensorSource* PretrainedWeights::source_of(int64_t module) const {
  const auto found = tensors_.find(module);
  return found == tensors_.end() ? nullptr : found->second.get();
}

shard::RowSource PretrainedWeights::source() const {
  std::map<const model::Parameter*, size_t> index;
  for (size_t i = 0; i < table_->size(); ++i) {
    index[&(*table_)[i]] = i;
  }
  return [this, index = std::move(index)](const model::Parameter& parameter, const shard::ShardLayout& layout,
                                          at::Tensor destination) {
    const ParameterSource& source = sources_[index.at(&parameter)];
    if (source.stored) {
      read_rows_into(*source_of(parameter.module), source.key, {layout.first_row, layout.own_rows}, destination);
    } else {
      initialise_dense(parameter, layout, spec_->modules[static_cast<size_t>(parameter.module)].dense, destination);
    }
  };
}

std::vector<std::string> PretrainedWeights::find_unused(const std::string& tied) const {
  const TensorSource& tensors = *tensors_.at(0);
  std::set<std::string> used;
  for (size_t i = 0; i < sources_.size(); ++i) {
    if ((*table_)[i].module == 0) {
      used.insert(sources_[i].key);
    }
  }
  std::vector<std::string> result;
  for (const std::string& name : tensors.keys()) {
    if (!used.contains(name) && !(name == tied && are_equal(tensors, name, sources_.front().key))) {
      result.push_back(name);
    }
  }
  return result;
}

}  // namespace stft::checkpoint
