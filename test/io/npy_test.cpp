// .npy files, byte for byte as NumPy writes them.
#include "io/npy.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "io/file.h"

namespace stft::io {
namespace {

template <typename Element>
std::string counting(std::size_t count) {
  std::vector<Element> elements;
  for (std::size_t i = 0; i < count; ++i) {
    elements.push_back(static_cast<Element>(i));
  }
  return {reinterpret_cast<const char*>(elements.data()), count * sizeof(Element)};
}

std::string golden(const std::string& name) {
  return read_text_file(std::string(STFT_SOURCE_DIR) + "/test/golden/io/" + name);
}

std::string header(Dtype dtype, const std::vector<std::int64_t>& shape) {
  return npy_header(dtype, shape);
}

}  // namespace

TEST_CASE("npy files equal those of numpy.save", "[npy]") {
  CHECK(header(Dtype::kF32, {3, 5}) + counting<float>(15) == golden("float32.npy"));
  CHECK(header(Dtype::kI8, {12, 2}) + counting<std::int8_t>(24) == golden("int8.npy"));
  CHECK(header(Dtype::kU8, {0, 384}) == golden("uint8_empty.npy"));
  CHECK(header(Dtype::kF64, {4}) + counting<double>(4) == golden("float64_1d.npy"));
}

TEST_CASE("the elements of an npy file start at a multiple of 64 bytes whatever the shape", "[npy]") {
  std::vector<std::int64_t> shape = {1};
  for (int dimensions = 1; dimensions < 30; ++dimensions) {
    const std::string bytes = header(Dtype::kF32, shape);
    CHECK(bytes.size() % 64 == 0);
    CHECK(bytes.back() == '\n');
    const auto length = static_cast<unsigned char>(bytes[8]) + 256 * static_cast<unsigned char>(bytes[9]);
    CHECK(static_cast<std::size_t>(length) + 10 == bytes.size());
    shape.push_back(7);
  }
}

}  // namespace stft::io
