#include "quant/packed_rows.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "quant/nf4_double.h"
#include "quant/nf4_tables.h"

namespace stft::quant {
namespace {

constexpr std::int64_t kFloatBytes = 4;

// Where the parts of a row lie.
struct RowPlaces {
  std::int64_t codes;       // their size: they come first
  std::int64_t statistics;  // the size of the (codes of the) absmax
};

RowPlaces places(const PackedRows& form) {
  const std::int64_t floats = form.row_blocks * kFloatBytes;
  return {form.row_elements() / 2, form.map ? (form.row_blocks + kFloatBytes - 1) / kFloatBytes * kFloatBytes : floats};
}

template <class Row>
auto codes_of(Row row, std::int64_t elements) {
  return row.first(static_cast<std::size_t>(packed_size(elements)));
}

template <class Row>
auto statistics_of(const PackedRows& form, Row row) {
  const RowPlaces at = places(form);
  return row.subspan(static_cast<std::size_t>(at.codes), static_cast<std::size_t>(at.statistics));
}

struct NestedFloats {
  float absmax;
  float offset;
};

NestedFloats nested_of(const PackedRows& form, std::span<const std::uint8_t> row) {
  const RowPlaces at = places(form);
  NestedFloats nested{};
  std::memcpy(&nested, row.data() + at.codes + at.statistics, sizeof nested);
  return nested;
}

void set_nested(const PackedRows& form, NestedFloats nested, std::span<std::uint8_t> row) {
  const RowPlaces at = places(form);
  std::memcpy(row.data() + at.codes + at.statistics, &nested, sizeof nested);
}

// The absmax of the row's blocks.
std::vector<float> absmax_of(const PackedRows& form, std::span<const std::uint8_t> row, std::int64_t blocks) {
  std::vector<float> absmax(static_cast<std::size_t>(blocks));
  const auto statistics = statistics_of(form, row);
  if (!form.map) {
    std::memcpy(absmax.data(), statistics.data(), absmax.size() * sizeof(float));
    return absmax;
  }
  const NestedFloats nested = nested_of(form, row);
  dequantize_absmax({*form.map, {statistics.first(absmax.size()), {&nested.absmax, 1}}, nested.offset}, absmax);
  return absmax;
}

template <class Via, class T>
void read_through(const QuantizedView& view, std::span<T> to) {
  std::vector<Via> values(to.size());
  dequantize_4bit<Via>(view, values);
  for (std::size_t i = 0; i < to.size(); ++i) {
    to[i] = from_float<T>(to_float(values[i]));
  }
}

}  // namespace

std::int64_t PackedRows::row_bytes() const {
  const RowPlaces at = places(*this);
  return at.codes + at.statistics + (map ? static_cast<std::int64_t>(sizeof(NestedFloats)) : 0);
}

std::int64_t PackedRows::elements_of(std::int64_t row) const {
  return std::min(row_elements(), elements - row * row_elements());
}

PackedRows packed_rows_of(const FourBitFormat& format, std::int64_t elements, io::Dtype dtype, bool is_double) {
  PackedRows form;
  form.format = format;
  form.values = four_bit_table(format.type).values;
  form.dtype = dtype;
  form.elements = elements;
  form.row_blocks = std::clamp<std::int64_t>(block_count(elements, format.blocksize), 1, kGroupBlocks);
  form.map = is_double ? std::make_shared<const ByteMap>(nested_map()) : nullptr;
  return form;
}

PackedRows packed_rows_of(const FourBitWeight& stored) {
  PackedRows form = packed_rows_of(stored.format, stored.elements(), stored.dtype, false);
  form.values = stored.values;
  form.map = stored.nested ? std::make_shared<const ByteMap>(stored.nested->map) : nullptr;
  return form;
}

std::optional<std::int64_t> pack_row(const PackedRows& form, std::span<const float> values, float offset,
                                     std::span<std::uint8_t> row) {
  STFT_CHECK(static_cast<std::int64_t>(row.size()) == form.row_bytes(), "a row of another form");
  std::fill(row.begin(), row.end(), std::uint8_t{0});
  const auto elements = static_cast<std::int64_t>(values.size());
  std::vector<float> absmax(static_cast<std::size_t>(block_count(elements, form.format.blocksize)));
  const auto fault = quantize_4bit<float>(form.format, values, {codes_of(row, elements), absmax});
  if (fault) {
    return fault;
  }
  const auto statistics = statistics_of(form, row);
  if (!form.map) {
    std::memcpy(statistics.data(), absmax.data(), absmax.size() * sizeof(float));
    return std::nullopt;
  }
  NestedFloats nested{0, offset};
  quantize_absmax(absmax, offset, {statistics.first(absmax.size()), {&nested.absmax, 1}});
  set_nested(form, nested, row);
  return std::nullopt;
}

void copy_row(const FourBitWeight& stored, const PackedRows& form, std::int64_t row_index,
              std::span<const std::byte> codes, std::span<const std::byte> absmax, std::span<std::uint8_t> row) {
  STFT_CHECK(static_cast<std::int64_t>(row.size()) == form.row_bytes(), "a row of another form");
  const auto statistics = statistics_of(form, row);
  STFT_CHECK(static_cast<std::int64_t>(codes.size()) == packed_size(form.elements_of(row_index)) &&
                 absmax.size() <= statistics.size(),
             "tensors of another row");
  std::fill(row.begin(), row.end(), std::uint8_t{0});
  std::memcpy(row.data(), codes.data(), codes.size());
  std::memcpy(statistics.data(), absmax.data(), absmax.size());
  if (stored.nested) {
    set_nested(form, {stored.nested->absmax[static_cast<std::size_t>(row_index)], stored.nested->offset}, row);
  }
}

template <class T>
void unpack_row(const PackedRows& form, std::span<const std::uint8_t> row, std::span<T> to) {
  const auto elements = static_cast<std::int64_t>(to.size());
  const auto absmax = absmax_of(form, row, block_count(elements, form.format.blocksize));
  const QuantizedView view{form.values, form.format.blocksize, codes_of(row, elements), absmax};
  const bool is_bf16 = form.dtype == io::Dtype::kBF16;
  if (form.dtype == io::Dtype::kF16) {
    read_through<Fp16>(view, to);
  } else if (is_bf16 && !std::is_same_v<T, Bf16>) {
    read_through<Bf16>(view, to);
  } else {
    dequantize_4bit<T>(view, to);
  }
}

template void unpack_row(const PackedRows&, std::span<const std::uint8_t>, std::span<float>);
template void unpack_row(const PackedRows&, std::span<const std::uint8_t>, std::span<Bf16>);

}  // namespace stft::quant
