#include "io/safetensors.h"

#include <catch2/catch.hpp>
#include <cstring>

#include "base/error.h"
#include "io/file.h"
#include "io/temporary_directory.h"

namespace stft::io {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
using test::message_of;

const std::string kGolden = std::string(STFT_SOURCE_DIR) + "/test/golden/io/every_dtype.safetensors";

std::string length_bytes(std::uint64_t length) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(length >> (8 * i) & 0xFF);
  return bytes;
}

std::string file_bytes(std::string_view header, std::size_t data_bytes) {
  return length_bytes(header.size()) + std::string(header) + std::string(data_bytes, '\0');
}

// One tensor's entry.
std::string f32(const std::string& name, const std::string& shape, const std::string& offsets) {
  return "\"" + name + R"(":{"dtype":"F32","shape":[)" + shape + R"(],"data_offsets":[)" + offsets + "]}";
}

// What opening these bytes says; empty: they are accepted.
std::string verdict(const std::string& bytes) {
  const test::TemporaryDirectory directory;
  const std::string path = directory.write("m.safetensors", bytes);
  std::string message = message_of<UserError>([&] { SafetensorsFile::open(path); });
  if (message.empty()) return message;
  const std::string prefix = path + ": not a valid safetensors file: ";
  REQUIRE_THAT(message, StartsWith(prefix));
  return message.substr(prefix.size());
}

std::string verdict(std::string_view header, std::size_t data_bytes) {
  return verdict(file_bytes(header, data_bytes));
}

std::span<const std::byte> as_span(const std::string& text) {
  return std::as_bytes(std::span(text));
}

TEST_CASE("safetensors: valid oddities are accepted") {
  CHECK(verdict("{" + f32("a", "2", "0,8") + "}", 8).empty());
  CHECK(verdict("{}", 0).empty());
  CHECK(verdict("  {" + f32("a", "2", "0,8") + "}   ", 8).empty());
  CHECK(verdict("{" + f32("b", "1", "4,8") + "," + f32("a", "1", "0,4") + "}", 8).empty());
  CHECK(verdict("{" + f32("a", "", "0,4") + "}", 4).empty());
  CHECK(verdict("{" + f32("a", "0,3", "0,0") + "," + f32("b", "1", "0,4") + "}", 4).empty());
  CHECK(verdict("{" + f32("a", "1", "0,4") + "," + f32("z", "0", "4,4") + "," + f32("b", "1", "4,8") + "}", 8).empty());
  CHECK(verdict(R"({"__metadata__":null})", 0).empty());
  CHECK(verdict(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"more":{"x":[]}}})", 4).empty());
  CHECK(verdict(R"({"a":{"dtype":"F4","shape":[4],"data_offsets":[0,2]}})", 2).empty());
  CHECK(verdict(R"({"a":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[0,3]}})", 3).empty());
}

TEST_CASE("safetensors: hostile and broken files are refused") {
  SECTION("empty file") {
    CHECK_THAT(verdict(""), StartsWith("it has 0 bytes"));
  }
  SECTION("shorter than the length field") {
    CHECK_THAT(verdict("1234567"), StartsWith("it has 7 bytes"));
  }
  SECTION("header of no bytes") {
    CHECK_THAT(verdict("", 0), Contains("not valid JSON"));
  }
  SECTION("header over the cap") {
    CHECK(verdict(length_bytes(100'000'001) + "{}") == "header of 100000001 bytes, at most 100000000 are allowed");
  }
  SECTION("header length of 2^64 - 1") {
    CHECK_THAT(verdict(length_bytes(~std::uint64_t{0}) + "{}"), Contains("at most 100000000"));
  }
  SECTION("header longer than the file") {
    CHECK(verdict(length_bytes(1000) + "{}") == "header of 1000 bytes in a file of 10: the file is truncated");
  }
  SECTION("header is not UTF-8") {
    CHECK_THAT(verdict("{\"\xFF\":1}", 0), Contains("not valid UTF-8"));
  }
  SECTION("header is not JSON") {
    CHECK_THAT(verdict("{nope}", 0), Contains("not valid JSON"));
  }
  SECTION("header is cut off") {
    CHECK_THAT(verdict("{\"a\":{", 0), Contains("not valid JSON"));
  }
  SECTION("header is a list") {
    CHECK(verdict("[]", 0) == "the header is a list, not an object");
  }
  SECTION("header with a byte order mark") {
    CHECK_THAT(verdict("\xEF\xBB\xBF{}", 0), Contains("byte order mark"));
  }
  SECTION("NUL after the header") {
    CHECK(verdict(std::string("{}\0", 3), 0) == "header byte 2: not valid JSON: a NUL byte");
  }
  SECTION("text after the header") {
    CHECK_THAT(verdict("{} {}", 0), Contains("not valid JSON"));
  }
  SECTION("deep nesting") {
    CHECK_THAT(verdict("{\"a\":" + std::string(1'000'000, '['), 0), Contains("nested over"));
  }
  SECTION("duplicate tensor") {
    CHECK_THAT(verdict("{" + f32("a", "2", "0,8") + "," + f32("a", "2", "0,8") + "}", 8),
               Contains("key 'a' is given twice"));
  }
  SECTION("duplicate field") {
    CHECK_THAT(verdict(R"({"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4),
               Contains("key 'dtype' is given twice"));
  }
  SECTION("hole between tensors") {
    CHECK(verdict("{" + f32("a", "2", "0,8") + "," + f32("b", "2", "12,20") + "}", 20) ==
          "tensor 'b': data_offsets [12, 20] leave a hole after byte 8 of the data");
  }
  SECTION("hole at the start") {
    CHECK_THAT(verdict("{" + f32("a", "2", "4,12") + "}", 12), Contains("leave a hole after byte 0"));
  }
  SECTION("overlap") {
    CHECK(verdict("{" + f32("a", "2", "0,8") + "," + f32("b", "2", "4,12") + "}", 12) ==
          "tensor 'b': data_offsets [4, 12] overlap the tensor before it");
  }
  SECTION("alias") {
    CHECK_THAT(verdict("{" + f32("a", "2", "0,8") + "," + f32("b", "2", "0,8") + "}", 8), Contains("overlap"));
  }
  SECTION("trailing bytes") {
    CHECK(verdict("{" + f32("a", "2", "0,8") + "}", 9) == "1 bytes of data after the last tensor's end");
    CHECK(verdict("{}", 3) == "3 bytes of data after the last tensor's end");
  }
  SECTION("truncated data") {
    CHECK(verdict("{" + f32("a", "2", "0,8") + "}", 7) ==
          "tensor 'a': data_offsets [0, 8] in 7 bytes of data: the file is truncated");
  }
  SECTION("shape and size disagree") {
    CHECK(verdict("{" + f32("a", "3", "0,8") + "}", 8) ==
          "tensor 'a': F32 of shape [3] takes 12 bytes, data_offsets [0, 8] give it 8");
  }
  SECTION("end before begin") {
    CHECK_THAT(verdict("{" + f32("a", "2", "8,0") + "}", 8), Contains("end before"));
  }
  SECTION("offsets of 2^64 - 1") {
    CHECK_THAT(verdict("{" + f32("a", "2", "0,18446744073709551615") + "}", 8), Contains("takes 8 bytes"));
    CHECK_THAT(verdict("{" + f32("a", "2", "18446744073709551608,18446744073709551615") + "}", 8), Contains("hole"));
  }
  SECTION("offsets that are not two unsigned integers") {
    for (const char* offsets : {"0", "0,4,8", "-4,0", "0,4.0", "0,\"4\"", "0,18446744073709551616"}) {
      CHECK_THAT(verdict("{" + f32("a", "1", offsets) + "}", 4), Contains("data_offsets is not a list of two"));
    }
  }
  SECTION("shape overflows") {
    CHECK_THAT(verdict("{" + f32("a", "9223372036854775807,4", "0,8") + "}", 8), Contains("fits 64 bits"));
    CHECK_THAT(verdict("{" + f32("a", "4611686018427387904,4,1", "0,0") + "}", 0), Contains("fits 64 bits"));
    CHECK_THAT(verdict("{" + f32("a", "2305843009213693952", "0,0") + "}", 0), Contains("fits 64 bits"));
  }
  SECTION("shape that is not a list of unsigned integers") {
    CHECK_THAT(verdict("{" + f32("a", "-2", "0,8") + "}", 8), Contains("shape holds -2"));
    CHECK_THAT(verdict("{" + f32("a", "2.0", "0,8") + "}", 8), Contains("shape holds 2.0"));
    CHECK_THAT(verdict("{" + f32("a", "9223372036854775808", "0,8") + "}", 8), Contains("63 bits"));
    CHECK_THAT(verdict("{" + f32("a", "18446744073709551616", "0,8") + "}", 8), Contains("63 bits"));
    CHECK_THAT(verdict(R"({"a":{"dtype":"F32","shape":2,"data_offsets":[0,8]}})", 8), Contains("shape is an integer"));
  }
  SECTION("shape of very many dimensions") {
    std::string shape = "1";
    for (int i = 0; i < 64; ++i) shape += ",1";
    CHECK(verdict("{" + f32("a", shape, "0,4") + "}", 4) ==
          "tensor 'a': shape of 65 dimensions, at most 64 are allowed");
  }
  SECTION("dtype unknown, in lower case or not a string") {
    CHECK_THAT(verdict(R"({"a":{"dtype":"Q4","shape":[2],"data_offsets":[0,8]}})", 8), Contains("unknown dtype 'Q4'"));
    CHECK_THAT(verdict(R"({"a":{"dtype":"f32","shape":[2],"data_offsets":[0,8]}})", 8),
               Contains("unknown dtype 'f32'"));
    CHECK_THAT(verdict(R"({"a":{"dtype":1,"shape":[2],"data_offsets":[0,8]}})", 8), Contains("dtype is an integer"));
  }
  SECTION("sub-byte elements that do not fill bytes") {
    CHECK_THAT(verdict(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})", 2), Contains("whole bytes"));
  }
  SECTION("missing field") {
    CHECK(verdict(R"({"a":{"dtype":"F32","shape":[2]}})", 8) == "tensor 'a': data_offsets is missing");
    CHECK(verdict(R"({"a":{"dtype":"F32","data_offsets":[0,8]}})", 8) == "tensor 'a': shape is missing");
    CHECK(verdict(R"({"a":{"shape":[2],"data_offsets":[0,8]}})", 8) == "tensor 'a': dtype is missing");
  }
  SECTION("entry that is not an object") {
    CHECK(verdict(R"({"a":[1]})", 0) == "tensor 'a': a list, not an object");
  }
  SECTION("metadata of other types") {
    CHECK(verdict(R"({"__metadata__":{"x":1}})", 0) == "__metadata__ key 'x' is an integer, not a string");
    CHECK(verdict(R"({"__metadata__":"x"})", 0) == "__metadata__ is a string, not an object");
  }
}

TEST_CASE("safetensors: the file of the reference implementation is read") {
  const SafetensorsFile file = SafetensorsFile::open(kGolden);
  CHECK(file.metadata() == std::map<std::string, std::string>{{"format", "pt"}});
  CHECK(file.tensors().size() == 24);
  CHECK(file.tensors().front().name == "ulong");
  CHECK(file.find("nothing") == nullptr);
  const TensorInfo* weight = file.find("layer.1.weight");
  REQUIRE(weight != nullptr);
  CHECK(weight->dtype == Dtype::kF32);
  CHECK(weight->shape == std::vector<std::int64_t>{2, 3});
  const auto all = file.bytes(*weight);
  REQUIRE(all.size() == 24);
  for (std::size_t i = 0; i < all.size(); ++i) CHECK(std::to_integer<std::size_t>(all[i]) == i);
  const auto second = file.rows(*weight, 1, 1);
  CHECK(second.data() == all.data() + 12);
  CHECK(second.size() == 12);
  CHECK(file.rows(*weight, 0, 2).size() == 24);
  CHECK(file.rows(*weight, 2, 0).empty());
  CHECK(file.rows(*file.find("scalar"), 0, 1).size() == 4);
  CHECK(file.rows(*file.find("empty"), 0, 0).empty());
  CHECK_THROWS_AS(file.rows(*weight, 1, 2), InternalError);
  CHECK_THROWS_AS(file.rows(*weight, -1, 1), InternalError);
}

TEST_CASE("safetensors: the writer's file is byte-identical to the reference implementation's") {
  const test::TemporaryDirectory directory;
  const std::string path = directory.path("out.safetensors");
  const SafetensorsFile golden = SafetensorsFile::open(kGolden);
  // Any order of the tensors gives the same file.
  std::vector<TensorSpec> specs;
  for (const TensorInfo& info : golden.tensors()) specs.insert(specs.begin(), {info.name, info.dtype, info.shape});
  SafetensorsWriter writer(path, specs, {{"format", "pt"}});
  REQUIRE(writer.layout().size() == golden.tensors().size());
  for (const TensorInfo& info : writer.layout()) {
    std::string content;
    const std::size_t modulus = info.dtype == Dtype::kBool ? 2 : 251;
    for (std::size_t i = 0; i < info.end - info.begin; ++i) content += static_cast<char>(i % modulus);
    const std::size_t half = content.size() / 2;  // in two pieces
    writer.append(as_span(content).first(half));
    writer.append(as_span(content).subspan(half));
  }
  CHECK_FALSE(std::filesystem::exists(path));
  writer.finish();
  CHECK(directory.file_count() == 1);
  const bool is_identical = read_text_file(path) == read_text_file(kGolden);
  CHECK(is_identical);
}

TEST_CASE("safetensors: the writer guards its file") {
  const test::TemporaryDirectory directory;
  const std::string path = directory.path("out.safetensors");
  const std::string four(4, 'x');
  SECTION("unfinished leaves nothing") {
    {
      SafetensorsWriter writer(path, {{"a", Dtype::kF32, {2}}}, {});
      writer.append(as_span(four));
      CHECK_THROWS_AS(writer.finish(), InternalError);
    }
    CHECK(directory.file_count() == 0);
  }
  SECTION("a piece may not run over its tensor, nor the data over the layout") {
    SafetensorsWriter writer(path, {{"a", Dtype::kF32, {1}}, {"b", Dtype::kU8, {2}}, {"z", Dtype::kF32, {0}}}, {});
    writer.append(as_span(four));
    CHECK_THROWS_AS(writer.append(as_span(four)), InternalError);
    writer.append(as_span(four).first(2));
    CHECK_THROWS_AS(writer.append(as_span(four)), InternalError);
    writer.finish();
    CHECK(SafetensorsFile::open(path).tensors().size() == 3);
  }
  SECTION("no tensors, no metadata") {
    SafetensorsWriter writer(path, {}, {});
    writer.finish();
    CHECK(read_text_file(path) == length_bytes(8) + "{}      ");
  }
  SECTION("names and sizes that cannot be stored") {
    const auto refusal = [&](std::vector<TensorSpec> specs) {
      return message_of<UserError>([&] { SafetensorsWriter(path, std::move(specs), {}); });
    };
    CHECK_THAT(refusal({{"a", Dtype::kF32, {1}}, {"a", Dtype::kU8, {1}}}), Contains("'a' is given twice"));
    CHECK_THAT(refusal({{"\xFF", Dtype::kF32, {1}}}), Contains("UTF-8"));
    CHECK_THAT(refusal({{"__metadata__", Dtype::kF32, {1}}}), Contains("__metadata__"));
    CHECK_THAT(refusal({{"a", Dtype::kF32, {-1}}}), Contains("cannot be stored"));
    CHECK_THAT(refusal({{"a", Dtype::kF4, {3}}}), Contains("cannot be stored"));
    CHECK(directory.file_count() == 0);
  }
  SECTION("a directory that does not exist") {
    CHECK_THROWS_AS(SafetensorsWriter(directory.path("no/out.safetensors"), {}, {}), SystemError);
  }
}

TEST_CASE("safetensors: dtype names round trip") {
  for (int i = 0; i <= static_cast<int>(Dtype::kU64); ++i) {
    const auto dtype = static_cast<Dtype>(i);
    CHECK(dtype_from_name(dtype_name(dtype)) == dtype);
  }
  CHECK(dtype_bits(Dtype::kF4) == 4);
  CHECK(dtype_bits(Dtype::kBF16) == 16);
  CHECK(dtype_bits(Dtype::kC64) == 64);
}

}  // namespace
}  // namespace stft::io
