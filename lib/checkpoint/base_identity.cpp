#include "checkpoint/base_identity.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <vector>

#include "checkpoint/manifest.h"
#include "io/checksum.h"
#include "peft/adapter_file.h"

namespace stft::checkpoint {
namespace {

constexpr int64_t kSampledBytes = 4096;  // at each of three places of a tensor

std::string digest(const std::string& text) {
  return io::checksum_of({reinterpret_cast<const std::byte*>(text.data()), text.size()});
}

// Without how the weights are quantized: that is in their types.
std::string config_text(const model::ModelSpec& spec) {
  const std::filesystem::path path = std::filesystem::path(spec.base) / "config.json";
  if (!std::filesystem::exists(path)) {
    return {};  // a StaticEmbedding
  }
  io::Json config = io::read_json_file(path.string());
  config.erase("quantization_config");
  return config.dump(-1, ' ', false, io::Json::error_handler_t::replace);
}

void sample(const TensorSource& source, const std::string& key, const TensorDescription& tensor, io::Checksum& sum) {
  const int64_t rows = all_rows(tensor.shape).count;
  const auto bytes = static_cast<int64_t>(*io::tensor_bytes(tensor.dtype, tensor.shape));
  if (rows == 0 || bytes == 0) {
    return;
  }
  const int64_t row_bytes = bytes / rows;
  const int64_t count = std::clamp<int64_t>(kSampledBytes / std::max<int64_t>(row_bytes, 1), 1, rows);
  std::vector<std::byte> part(static_cast<size_t>(count * row_bytes));
  for (const int64_t first : {int64_t{0}, (rows - count) / 2, rows - count}) {
    source.read_rows(key, first, count, part);
    sum.update(part);
  }
}

}  // namespace

BaseIdentity identify_base(const model::SentenceModel& model, const PretrainedWeights& weights,
                           const std::string& name) {
  BaseIdentity identity;
  identity.name = name;
  identity.config = digest(config_text(model.spec()));
  std::set<std::string> keys(weights.unused().begin(), weights.unused().end());
  for (size_t i = 0; i < weights.sources().size(); ++i) {
    if (model.parameters()[i].module == 0) {
      keys.insert(weights.sources()[i].key);
    }
  }
  const TensorSource& source = *weights.source_of(0);
  std::string table;
  io::Checksum rows;
  for (const std::string& key : keys) {
    const auto tensor = source.find(key);
    table += fmt::format("{} {} [{}]\n", key, io::dtype_name(tensor->dtype), fmt::join(tensor->shape, ", "));
    sample(source, key, *tensor, rows);
  }
  identity.tensors = digest(table);
  identity.sample = rows.text();
  return identity;
}

std::optional<std::string> base_difference(const BaseIdentity& a, const BaseIdentity& b) {
  if (a.tensors != b.tensors) {
    return "its tensors' names, types or shapes";
  }
  if (a.sample != b.sample) {
    return "its weights";
  }
  return a.config != b.config ? std::optional<std::string>("its config.json") : std::nullopt;
}

io::Json to_json(const BaseIdentity& identity) {
  return {
      {"name", identity.name}, {"config", identity.config}, {"tensors", identity.tensors}, {"sample", identity.sample}};
}

BaseIdentity base_identity_from_json(const io::Json& json, const std::string& origin) {
  return {io::get_string(json, "name", origin), io::get_string(json, "config", origin),
          io::get_string(json, "tensors", origin), io::get_string(json, "sample", origin)};
}

std::optional<std::string> other_base_warning(const std::string& directory, const std::string& base) {
  const auto manifest = read_manifest(directory);
  if (!manifest || !manifest->base || base.empty()) {
    return std::nullopt;
  }
  const model::SentenceModel model(model::read_model_spec(directory, base));
  const BaseIdentity found = identify_base(model, PretrainedWeights::open(model), base);
  const auto difference = base_difference(*manifest->base, found);
  return difference
             ? std::optional(fmt::format("'{}': the adapter was trained on the base '{}'; '{}' is another one: {} "
                                         "differ{}",
                                         directory, manifest->base->name, base, *difference,
                                         difference->ends_with(".json") ? "s" : ""))
             : std::nullopt;
}

}  // namespace stft::checkpoint
