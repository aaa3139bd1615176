#include "io/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <tuple>

#include "base/error.h"
#include "io/json.h"
#include "io/utf8.h"

namespace stft::io {
namespace {

constexpr std::uint64_t kHeaderCap = 100'000'000;
constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kMaxDimensions = 64;  // of any tensor library

struct DtypeRow {
  Dtype dtype;
  std::string_view name;
  int bits;
};

constexpr std::array<DtypeRow, 22> kDtypes{{
    {Dtype::kBool, "BOOL", 8},
    {Dtype::kF4, "F4", 4},
    {Dtype::kF6E2M3, "F6_E2M3", 6},
    {Dtype::kF6E3M2, "F6_E3M2", 6},
    {Dtype::kU8, "U8", 8},
    {Dtype::kI8, "I8", 8},
    {Dtype::kF8E5M2, "F8_E5M2", 8},
    {Dtype::kF8E4M3, "F8_E4M3", 8},
    {Dtype::kF8E8M0, "F8_E8M0", 8},
    {Dtype::kF8E4M3Fnuz, "F8_E4M3FNUZ", 8},
    {Dtype::kF8E5M2Fnuz, "F8_E5M2FNUZ", 8},
    {Dtype::kI16, "I16", 16},
    {Dtype::kU16, "U16", 16},
    {Dtype::kF16, "F16", 16},
    {Dtype::kBF16, "BF16", 16},
    {Dtype::kI32, "I32", 32},
    {Dtype::kU32, "U32", 32},
    {Dtype::kF32, "F32", 32},
    {Dtype::kC64, "C64", 64},
    {Dtype::kF64, "F64", 64},
    {Dtype::kI64, "I64", 64},
    {Dtype::kU64, "U64", 64},
}};

const DtypeRow& row_of(Dtype dtype) {
  return kDtypes.at(static_cast<std::size_t>(dtype));
}

// A hostile name may be millions of bytes long.
std::string_view shown(std::string_view name) {
  return name.substr(0, 200);
}

std::string allowed_dtypes() {
  std::string names;
  for (const DtypeRow& row : kDtypes) {
    if (!names.empty()) names += ", ";
    names += row.name;
  }
  return names;
}

class HeaderReader {
 public:
  explicit HeaderReader(const std::string& path) : path_(path) {}

  [[noreturn]] void fail(std::string_view problem) const {
    throw UserError(fmt::format("{}: not a valid safetensors file: {}", path_, problem));
  }

  // The header's text, out of the whole file.
  std::string_view header_text(std::string_view file) const {
    if (file.size() < kLengthBytes) {
      fail(fmt::format("it has {} bytes, the header's length alone takes {}", file.size(), kLengthBytes));
    }
    std::uint64_t length = 0;
    for (std::size_t i = 0; i < kLengthBytes; ++i) {
      length |= std::uint64_t{static_cast<unsigned char>(file[i])} << (8 * i);
    }
    if (length > kHeaderCap) fail(fmt::format("header of {} bytes, at most {} are allowed", length, kHeaderCap));
    if (length > file.size() - kLengthBytes) {
      fail(fmt::format("header of {} bytes in a file of {}: the file is truncated", length, file.size()));
    }
    return file.substr(kLengthBytes, length);
  }

  Json parse(std::string_view text) const {
    if (text.starts_with("\xEF\xBB\xBF")) fail("the header starts with a byte order mark");
    JsonResult result = try_parse_json(text);
    if (result.failure) {
      fail(fmt::format("header byte {}: not valid JSON: {}", result.failure->offset, result.failure->reason));
    }
    if (!result.value.is_object()) fail(fmt::format("the header is {}, not an object", json_type_name(result.value)));
    return std::move(result.value);
  }

  std::map<std::string, std::string> metadata(const Json& value) const {
    std::map<std::string, std::string> entries;
    if (value.is_null()) return entries;
    if (!value.is_object()) fail(fmt::format("__metadata__ is {}, not an object", json_type_name(value)));
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) {
        fail(fmt::format("__metadata__ key '{}' is {}, not a string", shown(key), json_type_name(text)));
      }
      entries.emplace(key, text.get<std::string>());
    }
    return entries;
  }

  TensorInfo tensor(const std::string& name, const Json& entry) const {
    if (!entry.is_object()) fail_tensor(name, fmt::format("{}, not an object", json_type_name(entry)));
    TensorInfo info;
    info.name = name;
    info.dtype = dtype(name, field(name, entry, "dtype"));
    info.shape = shape(name, field(name, entry, "shape"));
    const Json& offsets = field(name, entry, "data_offsets");
    if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
        !offsets[1].is_number_unsigned()) {
      fail_tensor(name, "data_offsets is not a list of two unsigned integers");
    }
    info.begin = offsets[0].get<std::uint64_t>();
    info.end = offsets[1].get<std::uint64_t>();
    return info;
  }

  // The tensors, sorted by offset, must tile the data.
  void check_coverage(const std::vector<TensorInfo>& tensors, std::uint64_t data_size) const {
    std::uint64_t position = 0;
    for (const TensorInfo& info : tensors) {
      const std::string problem = coverage_problem(info, position, data_size);
      if (!problem.empty()) fail_tensor(info.name, problem);
      position = info.end;
    }
    if (position != data_size) {
      fail(fmt::format("{} bytes of data after the last tensor's end", data_size - position));
    }
  }

 private:
  [[noreturn]] void fail_tensor(std::string_view name, std::string_view problem) const {
    fail(fmt::format("tensor '{}': {}", shown(name), problem));
  }

  // What is wrong with a tensor that must begin at `position`; empty: nothing.
  static std::string coverage_problem(const TensorInfo& info, std::uint64_t position, std::uint64_t data_size) {
    const auto offsets = [&] { return fmt::format("data_offsets [{}, {}]", info.begin, info.end); };
    const auto what = [&] {
      return fmt::format("{} of shape [{}]", dtype_name(info.dtype), fmt::join(info.shape, ", "));
    };
    if (info.end < info.begin) return offsets() + " end before they begin";
    if (info.begin < position) return offsets() + " overlap the tensor before it";
    if (info.begin > position) {
      return fmt::format("{} leave a hole after byte {} of the data", offsets(), position);
    }
    const auto size = tensor_bytes(info.dtype, info.shape);
    if (!size) return what() + " has no size in whole bytes that fits 64 bits";
    if (*size != info.end - info.begin) {
      return fmt::format("{} takes {} bytes, {} give it {}", what(), *size, offsets(), info.end - info.begin);
    }
    if (info.end > data_size) {
      return fmt::format("{} in {} bytes of data: the file is truncated", offsets(), data_size);
    }
    return {};
  }

  const Json& field(const std::string& name, const Json& entry, const char* key) const {
    const auto found = entry.find(key);
    if (found == entry.end()) fail_tensor(name, fmt::format("{} is missing", key));
    return *found;
  }

  Dtype dtype(const std::string& name, const Json& value) const {
    if (!value.is_string()) fail_tensor(name, fmt::format("dtype is {}, not a string", json_type_name(value)));
    const auto& text = value.get_ref<const std::string&>();
    const auto dtype = dtype_from_name(text);
    if (!dtype) fail_tensor(name, fmt::format("unknown dtype '{}'; known: {}", shown(text), allowed_dtypes()));
    return *dtype;
  }

  std::vector<std::int64_t> shape(const std::string& name, const Json& value) const {
    if (!value.is_array()) fail_tensor(name, fmt::format("shape is {}, not a list", json_type_name(value)));
    if (value.size() > kMaxDimensions) {
      fail_tensor(name, fmt::format("shape of {} dimensions, at most {} are allowed", value.size(), kMaxDimensions));
    }
    std::vector<std::int64_t> dims;
    dims.reserve(value.size());
    for (const Json& dim : value) {
      if (!dim.is_number_unsigned() ||
          dim.get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        fail_tensor(name,
                    fmt::format("shape holds {}, which is not an unsigned integer of 63 bits", shown(dim.dump())));
      }
      dims.push_back(static_cast<std::int64_t>(dim.get<std::uint64_t>()));
    }
    return dims;
  }

  const std::string& path_;
};

}  // namespace

int dtype_bits(Dtype dtype) {
  return row_of(dtype).bits;
}

std::string_view dtype_name(Dtype dtype) {
  return row_of(dtype).name;
}

std::optional<Dtype> dtype_from_name(std::string_view name) {
  for (const DtypeRow& row : kDtypes) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> tensor_bytes(Dtype dtype, std::span<const std::int64_t> shape) {
  std::uint64_t bits = 1;
  for (const std::int64_t dim : shape) {
    if (dim < 0 || __builtin_mul_overflow(bits, static_cast<std::uint64_t>(dim), &bits)) return std::nullopt;
  }
  if (__builtin_mul_overflow(bits, static_cast<std::uint64_t>(dtype_bits(dtype)), &bits)) return std::nullopt;
  if (bits % 8 != 0) return std::nullopt;
  return bits / 8;
}

SafetensorsFile SafetensorsFile::open(const std::string& path) {
  SafetensorsFile opened(path);
  const HeaderReader reader(opened.path_);
  const std::string_view text = reader.header_text(opened.file_.text());
  opened.data_offset_ = kLengthBytes + text.size();
  const Json header = reader.parse(text);
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      opened.metadata_ = reader.metadata(entry);
    } else {
      opened.tensors_.push_back(reader.tensor(name, entry));
    }
  }
  std::sort(opened.tensors_.begin(), opened.tensors_.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  reader.check_coverage(opened.tensors_, opened.file_.size() - opened.data_offset_);
  for (std::size_t i = 0; i < opened.tensors_.size(); ++i) opened.index_.emplace(opened.tensors_[i].name, i);
  return opened;
}

const TensorInfo* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

std::span<const std::byte> SafetensorsFile::bytes(const TensorInfo& tensor) const {
  STFT_CHECK(tensor.begin <= tensor.end && tensor.end <= file_.size() - data_offset_, "a tensor of another file");
  return {file_.data() + data_offset_ + tensor.begin, static_cast<std::size_t>(tensor.end - tensor.begin)};
}

std::span<const std::byte> SafetensorsFile::rows(const TensorInfo& tensor, std::int64_t first_row,
                                                 std::int64_t count) const {
  const std::span<const std::byte> all = bytes(tensor);
  const std::int64_t total = tensor.shape.empty() ? 1 : tensor.shape[0];
  STFT_CHECK(first_row >= 0 && count >= 0 && first_row <= total && count <= total - first_row,
             fmt::format("rows {} + {} of '{}', which has {}", first_row, count, tensor.name, total));
  if (count == 0) return {};
  const auto row_count = static_cast<std::size_t>(total);
  STFT_CHECK(all.size() % row_count == 0, "a row of sub-byte elements does not fill whole bytes");
  const std::size_t row_bytes = all.size() / row_count;
  STFT_CHECK(dtype_bits(tensor.dtype) >= 8 || row_bytes * 8 % static_cast<std::size_t>(dtype_bits(tensor.dtype)) == 0,
             "a row of sub-byte elements does not fill whole bytes");
  return all.subspan(static_cast<std::size_t>(first_row) * row_bytes, static_cast<std::size_t>(count) * row_bytes);
}

}  // namespace stft::io
