#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "io/utf8.h"

namespace stft::io {
namespace {

constexpr std::uint64_t kHeaderCap = 100'000'000;  // what readers accept

}  // namespace

std::vector<TensorInfo> safetensors_layout(const std::string& path, std::vector<TensorSpec> tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorSpec& a, const TensorSpec& b) {
    return a.dtype != b.dtype ? a.dtype > b.dtype : a.name < b.name;
  });
  std::vector<TensorInfo> layout;
  layout.reserve(tensors.size());
  std::uint64_t position = 0;
  for (TensorSpec& tensor : tensors) {
    const auto size = tensor_bytes(tensor.dtype, tensor.shape);
    std::uint64_t end = 0;
    if (!size || __builtin_add_overflow(position, *size, &end)) {
      throw UserError(fmt::format("{}: tensor '{}': {} of shape [{}] cannot be stored", path, tensor.name,
                                  dtype_name(tensor.dtype), fmt::join(tensor.shape, ", ")));
    }
    layout.push_back({std::move(tensor.name), tensor.dtype, std::move(tensor.shape), position, end});
    position = end;
  }
  return layout;
}

namespace {

void check_names(const std::string& path, const std::vector<TensorInfo>& layout) {
  std::vector<std::string_view> names;
  names.reserve(layout.size());
  for (const TensorInfo& info : layout) names.push_back(info.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) throw UserError(fmt::format("{}: tensor '{}' is given twice", path, *twice));
  for (const std::string_view name : names) {
    if (name == "__metadata__") throw UserError(fmt::format("{}: a tensor may not be named '__metadata__'", path));
    if (first_invalid_utf8(name)) throw UserError(fmt::format("{}: a tensor's name is not valid UTF-8", path));
  }
}

std::string quoted(const std::string& text) {
  return Json(text).dump();
}

std::string header_of(const std::vector<TensorInfo>& layout, const std::map<std::string, std::string>& metadata) {
  std::string header = "{";
  if (!metadata.empty()) {
    header += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      if (header.back() != '{') header += ',';
      header += quoted(key) + ":" + quoted(value);
    }
    header += '}';
  }
  for (const TensorInfo& info : layout) {
    if (header.size() > 1) header += ',';
    header += fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", quoted(info.name),
                          dtype_name(info.dtype), fmt::join(info.shape, ","), info.begin, info.end);
  }
  header += '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return header;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<TensorSpec> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : file_(path), layout_(safetensors_layout(path, std::move(tensors))) {
  check_names(path, layout_);
  for (const auto& [key, value] : metadata) {
    if (first_invalid_utf8(key) || first_invalid_utf8(value)) {
      throw UserError(fmt::format("{}: the metadata are not valid UTF-8", path));
    }
  }
  const std::string header = header_of(layout_, metadata);
  if (header.size() > kHeaderCap) {
    throw UserError(fmt::format("{}: header of {} bytes, at most {} are allowed", path, header.size(), kHeaderCap));
  }
  std::string length(8, '\0');
  for (std::size_t i = 0; i < length.size(); ++i) length[i] = static_cast<char>(header.size() >> (8 * i) & 0xFF);
  file_.write(std::as_bytes(std::span(length)));
  file_.write(std::as_bytes(std::span(header)));
}

void SafetensorsWriter::append(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  while (current_ < layout_.size() && layout_[current_].end == written_) ++current_;
  STFT_CHECK(current_ < layout_.size(), fmt::format("{}: more data than its tensors hold", file_.path()));
  const TensorInfo& tensor = layout_[current_];
  STFT_CHECK(bytes.size() <= tensor.end - written_,
             fmt::format("{}: {} bytes appended, {} are left of '{}'", file_.path(), bytes.size(),
                         tensor.end - written_, tensor.name));
  file_.write(bytes);
  written_ += bytes.size();
}

void SafetensorsWriter::finish() {
  const std::uint64_t expected = layout_.empty() ? 0 : layout_.back().end;
  STFT_CHECK(written_ == expected,
             fmt::format("{}: {} of {} bytes of data were appended", file_.path(), written_, expected));
  file_.commit();
}

}  // namespace stft::io
