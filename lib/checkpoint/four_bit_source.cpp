#include "checkpoint/four_bit_source.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/error.h"

namespace stft::checkpoint {
namespace {

constexpr std::string_view kStateInfix = ".quant_state.bitsandbytes__";

quant::TensorReader reader_of(const TensorSource& tensors) {
  return {tensors.path(),
          [&tensors](const std::string& key) -> std::optional<quant::StoredShape> {
            const auto found = tensors.find(key);
            return found ? std::optional(quant::StoredShape{found->dtype, found->shape}) : std::nullopt;
          },
          [&tensors](const std::string& key) { return tensors.read(key); }};
}

void write_elements(const std::vector<float>& values, io::Dtype dtype, std::byte* to) {
  // Values have been rounded to `dtype` already.
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == io::Dtype::kF32) {
      std::memcpy(to + 4 * i, &values[i], 4);
    } else {
      const uint16_t bits = dtype == io::Dtype::kBF16 ? quant::from_float<quant::Bf16>(values[i]).bits
                                                      : quant::from_float<quant::Fp16>(values[i]).bits;
      std::memcpy(to + 2 * i, &bits, 2);
    }
  }
}

class FourBitSource final : public TensorSource {
 public:
  explicit FourBitSource(std::unique_ptr<TensorSource> tensors) : tensors_(std::move(tensors)) {
    const auto reader = reader_of(*tensors_);
    std::set<std::string> keys;
    for (const std::string& key : tensors_->keys()) {
      keys.insert(key);
      if (const size_t at = key.find(kStateInfix); at != std::string::npos) {
        const std::string weight = key.substr(0, at);
        quant::FourBitWeight stored = quant::read_four_bit(reader, weight);
        const quant::PackedRows form = quant::packed_rows_of(stored);
        weights_.emplace(weight, StoredFourBit{std::move(stored), form, tensors_.get()});
      }
    }
    for (const auto& [key, stored] : weights_) {
      for (const io::TensorSpec& spec : quant::four_bit_specs(stored.weight)) {
        keys.erase(spec.name);
      }
      keys.insert(key);
    }
    keys_.assign(keys.begin(), keys.end());
  }

  std::optional<TensorDescription> find(const std::string& key) const override {
    const auto found = weights_.find(key);
    if (found != weights_.end()) {
      return TensorDescription{found->second.weight.dtype, found->second.weight.shape};
    }
    return std::binary_search(keys_.begin(), keys_.end(), key) ? tensors_->find(key) : std::nullopt;
  }

  std::vector<std::string> keys() const override { return keys_; }

  void read_rows(const std::string& key, int64_t first_row, int64_t rows,
                 std::span<std::byte> destination) const override {
    const auto found = weights_.find(key);
    if (found == weights_.end()) {
      tensors_->read_rows(key, first_row, rows, destination);
      return;
    }
    const quant::FourBitWeight& weight = found->second.weight;
    const int64_t width = weight.shape.front() == 0 ? 0 : weight.elements() / weight.shape.front();
    read_elements(found->second, {first_row * width, rows * width}, destination);
  }

  std::map<std::string, std::string> metadata() const override { return tensors_->metadata(); }
  const std::string& path() const override { return tensors_->path(); }

  bool has_four_bit() const override { return true; }

  const StoredFourBit* four_bit(const std::string& key) const override {
    const auto found = weights_.find(key);
    return found == weights_.end() ? nullptr : &found->second;
  }

 private:
  // Elements [range.first, range.first + range.count) of the flattened weight; a group of blocks at a time.
  static void read_elements(const StoredFourBit& stored, RowRange range, std::span<std::byte> destination) {
    const quant::PackedRows& form = stored.form;
    const int64_t width = form.row_elements();
    const int64_t size = io::dtype_bits(stored.weight.dtype) / 8;
    std::vector<uint8_t> row(static_cast<size_t>(form.row_bytes()));
    for (int64_t index = range.first / width; index * width < range.first + range.count; ++index) {
      stored.read_row(index, row);
      std::vector<float> values(static_cast<size_t>(form.elements_of(index)));
      quant::unpack_row<float>(form, row, values);
      const int64_t begin = std::max(range.first - index * width, int64_t{0});
      const int64_t end = std::min(range.first + range.count - index * width, std::ssize(values));
      write_elements({values.begin() + begin, values.begin() + end}, stored.weight.dtype,
                     destination.data() + (index * width + begin - range.first) * size);
    }
  }

  std::unique_ptr<TensorSource> tensors_;
  std::map<std::string, StoredFourBit> weights_;
  std::vector<std::string> keys_;
};

}  // namespace

void StoredFourBit::read_row(int64_t index, std::span<uint8_t> row) const {
  const int64_t first = index * form.row_blocks;
  const int64_t count = std::min(form.row_blocks, weight.blocks() - first);
  const auto codes = quant::packed_rows(weight, first, count);
  std::vector<std::byte> packed(static_cast<size_t>(codes.count * io::dtype_bits(weight.storage) / 8));
  tensors->read_rows(weight.key, codes.first, codes.count, packed);
  std::vector<std::byte> absmax(static_cast<size_t>(weight.nested ? count : 4 * count));
  tensors->read_rows(weight.key + ".absmax", first, count, absmax);
  quant::read_absmax(weight, first, absmax, tensors->path());  // refuses what is not finite
  quant::copy_row(weight, form, index, packed, absmax, row);
}

std::unique_ptr<TensorSource> with_whole_weights(std::unique_ptr<TensorSource> tensors) {
  const auto keys = tensors->keys();
  const bool is_quantized = std::any_of(
      keys.begin(), keys.end(), [](const std::string& key) { return key.find(kStateInfix) != std::string::npos; });
  return is_quantized ? std::make_unique<FourBitSource>(std::move(tensors)) : std::move(tensors);
}

}  // namespace stft::checkpoint
