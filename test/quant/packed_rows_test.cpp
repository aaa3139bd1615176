// Rows of packed bytes against the whole-weight functions and against what bitsandbytes stored.
#include "quant/packed_rows.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "quant/nf4_double.h"
#include "quant/nf4_golden.h"

using namespace stft;
using namespace stft::quant;

namespace {

std::vector<float> some_values(std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] =
        static_cast<float>(std::sin(0.37 * static_cast<double>(i)) * (1 + 0.001 * static_cast<double>(i % 777)));
  }
  return values;
}

// All rows, one behind the other.
std::vector<std::uint8_t> pack(const PackedRows& form, std::span<const float> values, float offset) {
  std::vector<std::uint8_t> rows(static_cast<std::size_t>(form.rows() * form.row_bytes()));
  for (std::int64_t row = 0; row < form.rows(); ++row) {
    const auto part = values.subspan(static_cast<std::size_t>(row * form.row_elements()),
                                     static_cast<std::size_t>(form.elements_of(row)));
    const auto to = std::span(rows).subspan(static_cast<std::size_t>(row * form.row_bytes()),
                                            static_cast<std::size_t>(form.row_bytes()));
    CHECK_FALSE(pack_row(form, part, offset, to));
  }
  return rows;
}

template <class T>
std::vector<T> unpack(const PackedRows& form, const std::vector<std::uint8_t>& rows) {
  std::vector<T> values(static_cast<std::size_t>(form.elements));
  for (std::int64_t row = 0; row < form.rows(); ++row) {
    unpack_row<T>(form,
                  std::span(rows).subspan(static_cast<std::size_t>(row * form.row_bytes()),
                                          static_cast<std::size_t>(form.row_bytes())),
                  std::span(values).subspan(static_cast<std::size_t>(row * form.row_elements()),
                                            static_cast<std::size_t>(form.elements_of(row))));
  }
  return values;
}

}  // namespace

TEST_CASE("rows of a group hold what the functions over a whole weight give", "[nf4]") {
  for (const std::int64_t blocksize : {32, 64, 4096}) {
    for (const bool is_double : {false, true}) {
      INFO("blocksize " << blocksize << " double " << is_double);
      const FourBitFormat format{QuantType::kNf4, blocksize};
      const std::int64_t elements = 2 * kGroupBlocks * blocksize + 3 * blocksize + 7;
      const auto values = some_values(elements);
      test::Quantized whole(elements, blocksize);
      REQUIRE_FALSE(quantize_4bit<float>(format, values, whole.part()));
      AbsmaxSum sum;
      sum.add(whole.absmax);
      const float offset = sum.mean();
      if (is_double) {
        std::vector<std::uint8_t> codes(whole.absmax.size());
        std::vector<float> nested(3);
        quantize_absmax(whole.absmax, offset, {codes, nested});
        dequantize_absmax({nested_map(), {codes, nested}, offset}, whole.absmax);
      }
      std::vector<float> expected(values.size());
      dequantize_4bit<float>(whole.view(QuantType::kNf4, blocksize), expected);
      const auto form = packed_rows_of(format, elements, io::Dtype::kF32, is_double);
      CHECK(form.rows() == 3);
      CHECK(form.row_bytes() % 4 == 0);
      CHECK(unpack<float>(form, pack(form, values, offset)) == expected);
    }
  }
}

TEST_CASE("a weight is rounded to the type it had before it is cast", "[nf4]") {
  const FourBitFormat format{QuantType::kNf4, 64};
  const auto values = some_values(1000);
  const auto plain = packed_rows_of(format, 1000, io::Dtype::kF32, false);
  const auto rows = pack(plain, values, 0);
  const auto floats = unpack<float>(plain, rows);
  for (const auto dtype : {io::Dtype::kBF16, io::Dtype::kF16}) {
    const auto found = unpack<float>(packed_rows_of(format, 1000, dtype, false), rows);
    std::int64_t rounded = 0;
    for (std::size_t i = 0; i < floats.size(); ++i) {
      const float expected =
          dtype == io::Dtype::kBF16 ? to_float(from_float<Bf16>(floats[i])) : to_float(from_float<Fp16>(floats[i]));
      CHECK(found[i] == expected);
      rounded += found[i] != floats[i] ? 1 : 0;
    }
    CHECK(rounded > 0);
  }
}

TEST_CASE("rows copied from what bitsandbytes stored read as it reads them", "[nf4]") {
  for (const char* folder : {"prequantized_single", "prequantized_double"}) {
    const auto file = io::SafetensorsFile::open(test::nf4_golden(std::string(folder) + "/model.safetensors"));
    const auto expected =
        io::SafetensorsFile::open(test::nf4_golden(std::string(folder) + "/expected_dequantized.safetensors"));
    const TensorReader reader{
        file.path(),
        [&](const std::string& key) -> std::optional<StoredShape> {
          const auto* info = file.find(key);
          return info == nullptr ? std::nullopt : std::optional(StoredShape{info->dtype, info->shape});
        },
        [&](const std::string& key) {
          const auto bytes = file.bytes(*file.find(key));
          return std::vector<std::byte>(bytes.begin(), bytes.end());
        }};
    int found = 0;
    for (const io::TensorInfo& info : file.tensors()) {
      if (!is_four_bit(reader, info.name)) {
        continue;
      }
      INFO(folder << " " << info.name);
      const FourBitWeight weight = read_four_bit(reader, info.name);
      const PackedRows form = packed_rows_of(weight);
      std::vector<std::uint8_t> rows(static_cast<std::size_t>(form.rows() * form.row_bytes()));
      REQUIRE(form.rows() == 1);
      copy_row(weight, form, 0, reader.read(info.name), reader.read(info.name + ".absmax"), rows);
      CHECK(unpack<float>(form, rows) == test::read_values<float>(expected, info.name));
      found += 1;
    }
    CHECK(found > 0);
  }
}
