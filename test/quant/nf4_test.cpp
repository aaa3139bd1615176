// 4-bit quantization against bitsandbytes.
#include "quant/nf4.h"

#include <catch2/catch.hpp>
#include <limits>

#include "base/error.h"
#include "quant/nf4_golden.h"

namespace {

using namespace stft;
using namespace stft::quant;
using test::Quantized;

const char* const kCases[] = {"groups_bf16",     "outliers_fp32",      "odd_7x27_fp32", "short_5x50_fp32",
                              "zeros_3x50_fp32", "fp16_blocks_of_128", "storage_bf16",  "storage_fp32",
                              "edges_short",     "edges_nf4",          "edges_fp4",     "randn_fp4",
                              "odd_fp4"};

template <class T>
void check_case(const io::SafetensorsFile& file, const FourBitFormat& format, CpuLevel level) {
  const auto input = test::read_values<T>(file, "input");
  Quantized ours(std::ssize(input), format.blocksize);
  REQUIRE_FALSE(quantize_4bit<T>(format, input, ours.part(), level));
  CHECK(ours.packed == test::read_values<std::uint8_t>(file, "packed"));
  CHECK(ours.absmax == test::read_values<float>(file, "absmax"));

  std::vector<T> read(input.size());
  dequantize_4bit<T>(ours.view(format.type, format.blocksize), read, level);
  CHECK(test::bytes_of(read) == test::read_values<std::uint8_t>(file, "dequant_single"));
  const auto absmax = test::read_values<float>(file, "nested.absmax_dequant");
  dequantize_4bit<T>({four_bit_table(format.type).values, format.blocksize, ours.packed, absmax}, std::span(read),
                     level);
  CHECK(test::bytes_of(read) == test::read_values<std::uint8_t>(file, "dequant_double"));
}

QuantType type_of(const std::string& name) {
  return name == "nf4" ? QuantType::kNf4 : QuantType::kFp4;
}

TEST_CASE("bytes and values are those of bitsandbytes") {
  for (const char* name : kCases) {
    const auto file = io::SafetensorsFile::open(test::nf4_golden(name + std::string(".safetensors")));
    const std::string& described = file.metadata().at("format");  // "nf4/64"
    const FourBitFormat format = {type_of(described.substr(0, 3)), std::stoll(described.substr(4))};
    for (const CpuLevel level : cpu_levels()) {
      INFO(name << " " << cpu_level_name(level));
      const io::Dtype dtype = file.find("input")->dtype;
      if (dtype == io::Dtype::kF32) {
        check_case<float>(file, format, level);
      } else if (dtype == io::Dtype::kBF16) {
        check_case<Bf16>(file, format, level);
      } else {
        check_case<Fp16>(file, format, level);
      }
    }
  }
}

TEST_CASE("every block size gives the bytes of bitsandbytes") {
  const auto file = io::SafetensorsFile::open(test::nf4_golden("blocksizes.safetensors"));
  const auto input = test::read_values<float>(file, "input");
  for (const std::string name : {"nf4", "fp4"}) {
    for (std::int64_t blocksize = 32; blocksize <= 4096; blocksize *= 2) {
      const std::string prefix = name + "." + std::to_string(blocksize) + ".";
      INFO(prefix);
      Quantized ours(std::ssize(input), blocksize);
      REQUIRE_FALSE(quantize_4bit<float>({type_of(name), blocksize}, input, ours.part()));
      CHECK(ours.packed == test::read_values<std::uint8_t>(file, prefix + "packed"));
      CHECK(ours.absmax == test::read_values<float>(file, prefix + "absmax"));
    }
  }
}

TEST_CASE("the tables are those of bitsandbytes") {
  const auto file = io::SafetensorsFile::open(test::nf4_golden("tables.safetensors"));
  const auto vector_of = [](const auto& array) { return std::vector<float>(array.begin(), array.end()); };
  CHECK(vector_of(four_bit_table(QuantType::kNf4).values) == test::read_values<float>(file, "nf4"));
  CHECK(vector_of(four_bit_table(QuantType::kFp4).values) == test::read_values<float>(file, "fp4"));
  CHECK(vector_of(dynamic_map(MapSign::kSigned)) == test::read_values<float>(file, "signed"));
  CHECK(vector_of(dynamic_map(MapSign::kUnsigned)) == test::read_values<float>(file, "unsigned"));
  for (const QuantType type : {QuantType::kNf4, QuantType::kFp4}) {
    const FourBitTable& table = four_bit_table(type);
    for (std::size_t i = 0; i < table.thresholds.size(); ++i) {
      CHECK(table.thresholds[i] == (table.values[table.code_of_rank[i]] + table.values[table.code_of_rank[i + 1]]) / 2);
    }
  }
}

TEST_CASE("zeros have absmax 0 and the code of 0") {
  const std::vector<float> zeros(64);
  Quantized ours(64, 64);
  REQUIRE_FALSE(quantize_4bit<float>({}, zeros, ours.part()));
  CHECK(ours.absmax == std::vector<float>{0});
  CHECK(ours.packed == std::vector<std::uint8_t>(32, 0x77));
}

TEST_CASE("nothing is quantized to nothing") {
  Quantized ours(0, 64);
  CHECK_FALSE(quantize_4bit<float>({}, std::span<const float>(), ours.part()));
  dequantize_4bit<float>(ours.view(QuantType::kNf4, 64), std::span<float>());
}

TEST_CASE("what is not finite is found and named") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<std::int64_t> shape = {10, 30};
  for (const CpuLevel level : cpu_levels()) {
    for (const float bad : {nan, -nan, infinity, -infinity}) {
      for (const std::size_t at : {0U, 63U, 64U, 150U, 299U}) {
        INFO(cpu_level_name(level) << " " << bad << " at " << at);
        std::vector<float> values(300, 0.5F);
        values[at] = bad;
        Quantized ours(300, 64);
        CHECK(quantize_4bit<float>({}, values, ours.part(), level) == static_cast<std::int64_t>(at / 64));
        std::vector<Bf16> halves(values.size());
        std::transform(values.begin(), values.end(), halves.begin(), from_float<Bf16>);
        CHECK(quantize_4bit<Bf16>({}, halves, ours.part(), level) == static_cast<std::int64_t>(at / 64));
      }
    }
  }
  std::vector<float> part(64, 0.5F);
  part[3] = -infinity;
  CHECK_THROWS_WITH(refuse_not_finite<float>("encoder.weight", shape, 64, part),
                    "tensor 'encoder.weight' holds an infinity at [2, 7], which cannot be quantized to 4 bits");
  part[1] = nan;
  CHECK_THROWS_AS(refuse_not_finite<float>("w", shape, 64, part), UserError);
}

TEST_CASE("parts and pieces give the bytes of the whole") {
  const auto file = io::SafetensorsFile::open(test::nf4_golden("groups_bf16.safetensors"));
  const auto input = test::read_values<Bf16>(file, "input");
  const auto packed = test::read_values<std::uint8_t>(file, "packed");
  const auto absmax = test::read_values<float>(file, "absmax");
  const std::span<const Bf16> all(input);

  for (const std::size_t blocks : {1U, 7U, 256U}) {
    Quantized ours(std::ssize(input), 64);
    for (std::size_t first = 0; first < input.size(); first += blocks * 64) {
      const std::size_t size = std::min(blocks * 64, input.size() - first);
      const QuantizedPart to = {ours.part().packed.subspan(first / 2, (size + 1) / 2),
                                ours.part().absmax.subspan(first / 64, (size + 63) / 64)};
      REQUIRE_FALSE(quantize_4bit<Bf16>({}, all.subspan(first, size), to));
    }
    CHECK(ours.packed == packed);
    CHECK(ours.absmax == absmax);
  }
  for (const std::size_t size : {1U, 63U, 64U, 65U, 120U, 1000U}) {
    Quantized ours(std::ssize(input), 64);
    PieceQuantizer quantizer({}, ours.part());
    for (std::size_t first = 0; first < input.size(); first += size) {
      REQUIRE_FALSE(quantizer.append(all.subspan(first, std::min(size, input.size() - first))));
    }
    REQUIRE_FALSE(quantizer.finish());
    CHECK(ours.packed == packed);
    CHECK(ours.absmax == absmax);
  }
}

TEST_CASE("pieces name the block that is not finite, and their number is checked") {
  std::vector<float> values(200, 1.0F);
  values[130] = std::numeric_limits<float>::infinity();
  Quantized ours(200, 64);
  PieceQuantizer quantizer({}, ours.part());
  CHECK_FALSE(quantizer.append(std::span<const float>(values).first(100)));
  CHECK(quantizer.append(std::span<const float>(values).subspan(100)) == 2);
  values[130] = 1;
  PieceQuantizer again({}, ours.part());
  CHECK_FALSE(again.append(std::span<const float>(values)));
  CHECK_FALSE(again.finish());
  PieceQuantizer few({}, ours.part());
  CHECK_FALSE(few.append(std::span<const float>(values).first(64)));
  CHECK_THROWS_AS(few.finish(), InternalError);
  PieceQuantizer many({}, ours.part());
  CHECK_THROWS_AS(many.append(std::span<const float>(std::vector<float>(320))), InternalError);
}

}  // namespace
