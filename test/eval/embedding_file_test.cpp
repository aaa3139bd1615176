// Embeddings as files: what the bytes say, and where a file may not go.
#include "eval/embedding_file.h"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "io/file.h"
#include "io/json.h"
#include "io/npy.h"
#include "io/safetensors.h"
#include "io/temporary_directory.h"

namespace stft::eval {
namespace {

using Catch::Matchers::Contains;

// Numbers that a careless printer loses: neighbours of one, denormals, the ends of the range, negative zero.
at::Tensor awkward() {
  std::vector<float> values = {1.0F,
                               std::nextafter(1.0F, 2.0F),
                               std::nextafter(1.0F, 0.0F),
                               0.0F,
                               -0.0F,
                               0.1F,
                               -1.0F / 3.0F,
                               16777216.0F,
                               1e-45F,
                               1.17549435e-38F};
  values.push_back(std::numeric_limits<float>::max());
  values.push_back(std::numeric_limits<float>::lowest());
  return at::tensor(values, at::kFloat).view({4, 3});
}

std::string bytes_of(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()};
}

std::vector<io::Json> lines_of(const std::string& path) {
  std::vector<io::Json> lines;
  std::istringstream stream(io::read_text_file(path));
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(io::parse_json(line, path));
  }
  return lines;
}

}  // namespace

TEST_CASE("npy and safetensors files hold the matrix", "[embedding_file]") {
  const test::TemporaryDirectory directory;
  const std::vector<std::pair<at::Tensor, io::Dtype>> matrices = {
      {awkward(), io::Dtype::kF32},
      {awkward().narrow(1, 0, 2), io::Dtype::kF32},  // not contiguous
      {at::arange(-6, 6, at::kChar).view({3, 4}), io::Dtype::kI8},
      {at::arange(250, 256, at::kByte).view({2, 3}), io::Dtype::kU8},
      {at::empty({0, 5}), io::Dtype::kF32}};
  for (const auto& [matrix, dtype] : matrices) {
    const std::string npy = directory.path("e.npy");
    write_embeddings(npy, matrix);
    CHECK(io::read_text_file(npy) == io::npy_header(dtype, matrix.sizes()) + bytes_of(matrix.contiguous()));
    const std::string path = directory.path("e.safetensors");
    write_embeddings(path, matrix);
    const auto file = io::SafetensorsFile::open(path);
    REQUIRE(file.tensors().size() == 1);
    const io::TensorInfo& info = file.tensors()[0];
    CHECK(info.name == "embeddings");
    CHECK(info.dtype == dtype);
    CHECK(info.shape == matrix.sizes().vec());
    const auto stored = file.bytes(info);
    CHECK(std::string(reinterpret_cast<const char*>(stored.data()), stored.size()) == bytes_of(matrix.contiguous()));
  }
}

TEST_CASE("numbers of a jsonl file read back to the same float32", "[embedding_file]") {
  const test::TemporaryDirectory directory;
  const std::string path = directory.path("e.jsonl");
  const auto matrix = awkward();
  write_embeddings(path, matrix);
  const auto lines = lines_of(path);
  REQUIRE(lines.size() == 4);
  for (int64_t n = 0; n < 4; ++n) {
    const auto row = lines[static_cast<size_t>(n)].at("embedding").get<std::vector<double>>();
    REQUIRE(row.size() == 3);
    for (int64_t d = 0; d < 3; ++d) {
      const float expected = matrix.const_data_ptr<float>()[n * 3 + d];
      const auto found = static_cast<float>(row[static_cast<size_t>(d)]);
      CHECK(std::memcmp(&found, &expected, sizeof(float)) == 0);
    }
  }
}

TEST_CASE("quantized embeddings are integers in a jsonl file", "[embedding_file]") {
  const test::TemporaryDirectory directory;
  const std::string path = directory.path("e.jsonl");
  write_embeddings(path, at::tensor({-128, 0, 127}, at::kChar).view({1, 3}));
  CHECK(io::read_text_file(path) == "{\"embedding\": [-128, 0, 127]}\n");
  write_embeddings(path, at::tensor({0, 200, 255}, at::kByte).view({3, 1}));
  CHECK(io::read_text_file(path) == "{\"embedding\": [0]}\n{\"embedding\": [200]}\n{\"embedding\": [255]}\n");
  write_embeddings(path, at::empty({0, 3}));
  CHECK(io::read_text_file(path).empty());
}

TEST_CASE("a jsonl file larger than its buffer is whole", "[embedding_file]") {
  const test::TemporaryDirectory directory;
  const std::string path = directory.path("e.jsonl");
  const auto matrix = at::arange(0, 300000, at::kFloat).view({3000, 100});
  write_embeddings(path, matrix);
  const auto lines = lines_of(path);
  REQUIRE(lines.size() == 3000);
  for (int64_t n = 0; n < 3000; ++n) {
    CHECK(lines[static_cast<size_t>(n)].at("embedding").at(99) == 100.0 * static_cast<double>(n) + 99.0);
  }
}

TEST_CASE("an output path that cannot become a file is refused", "[embedding_file]") {
  const test::TemporaryDirectory directory;
  const auto refusal = [](const std::string& path, bool overwrites) {
    return test::message_of<UserError>([&] { check_embedding_path(path, overwrites); });
  };
  CHECK(refusal(directory.path("e.npy"), false).empty());
  CHECK(refusal("e-that-does-not-exist.jsonl", false).empty());
  CHECK_THAT(refusal(directory.path("e.csv"), false), Contains(".npy, .safetensors or .jsonl"));
  CHECK_THAT(refusal(directory.path("e"), false), Contains(".npy, .safetensors or .jsonl"));
  CHECK_THAT(refusal(directory.path("no/such/e.npy"), false), Contains("no/such"));
  const std::string existing = directory.write("there.npy", "x");
  CHECK_THAT(refusal(existing, false), Contains("--overwrite"));
  CHECK(refusal(existing, true).empty());
  CHECK_THAT(refusal(existing + "/e.npy", true), Contains("is not a directory"));
  std::filesystem::create_directory(directory.path("d.npy"));
  CHECK_THAT(refusal(directory.path("d.npy"), true), Contains("is a directory"));
}

}  // namespace stft::eval
