#include "checkpoint/quantized_base.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/error.h"
#include "checkpoint/four_bit_choice.h"
#include "quant/nf4_double.h"
#include "shard/shard_layout.h"

namespace stft::checkpoint {
namespace {

constexpr int64_t kStretchElements = int64_t{1} << 20;  // that are fp32 at a time

std::span<const float> floats(const at::Tensor& flat) {
  return {flat.const_data_ptr<float>(), static_cast<size_t>(flat.numel())};
}

std::span<uint8_t> bytes(const at::Tensor& flat) {
  return {flat.data_ptr<uint8_t>(), static_cast<size_t>(flat.numel())};
}

struct Stretch {
  int64_t first = 0;  // element of the flattened weight
  int64_t count = 0;
};

// Elements of a weight that `base` gives by whole rows.
at::Tensor read_stretch(const shard::RowSource& base, const model::Parameter& parameter, Stretch stretch) {
  shard::ShardLayout layout = shard::shard_layout(parameter.shape, 0, 1);
  layout.first_row = stretch.first / layout.row_numel;
  layout.own_rows = (stretch.first + stretch.count + layout.row_numel - 1) / layout.row_numel - layout.first_row;
  layout.chunk_rows = layout.own_rows;
  auto rows = at::empty({layout.own_numel()}, at::kFloat);
  base(parameter, layout, rows);
  return rows.narrow(0, stretch.first - layout.first_row * layout.row_numel, stretch.count);
}

// Calls `use` with the fp32 elements of rows [first, first + count) of a packed weight, some rows at a time:
// use(first row, values).
template <typename Use>
void for_stretches(const shard::RowSource& base, const model::Parameter& parameter, const quant::PackedRows& form,
                   RowRange rows, Use&& use) {
  const int64_t step = std::max<int64_t>(1, kStretchElements / form.row_elements());
  const int64_t end = rows.first + rows.count;
  for (int64_t row = rows.first; row < end; row += step) {
    const int64_t first = row * form.row_elements();
    const int64_t count = std::min(std::min(step, end - row) * form.row_elements(), form.elements - first);
    use(row, read_stretch(base, parameter, {first, count}));
  }
}

[[noreturn]] void refuse(const model::Parameter& parameter, int64_t first_element, std::span<const float> part) {
  quant::refuse_not_finite<float>(parameter.name, parameter.shape, first_element, part);
}

// The rows of `values`, which begin with row `first`.
void pack(const model::Parameter& parameter, const quant::PackedRows& form, float offset, int64_t first,
          std::span<const float> values, std::span<uint8_t> to) {
  const int64_t width = form.row_elements();
  const int64_t rows = (static_cast<int64_t>(values.size()) + width - 1) / width;
  at::parallel_for(0, rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const auto part =
          values.subspan(static_cast<size_t>(row * width), static_cast<size_t>(form.elements_of(first + row)));
      const auto row_to =
          to.subspan(static_cast<size_t>(row * form.row_bytes()), static_cast<size_t>(form.row_bytes()));
      if (quant::pack_row(form, part, offset, row_to)) {
        refuse(parameter, (first + row) * width, part);
      }
    }
  });
}

template <class T>
void unpack_rows(const quant::PackedRows& form, const at::Tensor& rows, const at::Tensor& to) {
  const int64_t width = form.row_elements();
  auto* elements = static_cast<T*>(to.mutable_data_ptr());
  const auto* from = rows.const_data_ptr<uint8_t>();
  at::parallel_for(0, rows.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t count = std::min(width, to.numel() - row * width);
      quant::unpack_row<T>(form, {from + row * form.row_bytes(), static_cast<size_t>(form.row_bytes())},
                           {elements + row * width, static_cast<size_t>(count)});
    }
  });
}

}  // namespace

QuantizedBase::QuantizedBase(model::SentenceModel& model, const PretrainedWeights& weights,
                             const quant::QuantizationConfig& config, dist::ProcessGroup& world) {
  const quant::FourBitFormat format{config.bnb_4bit_quant_type, config.blocksize};
  for (const FourBitChoice& choice : choose_four_bit(model, weights)) {
    model::Parameter& parameter = model.parameters()[choice.parameter];
    Weight weight;
    weight.stored = choice.stored;
    weight.form = choice.stored != nullptr ? choice.stored->form
                                           : quant::packed_rows_of(format, parameter.numel(), choice.dtype,
                                                                   config.bnb_4bit_use_double_quant);
    weights_[&parameter] = std::move(weight);
    parameter.stored_dtype = at::kByte;
  }
  if (config.bnb_4bit_use_double_quant) {
    survey(model, weights.source(), world);
  }
}

// [Note: mean of absmax] Every rank sums the absmax of its share of every weight; the sums are exact, so the mean does
// not depend on the number of ranks.
void QuantizedBase::survey(model::SentenceModel& model, const shard::RowSource& base, dist::ProcessGroup& world) {
  std::vector<std::pair<const model::Parameter*, Weight*>> surveyed;
  for (const model::Parameter& parameter : model.parameters()) {  // an order that all ranks share
    const auto found = weights_.find(&parameter);
    if (found != weights_.end() && found->second.stored == nullptr) {
      surveyed.emplace_back(&parameter, &found->second);
    }
  }
  constexpr auto kDigits = static_cast<int64_t>(std::tuple_size_v<quant::AbsmaxSum::Digits>);
  const auto count = static_cast<int64_t>(surveyed.size());
  auto sums = at::zeros({count, kDigits}, at::kLong);
  std::vector<std::vector<float>> absmax(surveyed.size());  // of this rank's share
  for (size_t i = 0; i < surveyed.size(); ++i) {
    const auto& [parameter, weight] = surveyed[i];
    const auto share = shard::shard_layout({weight->form.rows(), 1}, world.rank(), world.size());
    const int64_t blocksize = weight->form.format.blocksize;
    for_stretches(base, *parameter, weight->form, {share.first_row, share.own_rows},
                  [&, &parameter = parameter, &weight = weight](int64_t row, const at::Tensor& stretch) {
                    const auto values = floats(stretch);
                    const auto elements = static_cast<int64_t>(values.size());
                    std::vector<uint8_t> codes(static_cast<size_t>(quant::packed_size(elements)));
                    std::vector<float> largest(static_cast<size_t>(quant::block_count(elements, blocksize)));
                    if (quant::quantize_4bit<float>(weight->form.format, values, {codes, largest})) {
                      refuse(*parameter, row * weight->form.row_elements(), values);
                    }
                    absmax[i].insert(absmax[i].end(), largest.begin(), largest.end());
                  });
    quant::AbsmaxSum sum;
    sum.add(absmax[i]);
    std::copy(sum.digits().begin(), sum.digits().end(), sums[static_cast<int64_t>(i)].data_ptr<int64_t>());
  }
  world.all_reduce_sum(sums).wait();
  auto spoiled = at::zeros({count}, at::kLong);
  for (size_t i = 0; i < surveyed.size(); ++i) {
    quant::AbsmaxSum::Digits digits;
    const auto* row = sums[static_cast<int64_t>(i)].const_data_ptr<int64_t>();
    std::copy(row, row + kDigits, digits.begin());
    Weight& weight = *surveyed[i].second;
    weight.offset = quant::AbsmaxSum(digits).mean();
    spoiled.data_ptr<int64_t>()[i] = quant::nested_range(absmax[i], weight.offset) > quant::kMaxNestedRange ? 1 : 0;
  }
  world.all_reduce_sum(spoiled).wait();
  for (size_t i = 0; i < surveyed.size(); ++i) {
    if (spoiled.data_ptr<int64_t>()[i] > 0) {
      surveyed[i].second->form.map = nullptr;
      kept_single_.push_back(surveyed[i].first->name);
    }
  }
}

shard::PackedForms QuantizedBase::forms(at::ScalarType compute) const {
  STFT_CHECK(compute == at::kFloat || compute == at::kBFloat16, "computed with in fp32 or bf16");
  shard::PackedForms forms;
  for (const auto& [parameter, weight] : weights_) {
    const quant::PackedRows& form = weight.form;
    forms[parameter] = {form.rows(), form.row_bytes(), form.row_elements(),
                        [form, compute](const at::Tensor& rows, const at::Tensor& to) {
                          compute == at::kFloat ? unpack_rows<float>(form, rows, to)
                                                : unpack_rows<quant::Bf16>(form, rows, to);
                        }};
  }
  return forms;
}

shard::RowSource QuantizedBase::rows(shard::RowSource base) const {
  return [this, base = std::move(base)](const model::Parameter& parameter, const shard::ShardLayout& layout,
                                        at::Tensor destination) {
    const auto found = weights_.find(&parameter);
    if (found == weights_.end()) {
      base(parameter, layout, std::move(destination));
      return;
    }
    const Weight& weight = found->second;
    const auto to = bytes(destination);
    if (weight.stored != nullptr) {
      const auto width = static_cast<size_t>(weight.form.row_bytes());
      for (int64_t row = 0; row < layout.own_rows; ++row) {
        weight.stored->read_row(layout.first_row + row, to.subspan(static_cast<size_t>(row) * width, width));
      }
      return;
    }
    for_stretches(
        base, parameter, weight.form, {layout.first_row, layout.own_rows}, [&](int64_t row, const at::Tensor& values) {
          const int64_t start = (row - layout.first_row) * weight.form.row_bytes();
          pack(parameter, weight.form, weight.offset, row, floats(values), to.subspan(static_cast<size_t>(start)));
        });
  };
}

int64_t QuantizedBase::stored_count() const {
  return std::count_if(weights_.begin(), weights_.end(),
                       [](const auto& entry) { return entry.second.stored != nullptr; });
}

int64_t QuantizedBase::packed_bytes() const {
  int64_t sum = 0;
  for (const auto& [parameter, weight] : weights_) {
    sum += weight.form.rows() * weight.form.row_bytes();
  }
  return sum;
}

int64_t QuantizedBase::float_bytes() const {
  int64_t sum = 0;
  for (const auto& [parameter, weight] : weights_) {
    sum += parameter->numel() * 4;
  }
  return sum;
}

}  // namespace stft::checkpoint
