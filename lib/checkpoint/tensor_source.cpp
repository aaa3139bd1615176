#include "checkpoint/tensor_source.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "checkpoint/dtype.h"
#include "checkpoint/four_bit_source.h"
#include "io/mapped_pages.h"
#include "io/weights_index.h"

namespace stft::checkpoint {
namespace {

class SafetensorsSource final : public TensorSource {
 public:
  explicit SafetensorsSource(io::ModelWeights weights) : weights_(std::move(weights)) {}

  std::optional<TensorDescription> find(const std::string& key) const override {
    const auto stored = weights_.find(key);
    return stored ? std::optional(TensorDescription{stored->info->dtype, stored->info->shape}) : std::nullopt;
  }

  std::vector<std::string> keys() const override {
    std::vector<std::string> result;
    for (const auto& [name, tensor] : weights_.tensors()) {
      result.push_back(name);
    }
    return result;
  }

  void read_rows(const std::string& key, int64_t first_row, int64_t rows,
                 std::span<std::byte> destination) const override {
    const auto bytes = weights_.find(key)->rows(first_row, rows);
    STFT_CHECK(bytes.size() == destination.size(), "sizes fit");
    if (!bytes.empty()) {
      std::memcpy(destination.data(), bytes.data(), bytes.size());
      io::release_pages(bytes);
    }
  }

  std::map<std::string, std::string> metadata() const override { return weights_.files().front().metadata(); }
  const std::string& path() const override { return weights_.path(); }

 private:
  io::ModelWeights weights_;
};

class ShardedSource final : public TensorSource {
 public:
  ShardedSource(std::shared_ptr<const DcpDirectory> checkpoint, std::string prefix)
      : checkpoint_(std::move(checkpoint)), prefix_(std::move(prefix)) {}

  std::optional<TensorDescription> find(const std::string& key) const override {
    const DcpTensor* tensor = checkpoint_->find(prefix_ + key);
    return tensor != nullptr ? std::optional(TensorDescription{tensor->dtype, tensor->shape}) : std::nullopt;
  }

  std::vector<std::string> keys() const override {
    std::vector<std::string> result;
    for (const DcpTensor& tensor : checkpoint_->tensors()) {
      if (tensor.key.starts_with(prefix_)) {
        result.push_back(tensor.key.substr(prefix_.size()));
      }
    }
    std::sort(result.begin(), result.end());
    return result;
  }

  void read_rows(const std::string& key, int64_t first_row, int64_t rows,
                 std::span<std::byte> destination) const override {
    const DcpTensor* tensor = checkpoint_->find(prefix_ + key);
    STFT_CHECK(tensor != nullptr, "the tensor exists");
    checkpoint_->read_rows_into(*tensor, first_row, rows, destination);
  }

  std::map<std::string, std::string> metadata() const override { return {{"format", "pt"}}; }
  const std::string& path() const override { return checkpoint_->path(); }

 private:
  std::shared_ptr<const DcpDirectory> checkpoint_;
  std::string prefix_;
};

}  // namespace

bool TensorSource::has_four_bit() const {
  return false;
}

const StoredFourBit* TensorSource::four_bit(const std::string& /*key*/) const {
  return nullptr;
}

std::vector<std::byte> TensorSource::read(const std::string& key) const {
  const auto found = find(key);
  STFT_CHECK(found.has_value(), "the tensor exists");
  std::vector<std::byte> bytes(*io::tensor_bytes(found->dtype, found->shape));
  read_rows(key, 0, all_rows(found->shape).count, bytes);
  return bytes;
}

RowRange all_rows(const std::vector<int64_t>& shape) {
  return {0, shape.empty() ? 1 : shape.front()};
}

void read_rows_into(const TensorSource& source, const std::string& key, RowRange rows, at::Tensor destination) {
  if (destination.scalar_type() != at::kFloat) {
    auto wide = at::empty(destination.sizes(), at::kFloat);
    read_rows_into(source, key, rows, wide);
    destination.copy_(wide);
    return;
  }
  const auto found = source.find(key);
  STFT_CHECK(found.has_value(), "the tensor exists");
  if (found->dtype == io::Dtype::kF32) {
    source.read_rows(key, rows.first, rows.count,
                     {static_cast<std::byte*>(destination.data_ptr()), static_cast<size_t>(destination.nbytes())});
    return;
  }
  const auto element = static_cast<size_t>(io::dtype_bits(found->dtype) / 8);
  std::vector<std::byte> bytes(static_cast<size_t>(destination.numel()) * element);
  source.read_rows(key, rows.first, rows.count, bytes);
  read_as_float(bytes, found->dtype, destination);
}

std::unique_ptr<TensorSource> open_safetensors(const std::string& directory) {
  return with_whole_weights(std::make_unique<SafetensorsSource>(io::ModelWeights::open(directory)));
}

std::unique_ptr<TensorSource> open_safetensors_file(const std::string& path) {
  return std::make_unique<SafetensorsSource>(io::ModelWeights::open_file(path));
}

std::unique_ptr<TensorSource> open_sharded(std::shared_ptr<const DcpDirectory> checkpoint, std::string prefix) {
  return std::make_unique<ShardedSource>(std::move(checkpoint), std::move(prefix));
}

std::string sharded_prefix(const model::ModelSpec& spec, int64_t module) {
  return "model." + spec.state_path(module);
}

std::string plain_sharded_key(const model::Parameter& parameter) {
  return "model." + parameter.state_path + parameter.name;
}

std::string sharded_key(const model::Parameter& parameter) {
  return "model." + parameter.state_name();
}

}  // namespace stft::checkpoint
