#include "quant/bnb_weight.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "io/json.h"
#include "quant/nf4_double.h"

namespace stft::quant {

namespace {

constexpr const char* kStatePrefix = ".quant_state.bitsandbytes__";
constexpr std::int64_t kMostElements = std::int64_t{1} << 40;

const char* type_name(QuantType type) {
  return type == QuantType::kNf4 ? "nf4" : "fp4";
}

std::string state_key(const std::string& key, QuantType type) {
  return key + kStatePrefix + type_name(type);
}

struct DtypeName {
  io::Dtype dtype;
  const char* name;
};
constexpr DtypeName kDtypeNames[] = {
    {io::Dtype::kF32, "float32"}, {io::Dtype::kBF16, "bfloat16"}, {io::Dtype::kF16, "float16"}};

// The checks of one weight's tensors.
class WeightReader {
 public:
  WeightReader(const TensorReader& from, const std::string& key) : from_(from), key_(key) {}

  FourBitWeight read();

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw UserError(fmt::format("{}: quantized weight '{}': {}", from_.path, key_, what));
  }

  std::string origin(const std::string& key) const { return fmt::format("{}: tensor '{}'", from_.path, key); }

  QuantType find_type() const;
  void read_state(FourBitWeight& weight) const;
  void check_state(FourBitWeight& weight, const io::Json& state) const;
  void check_packed(FourBitWeight& weight) const;
  void read_nested(FourBitWeight& weight, const io::Json& state) const;
  StoredShape require(const std::string& key, io::Dtype dtype, std::int64_t count) const;
  std::vector<float> read_floats(const std::string& key, std::int64_t count) const;
  bool has(const std::string& key) const { return from_.find(key).has_value(); }

  const TensorReader& from_;
  const std::string& key_;
};

QuantType WeightReader::find_type() const {
  const bool nf4 = has(state_key(key_, QuantType::kNf4));
  const bool fp4 = has(state_key(key_, QuantType::kFp4));
  if (nf4 && fp4) {
    fail("has both a state of nf4 and one of fp4");
  }
  if (!nf4 && !fp4) {
    fail(fmt::format("has no '{}' nor '{}'", state_key(key_, QuantType::kNf4), state_key(key_, QuantType::kFp4)));
  }
  return nf4 ? QuantType::kNf4 : QuantType::kFp4;
}

StoredShape WeightReader::require(const std::string& key, io::Dtype dtype, std::int64_t count) const {
  const auto found = from_.find(key);
  if (!found) {
    fail(fmt::format("tensor '{}' is missing", key));
  }
  if (found->dtype != dtype || found->shape != std::vector<std::int64_t>{count}) {
    fail(fmt::format("tensor '{}' is {} [{}], expected {} [{}]", key, io::dtype_name(found->dtype),
                     fmt::join(found->shape, ", "), io::dtype_name(dtype), count));
  }
  return *found;
}

std::vector<float> WeightReader::read_floats(const std::string& key, std::int64_t count) const {
  require(key, io::Dtype::kF32, count);
  const std::vector<std::byte> bytes = from_.read(key);
  std::vector<float> values(static_cast<std::size_t>(count));
  STFT_CHECK(bytes.size() == values.size() * sizeof(float), "bytes of another number of values");
  std::memcpy(values.data(), bytes.data(), bytes.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) {
      fail(fmt::format("tensor '{}' holds {} at [{}]", key, values[i], i));
    }
  }
  return values;
}

void WeightReader::check_state(FourBitWeight& weight, const io::Json& state) const {
  const std::string where = origin(state_key(key_, weight.format.type));
  const std::string type = io::get_string(state, "quant_type", where);
  if (type != type_name(weight.format.type)) {
    fail(fmt::format("its state says quant_type '{}', expected '{}'", type, type_name(weight.format.type)));
  }
  weight.format.blocksize = io::get_int(state, "blocksize", where);
  if (!is_blocksize(weight.format.blocksize)) {
    fail(fmt::format("blocksize {}; allowed are the powers of two from 32 to 4096", weight.format.blocksize));
  }
  const std::string dtype = io::get_string(state, "dtype", where);
  const auto* known = std::find_if(std::begin(kDtypeNames), std::end(kDtypeNames),
                                   [&](const DtypeName& name) { return dtype == name.name; });
  if (known == std::end(kDtypeNames)) {
    fail(fmt::format("dtype '{}'; allowed are float32, bfloat16 and float16", dtype));
  }
  weight.dtype = known->dtype;
  const auto shape = state.find("shape");
  const bool is_list = shape != state.end() && shape->is_array() && !shape->empty();
  std::int64_t elements = 1;
  for (const io::Json& dimension : is_list ? *shape : io::Json::array()) {
    const bool fits = dimension.is_number_integer() && dimension.get<std::int64_t>() > 0 &&
                      dimension.get<std::int64_t>() <= kMostElements / elements;
    if (!fits) {
      fail(fmt::format("its state says shape {}", shape->dump()));
    }
    elements *= dimension.get<std::int64_t>();
    weight.shape.push_back(dimension.get<std::int64_t>());
  }
  if (weight.shape.empty()) {
    fail("its state has no shape");
  }
}

void WeightReader::check_packed(FourBitWeight& weight) const {
  const auto found = from_.find(key_);
  if (!found) {
    fail("has a state but no codes");
  }
  const auto bytes = io::tensor_bytes(found->dtype, found->shape);
  if (!bytes || found->shape.size() != 2 || found->shape[1] != 1 || io::dtype_bits(found->dtype) < 8) {
    fail(fmt::format("its codes are {} [{}], expected one column of a type of whole bytes",
                     io::dtype_name(found->dtype), fmt::join(found->shape, ", ")));
  }
  const std::int64_t expected = packed_size(weight.elements());
  if (*bytes != static_cast<std::uint64_t>(expected)) {
    fail(fmt::format("has {} bytes of codes, but its shape [{}] takes {}", *bytes, fmt::join(weight.shape, ", "),
                     expected));
  }
  weight.storage = found->dtype;
}

void WeightReader::read_nested(FourBitWeight& weight, const io::Json& state) const {
  const std::string absmax = key_ + ".nested_absmax";
  const std::string map = key_ + ".nested_quant_map";
  const bool any = has(absmax) || has(map) || state.contains("nested_offset") || state.contains("nested_blocksize");
  require(key_ + ".absmax", any ? io::Dtype::kU8 : io::Dtype::kF32, weight.blocks());
  if (!any) {
    return;
  }
  const std::string where = origin(state_key(key_, weight.format.type));
  const std::int64_t blocksize = io::get_int(state, "nested_blocksize", where);
  if (blocksize != kByteBlock) {
    fail(fmt::format("nested_blocksize {}; allowed is {}", blocksize, kByteBlock));
  }
  const std::string dtype = io::get_string(state, "nested_dtype", where);
  if (dtype != "float32") {
    fail(fmt::format("nested_dtype '{}'; allowed is float32", dtype));
  }
  NestedStatistics nested;
  nested.offset = static_cast<float>(io::get_double(state, "nested_offset", where));
  if (!std::isfinite(nested.offset)) {
    fail("nested_offset is too large for float32");
  }
  nested.absmax = read_floats(absmax, block_count(weight.blocks(), kByteBlock));
  const std::vector<float> values = read_floats(map, static_cast<std::int64_t>(nested.map.size()));
  if (!std::is_sorted(values.begin(), values.end())) {
    fail("nested_quant_map does not ascend");
  }
  std::copy(values.begin(), values.end(), nested.map.begin());
  weight.nested = std::move(nested);
}

FourBitWeight WeightReader::read() {
  FourBitWeight weight;
  weight.key = key_;
  weight.format.type = find_type();
  const std::string state = state_key(key_, weight.format.type);
  const auto found = from_.find(state);
  if (found->dtype != io::Dtype::kU8 || found->shape.size() != 1) {
    fail(fmt::format("tensor '{}' is {} [{}], expected U8 of one dimension", state, io::dtype_name(found->dtype),
                     fmt::join(found->shape, ", ")));
  }
  const std::vector<std::byte> text = from_.read(state);
  const io::Json json = io::parse_json({reinterpret_cast<const char*>(text.data()), text.size()}, origin(state));
  check_state(weight, json);
  check_packed(weight);
  const std::vector<float> values = read_floats(key_ + ".quant_map", static_cast<std::int64_t>(weight.values.size()));
  std::copy(values.begin(), values.end(), weight.values.begin());
  read_nested(weight, json);
  return weight;
}

// As Python's json writes a float: digits enough for a double, and always a fraction or an exponent.
std::string json_number(float value) {
  return io::Json(static_cast<double>(value)).dump();
}

std::string state_text(const FourBitWeight& weight) {
  const auto* dtype = std::find_if(std::begin(kDtypeNames), std::end(kDtypeNames),
                                   [&](const DtypeName& name) { return weight.dtype == name.dtype; });
  STFT_CHECK(dtype != std::end(kDtypeNames), "a weight of a dtype that is not quantized");
  std::string text =
      fmt::format(R"({{"quant_type": "{}", "blocksize": {}, "dtype": "{}", "shape": [{}])",
                  type_name(weight.format.type), weight.format.blocksize, dtype->name, fmt::join(weight.shape, ", "));
  if (weight.nested) {
    text += fmt::format(R"(, "nested_blocksize": {}, "nested_dtype": "float32", "nested_offset": {})", kByteBlock,
                        json_number(weight.nested->offset));
  }
  return text + "}";
}

std::vector<std::byte> bytes_of(const void* data, std::size_t size) {
  const auto* begin = static_cast<const std::byte*>(data);
  return {begin, begin + size};
}

}  // namespace

std::int64_t FourBitWeight::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t dimension : shape) {
    product *= dimension;
  }
  return product;
}

bool is_four_bit(const TensorReader& from, const std::string& key) {
  return from.find(state_key(key, QuantType::kNf4)) || from.find(state_key(key, QuantType::kFp4));
}

FourBitWeight read_four_bit(const TensorReader& from, const std::string& key) {
  return WeightReader(from, key).read();
}

StoredRows packed_rows(const FourBitWeight& weight, std::int64_t first_block, std::int64_t count) {
  STFT_CHECK(first_block % kByteBlock == 0 && (count % kByteBlock == 0 || first_block + count == weight.blocks()),
             "a part that is no whole groups");
  const std::int64_t element = io::dtype_bits(weight.storage) / 8;
  const std::int64_t begin = first_block * weight.format.blocksize / 2;
  const std::int64_t end = first_block + count == weight.blocks() ? packed_size(weight.elements())
                                                                  : (first_block + count) * weight.format.blocksize / 2;
  return {begin / element, (end - begin) / element};
}

std::vector<float> read_absmax(const FourBitWeight& weight, std::int64_t first_block, std::span<const std::byte> bytes,
                               const std::string& path) {
  std::vector<float> absmax(weight.nested ? bytes.size() : bytes.size() / sizeof(float));
  if (weight.nested) {
    STFT_CHECK(first_block % kByteBlock == 0, "a part that does not begin with a group");
    const NestedStatistics& nested = *weight.nested;
    for (std::size_t i = 0; i < absmax.size(); ++i) {
      const auto group = static_cast<std::size_t>(first_block / kByteBlock) + i / kByteBlock;
      absmax[i] = nested.map[std::to_integer<std::uint8_t>(bytes[i])] * nested.absmax[group];
      absmax[i] += nested.offset;
    }
  } else if (!absmax.empty()) {
    std::memcpy(absmax.data(), bytes.data(), absmax.size() * sizeof(float));
  }
  for (std::size_t i = 0; i < absmax.size(); ++i) {
    if (!std::isfinite(absmax[i])) {
      throw UserError(fmt::format("{}: quantized weight '{}': tensor '{}.absmax' gives {} for block {}", path,
                                  weight.key, weight.key, absmax[i], first_block + static_cast<std::int64_t>(i)));
    }
  }
  return absmax;
}

std::vector<io::TensorSpec> four_bit_specs(const FourBitWeight& weight) {
  const std::int64_t bytes = packed_size(weight.elements());
  const std::int64_t element = io::dtype_bits(weight.storage) / 8;
  STFT_CHECK(bytes % element == 0, "codes that do not fill the elements of their storage");
  std::vector<io::TensorSpec> specs = {
      {weight.key, weight.storage, {bytes / element, 1}},
      {weight.key + ".absmax", weight.nested ? io::Dtype::kU8 : io::Dtype::kF32, {weight.blocks()}},
      {weight.key + ".quant_map", io::Dtype::kF32, {16}},
      {state_key(weight.key, weight.format.type), io::Dtype::kU8, {std::ssize(state_text(weight))}}};
  if (weight.nested) {
    specs.push_back({weight.key + ".nested_absmax", io::Dtype::kF32, {std::ssize(weight.nested->absmax)}});
    specs.push_back({weight.key + ".nested_quant_map", io::Dtype::kF32, {256}});
  }
  return specs;
}

std::vector<std::byte> four_bit_bytes(const FourBitWeight& weight, const std::string& key) {
  if (key == weight.key + ".quant_map") {
    return bytes_of(weight.values.data(), sizeof weight.values);
  }
  if (key == state_key(weight.key, weight.format.type)) {
    const std::string text = state_text(weight);
    return bytes_of(text.data(), text.size());
  }
  STFT_CHECK(weight.nested, "a tensor that the weight does not hold");
  if (key == weight.key + ".nested_absmax") {
    return bytes_of(weight.nested->absmax.data(), weight.nested->absmax.size() * sizeof(float));
  }
  STFT_CHECK(key == weight.key + ".nested_quant_map", "a tensor that the weight does not hold");
  return bytes_of(weight.nested->map.data(), sizeof weight.nested->map);
}

}  // namespace stft::quant
