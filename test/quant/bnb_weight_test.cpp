// The tensors and the config block of quantized models.
#include "quant/bnb_weight.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <limits>
#include <map>

#include "base/error.h"
#include "quant/bnb_config.h"
#include "quant/nf4_golden.h"

namespace {

using namespace stft;
using namespace stft::quant;
using Catch::Matchers::Contains;

struct Stored {
  StoredShape shape;
  std::vector<std::byte> bytes;
};
using Tensors = std::map<std::string, Stored>;

Stored stored(io::Dtype dtype, std::vector<std::int64_t> shape, std::vector<std::byte> bytes) {
  Stored tensor;
  tensor.shape.dtype = dtype;
  tensor.shape.shape = std::move(shape);
  tensor.bytes = std::move(bytes);
  return tensor;
}

std::vector<std::byte> bytes_of_text(const std::string& text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

TensorReader reader_of(const Tensors& tensors) {
  return {"model.safetensors",
          [&tensors](const std::string& key) -> std::optional<StoredShape> {
            const auto found = tensors.find(key);
            return found == tensors.end() ? std::nullopt : std::optional(found->second.shape);
          },
          [&tensors](const std::string& key) { return tensors.at(key).bytes; }};
}

Tensors tensors_of(const std::string& path) {
  const auto file = io::SafetensorsFile::open(path);
  Tensors tensors;
  for (const io::TensorInfo& info : file.tensors()) {
    const auto bytes = file.bytes(info);
    tensors[info.name] = stored(info.dtype, info.shape, {bytes.begin(), bytes.end()});
  }
  return tensors;
}

Tensors golden_tensors(const std::string& folder) {
  return tensors_of(test::nf4_golden(folder + "/model.safetensors"));
}

std::vector<std::uint8_t> codes_of(const std::vector<std::byte>& bytes) {
  return test::values_of<std::uint8_t>(bytes);
}

TEST_CASE("prequantized models are read as bitsandbytes reads them") {
  for (const std::string folder : {"prequantized_single", "prequantized_double"}) {
    const Tensors tensors = golden_tensors(folder);
    const TensorReader reader = reader_of(tensors);
    const auto expected = io::SafetensorsFile::open(test::nf4_golden(folder + "/expected_dequantized.safetensors"));
    CHECK(expected.tensors().size() == 7);
    CHECK_FALSE(is_four_bit(reader, "embeddings.word_embeddings.weight"));
    for (const io::TensorInfo& info : expected.tensors()) {
      INFO(folder << " " << info.name);
      REQUIRE(is_four_bit(reader, info.name));
      const FourBitWeight weight = read_four_bit(reader, info.name);
      CHECK(weight.nested.has_value() == (folder == "prequantized_double"));
      CHECK(weight.shape == info.shape);
      CHECK(weight.dtype == io::Dtype::kF32);
      const auto absmax = read_absmax(weight, 0, tensors.at(info.name + ".absmax").bytes, reader.path);
      std::vector<float> read(static_cast<std::size_t>(weight.elements()));
      const auto codes = codes_of(tensors.at(info.name).bytes);
      dequantize_4bit<float>({weight.values, weight.format.blocksize, codes, absmax}, read);
      CHECK(read == test::read_values<float>(expected, info.name));
    }
  }
}

TEST_CASE("what is written has the bytes of bitsandbytes") {
  for (const std::string folder : {"prequantized_single", "prequantized_double"}) {
    const Tensors tensors = golden_tensors(folder);
    const std::string key = "encoder.layer.0.intermediate.dense.weight";
    const FourBitWeight weight = read_four_bit(reader_of(tensors), key);
    const auto specs = four_bit_specs(weight);
    CHECK(specs.size() == (weight.nested ? 6 : 4));
    for (const io::TensorSpec& spec : specs) {
      INFO(folder << " " << spec.name);
      const Stored& stored = tensors.at(spec.name);
      CHECK(spec.dtype == stored.shape.dtype);
      CHECK(spec.shape == stored.shape.shape);
      if (spec.name != key && spec.name != key + ".absmax") {
        CHECK(four_bit_bytes(weight, spec.name) == stored.bytes);
      }
    }
    CHECK_THROWS_AS(four_bit_bytes(weight, key), InternalError);
  }
}

TEST_CASE("states have the text of bitsandbytes") {
  for (const char* name : {"groups_bf16", "outliers_fp32", "fp16_blocks_of_128", "randn_fp4", "odd_7x27_fp32"}) {
    for (const bool nested : {false, true}) {
      INFO(name << " " << nested);
      const auto file = io::SafetensorsFile::open(test::nf4_golden(name + std::string(".safetensors")));
      const std::string format = file.metadata().at("format");
      FourBitWeight weight;
      weight.key = "w";
      weight.format = {format.substr(0, 3) == "nf4" ? QuantType::kNf4 : QuantType::kFp4, std::stoll(format.substr(4))};
      weight.dtype = file.find("input")->dtype;
      weight.shape = file.find("input")->shape;
      if (nested) {
        weight.nested = NestedStatistics{};
        weight.nested->offset = test::read_values<float>(file, "nested.offset")[0];
      }
      const auto text = four_bit_bytes(weight, "w.quant_state.bitsandbytes__" + format.substr(0, 3));
      CHECK(codes_of(text) == test::read_values<std::uint8_t>(file, nested ? "double.json" : "single.json"));
    }
  }
}

// A weight of 300 blocks of 64 (the last one short by 10) with double quantization and codes stored as bfloat16.
Tensors grouped_tensors() {
  const std::string state =
      R"({"quant_type": "fp4", "blocksize": 64, "dtype": "bfloat16", "shape": [2, 9595], "nested_blocksize": 256, )"
      R"("nested_dtype": "float32", "nested_offset": 0.5})";
  const float one = 1;
  const float groups[] = {2, 3};
  Tensors tensors;
  tensors["w"] = stored(io::Dtype::kU8, {9595, 1}, std::vector<std::byte>(9595, std::byte{0x31}));
  tensors["w.absmax"] = stored(io::Dtype::kU8, {300}, std::vector<std::byte>(300, std::byte{255}));
  tensors["w.quant_map"] = stored(io::Dtype::kF32, {16}, std::vector<std::byte>(64));
  tensors["w.nested_quant_map"] = stored(io::Dtype::kF32, {256}, std::vector<std::byte>(1024));
  std::memcpy(tensors["w.nested_quant_map"].bytes.data() + 1020, &one, 4);
  tensors["w.nested_absmax"] = stored(io::Dtype::kF32, {2}, std::vector<std::byte>(8));
  std::memcpy(tensors["w.nested_absmax"].bytes.data(), groups, 8);
  tensors["w.quant_state.bitsandbytes__fp4"] = stored(io::Dtype::kU8, {std::ssize(state)}, bytes_of_text(state));
  return tensors;
}

TEST_CASE("a rank reads the rows of its groups only") {
  const Tensors tensors = grouped_tensors();
  FourBitWeight weight = read_four_bit(reader_of(tensors), "w");
  CHECK(weight.blocks() == 300);
  const StoredRows first = packed_rows(weight, 0, 256);
  const StoredRows last = packed_rows(weight, 256, 44);
  CHECK(first.first == 0);
  CHECK(first.count == 8192);
  CHECK(last.first == 8192);
  CHECK(last.count == 9595 - 8192);
  weight.storage = io::Dtype::kF32;
  CHECK(packed_rows(weight, 0, 256).count == 2048);
  CHECK_THROWS_AS(packed_rows(weight, 64, 236), InternalError);
  const std::span<const std::byte> absmax(tensors.at("w.absmax").bytes);
  CHECK(read_absmax(weight, 0, absmax.first(256), "p") == std::vector<float>(256, 2.5F));
  CHECK(read_absmax(weight, 256, absmax.subspan(256), "p") == std::vector<float>(44, 3.5F));
  weight.nested->absmax[1] = std::numeric_limits<float>::infinity();
  CHECK_THROWS_WITH(read_absmax(weight, 256, absmax.subspan(256), "p"),
                    Contains("p: quantized weight 'w': tensor 'w.absmax' gives inf for block 256"));
}

TEST_CASE("codes stored as another type are the same bytes") {
  for (const char* name : {"storage_bf16", "storage_fp32"}) {
    const auto file = io::SafetensorsFile::open(test::nf4_golden(name + std::string(".safetensors")));
    const auto from_file = [&](const std::string& tensor) {
      const io::TensorInfo& info = *file.find(tensor);
      const auto bytes = file.bytes(info);
      return stored(info.dtype, info.shape, {bytes.begin(), bytes.end()});
    };
    const auto* map = reinterpret_cast<const std::byte*>(four_bit_table(QuantType::kNf4).values.data());
    Tensors tensors;
    tensors["w"] = from_file("packed");
    tensors["w.absmax"] = from_file("absmax");
    tensors["w.quant_state.bitsandbytes__nf4"] = from_file("single.json");
    tensors["w.quant_map"] = stored(io::Dtype::kF32, {16}, {map, map + 64});
    const FourBitWeight weight = read_four_bit(reader_of(tensors), "w");
    CHECK(weight.storage == file.find("packed")->dtype);
    CHECK(packed_rows(weight, 0, weight.blocks()).count == file.find("packed")->shape[0]);
    CHECK(four_bit_specs(weight)[0].shape == file.find("packed")->shape);
    std::vector<Bf16> read(static_cast<std::size_t>(weight.elements()));
    const auto codes = codes_of(tensors["w"].bytes);
    const auto absmax = read_absmax(weight, 0, tensors["w.absmax"].bytes, "p");
    dequantize_4bit<Bf16>({weight.values, 64, codes, absmax}, read);
    CHECK(test::bytes_of(read) == test::read_values<std::uint8_t>(file, "dequant_single"));
  }
}

struct BadTensors {
  const char* message;
  std::function<void(Tensors&)> spoil;
};

void replace_in_state(Tensors& tensors, const std::string& from, const std::string& to) {
  Stored& state = tensors.at("w.quant_state.bitsandbytes__fp4");
  std::string text(reinterpret_cast<const char*>(state.bytes.data()), state.bytes.size());
  text.replace(text.find(from), from.size(), to);
  state = stored(io::Dtype::kU8, {std::ssize(text)}, bytes_of_text(text));
}

const float kInfinity = std::numeric_limits<float>::infinity();

const BadTensors kBadTensors[] = {
    {"has no 'w.quant_state.bitsandbytes__nf4' nor", [](Tensors& t) { t.erase("w.quant_state.bitsandbytes__fp4"); }},
    {"has both a state of nf4 and one of fp4",
     [](Tensors& t) { t["w.quant_state.bitsandbytes__nf4"] = t["w.quant_state.bitsandbytes__fp4"]; }},
    {"is F32 [3], expected U8 of one dimension",
     [](Tensors& t) {
       t["w.quant_state.bitsandbytes__fp4"].shape = {io::Dtype::kF32, {3}};
     }},
    {"not valid JSON", [](Tensors& t) { replace_in_state(t, "}", ""); }},
    {"quant_type 'nf4', expected 'fp4'", [](Tensors& t) { replace_in_state(t, "fp4", "nf4"); }},
    {"quant_type", [](Tensors& t) { replace_in_state(t, R"("quant_type": "fp4", )", ""); }},
    {"blocksize 48; allowed", [](Tensors& t) { replace_in_state(t, R"("blocksize": 64)", R"("blocksize": 48)"); }},
    {"blocksize 0; allowed", [](Tensors& t) { replace_in_state(t, R"("blocksize": 64)", R"("blocksize": 0)"); }},
    {"blocksize", [](Tensors& t) { replace_in_state(t, R"("blocksize": 64)", R"("blocksize": "64")"); }},
    {"dtype 'float64'; allowed", [](Tensors& t) { replace_in_state(t, "bfloat16", "float64"); }},
    {"has no shape", [](Tensors& t) { replace_in_state(t, R"("shape": [2, 9595])", R"("shape": null)"); }},
    {"says shape [2,-1]", [](Tensors& t) { replace_in_state(t, "[2, 9595]", "[2, -1]"); }},
    {"says shape [2,1.5]", [](Tensors& t) { replace_in_state(t, "[2, 9595]", "[2, 1.5]"); }},
    {"says shape [9223372036854775807,9595]",
     [](Tensors& t) { replace_in_state(t, "[2, 9595]", "[9223372036854775807, 9595]"); }},
    {"says shape [18446744073709551615]",
     [](Tensors& t) { replace_in_state(t, "[2, 9595]", "[18446744073709551615]"); }},
    {"has 9595 bytes of codes, but its shape [2, 9600] takes 9600",
     [](Tensors& t) { replace_in_state(t, "[2, 9595]", "[2, 9600]"); }},
    {"has a state but no codes", [](Tensors& t) { t.erase("w"); }},
    {"expected one column",
     [](Tensors& t) {
       t["w"].shape.shape = {5, 1919};
     }},
    {"tensor 'w.quant_map' is missing", [](Tensors& t) { t.erase("w.quant_map"); }},
    {"tensor 'w.quant_map' is F32 [15], expected F32 [16]", [](Tensors& t) { t["w.quant_map"].shape.shape = {15}; }},
    {"tensor 'w.quant_map' holds inf at [0]",
     [](Tensors& t) { std::memcpy(t["w.quant_map"].bytes.data(), &kInfinity, 4); }},
    {"tensor 'w.absmax' is missing", [](Tensors& t) { t.erase("w.absmax"); }},
    {"tensor 'w.absmax' is U8 [299], expected U8 [300]", [](Tensors& t) { t["w.absmax"].shape.shape = {299}; }},
    {"tensor 'w.absmax' is F32 [300], expected U8 [300]",
     [](Tensors& t) { t["w.absmax"].shape.dtype = io::Dtype::kF32; }},
    {"tensor 'w.nested_absmax' is missing", [](Tensors& t) { t.erase("w.nested_absmax"); }},
    {"tensor 'w.nested_absmax' is F32 [3], expected F32 [2]",
     [](Tensors& t) { t["w.nested_absmax"].shape.shape = {3}; }},
    {"tensor 'w.nested_absmax' holds inf at [1]",
     [](Tensors& t) { std::memcpy(t["w.nested_absmax"].bytes.data() + 4, &kInfinity, 4); }},
    {"tensor 'w.nested_quant_map' is missing", [](Tensors& t) { t.erase("w.nested_quant_map"); }},
    {"nested_offset", [](Tensors& t) { replace_in_state(t, R"(, "nested_offset": 0.5)", ""); }},
    {"nested_offset is too large for float32", [](Tensors& t) { replace_in_state(t, "0.5", "1e300"); }},
    {"nested_blocksize 128; allowed is 256", [](Tensors& t) { replace_in_state(t, "256", "128"); }},
    {"nested_dtype 'float16'; allowed is float32", [](Tensors& t) { replace_in_state(t, "float32", "float16"); }},
};

TEST_CASE("every fault of a quantized weight is named") {
  CHECK_NOTHROW(read_four_bit(reader_of(grouped_tensors()), "w"));
  for (const BadTensors& bad : kBadTensors) {
    INFO(bad.message);
    Tensors tensors = grouped_tensors();
    bad.spoil(tensors);
    CHECK_THROWS_AS(read_four_bit(reader_of(tensors), "w"), UserError);
    CHECK_THROWS_WITH(read_four_bit(reader_of(tensors), "w"), Contains(bad.message) && Contains("model.safetensors"));
  }
}

TEST_CASE("the config block comes back as transformers writes it") {
  for (const std::string folder : {"prequantized_single", "prequantized_double"}) {
    const auto config = io::read_json_file(test::nf4_golden(folder + "/config.json"));
    const auto read = read_quantization_config(config, "config.json");
    REQUIRE(read);
    CHECK(read->quant_type == QuantType::kNf4);
    CHECK(read->double_quant == (folder == "prequantized_double"));
    CHECK(read->compute_dtype == WeightDtype::kBf16);
    CHECK(quantization_config_json(*read).dump() == config.at("quantization_config").dump());
  }
}

TEST_CASE("a short config block has bitsandbytes' defaults, a wrong one is refused") {
  const auto read = [](const char* text) {
    return read_quantization_config(io::parse_json(text, "config.json"), "config.json");
  };
  CHECK_FALSE(read("{}"));
  CHECK_FALSE(read(R"({"quantization_config": null})"));
  const auto defaults = read(R"({"quantization_config": {"load_in_4bit": true}})");
  CHECK(defaults->quant_type == QuantType::kFp4);
  CHECK_FALSE(defaults->double_quant);
  CHECK(defaults->compute_dtype == WeightDtype::kFp32);
  CHECK(defaults->storage == io::Dtype::kU8);
  const auto skipping = read(
      R"({"quantization_config": {"_load_in_4bit": true, "llm_int8_skip_modules": ["a", "b"], "bnb_4bit_quant_storage": "torch.bfloat16"}})");
  CHECK(skipping->skip_modules == std::vector<std::string>{"a", "b"});
  CHECK(skipping->storage == io::Dtype::kBF16);
  CHECK(quantization_config_json(*skipping).at("llm_int8_skip_modules").dump() == R"(["a","b"])");
  CHECK_THROWS_WITH(read(R"({"quantization_config": {"quant_method": "gptq"}})"),
                    "config.json: quantization_config: quant_method is 'gptq'; allowed is bitsandbytes");
  CHECK_THROWS_WITH(read(R"({"quantization_config": {"load_in_8bit": true}})"), Contains("load_in_8bit is true"));
  CHECK_THROWS_WITH(read(R"({"quantization_config": {}})"), Contains("load_in_4bit is not true"));
  CHECK_THROWS_WITH(read(R"({"quantization_config": {"load_in_4bit": true, "bnb_4bit_quant_type": "int4"}})"),
                    Contains("bnb_4bit_quant_type is 'int4'; allowed are nf4, fp4"));
  CHECK_THROWS_WITH(read(R"({"quantization_config": {"load_in_4bit": true, "bnb_4bit_compute_dtype": "int8"}})"),
                    Contains("allowed are float32, bfloat16, float16"));
  CHECK_THROWS_AS(read(R"({"quantization_config": 3})"), UserError);
  CHECK_THROWS_AS(read(R"({"quantization_config": {"load_in_4bit": true, "llm_int8_skip_modules": [3]}})"), UserError);
}

}  // namespace
