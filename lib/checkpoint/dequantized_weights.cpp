#include "checkpoint/dequantized_weights.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <span>
#include <vector>

#include "base/error.h"
#include "checkpoint/four_bit_choice.h"
#include "quant/nf4_double.h"
#include "quant/packed_rows.h"

namespace stft::checkpoint {
namespace {

// The mean of the absmax, or none where double quantization would spoil the weight.
std::optional<float> offset_of(const quant::FourBitFormat& format, std::span<const float> values,
                               const model::Parameter& named) {
  const auto elements = static_cast<int64_t>(values.size());
  std::vector<uint8_t> codes(static_cast<size_t>(quant::packed_size(elements)));
  std::vector<float> absmax(static_cast<size_t>(quant::block_count(elements, format.blocksize)));
  if (quant::quantize_4bit<float>(format, values, {codes, absmax})) {
    quant::refuse_not_finite<float>(named.name, named.shape, 0, values);
  }
  quant::AbsmaxSum sum;
  sum.add(absmax);
  const float mean = sum.mean();
  return quant::nested_range(absmax, mean) > quant::kMaxNestedRange ? std::nullopt : std::optional(mean);
}

}  // namespace

at::Tensor through_four_bit(const at::Tensor& weight, const quant::QuantizationConfig& config, io::Dtype dtype,
                            const std::string& name) {
  const auto from = weight.contiguous();
  const std::span<const float> values(from.const_data_ptr<float>(), static_cast<size_t>(from.numel()));
  model::Parameter named;
  named.name = name;
  named.shape = weight.sizes().vec();
  const quant::FourBitFormat format{config.bnb_4bit_quant_type, config.blocksize};
  const auto offset = offset_of(format, values, named);
  const bool is_double = config.bnb_4bit_use_double_quant && offset;
  const auto form =
      quant::packed_rows_of(format, from.numel(), dtype == io::Dtype::kF64 ? io::Dtype::kF32 : dtype, is_double);
  auto result = at::empty_like(from);
  const std::span<float> to(result.data_ptr<float>(), values.size());
  std::vector<uint8_t> row(static_cast<size_t>(form.row_bytes()));
  for (int64_t index = 0; index < form.rows(); ++index) {
    const auto first = static_cast<size_t>(index * form.row_elements());
    const auto count = static_cast<size_t>(form.elements_of(index));
    quant::pack_row(form, values.subspan(first, count), offset.value_or(0), row);
    quant::unpack_row<float>(form, row, to.subspan(first, count));
  }
  return result;
}

void dequantize_leaves(model::SentenceModel& model, const PretrainedWeights& weights,
                       const quant::QuantizationConfig& config) {
  for (const FourBitChoice& choice : choose_four_bit(model, weights)) {
    if (choice.stored == nullptr) {
      const model::Parameter& parameter = model.parameters()[choice.parameter];
      at::Tensor leaf = parameter.leaf;
      leaf.copy_(through_four_bit(leaf, config, choice.dtype, parameter.name));
    }
  }
}

}  // namespace stft::checkpoint
