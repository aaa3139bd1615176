#include "eval/embedding_file.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <iterator>

#include "base/error.h"
#include "io/file.h"
#include "io/npy.h"
#include "io/safetensors.h"

namespace stft::eval {
namespace {

namespace fs = std::filesystem;

constexpr size_t kFlushBytes = size_t{1} << 20;

io::Dtype stored_dtype(const at::Tensor& embeddings) {
  switch (embeddings.scalar_type()) {
    case at::kFloat:
      return io::Dtype::kF32;
    case at::kChar:
      return io::Dtype::kI8;
    case at::kByte:
      return io::Dtype::kU8;
    default:
      throw_internal("embeddings are float32, int8 or uint8", "embedding file");
  }
}

std::span<const std::byte> bytes_of(const at::Tensor& contiguous) {
  return {static_cast<const std::byte*>(contiguous.const_data_ptr()), contiguous.nbytes()};
}

void write_npy(const std::string& path, const at::Tensor& embeddings_ND) {
  io::PendingFile file(path);
  const std::string header = io::npy_header(stored_dtype(embeddings_ND), embeddings_ND.sizes());
  file.write(std::as_bytes(std::span(header)));
  file.write(bytes_of(embeddings_ND));
  file.commit();
}

void write_safetensors(const std::string& path, const at::Tensor& embeddings_ND) {
  io::SafetensorsWriter writer(path, {{"embeddings", stored_dtype(embeddings_ND), embeddings_ND.sizes().vec()}}, {});
  writer.append(bytes_of(embeddings_ND));
  writer.finish();
}

void append_number(std::string& line, float value) {
  fmt::format_to(std::back_inserter(line), "{:#.9g}", value);
}

void append_number(std::string& line, int value) {
  fmt::format_to(std::back_inserter(line), "{}", value);
}

template <typename Element>
void write_lines(io::PendingFile& file, const at::Tensor& embeddings_ND) {
  const int64_t width = embeddings_ND.size(1);
  const auto* values = embeddings_ND.const_data_ptr<Element>();
  std::string text;
  for (int64_t n = 0; n < embeddings_ND.size(0); ++n) {
    text += "{\"embedding\": [";
    for (int64_t d = 0; d < width; ++d) {
      text += d == 0 ? "" : ", ";
      append_number(text, values[n * width + d]);
    }
    text += "]}\n";
    if (text.size() >= kFlushBytes) {
      file.write(std::as_bytes(std::span(text)));
      text.clear();
    }
  }
  file.write(std::as_bytes(std::span(text)));
}

void write_jsonl(const std::string& path, const at::Tensor& embeddings_ND) {
  io::PendingFile file(path);
  switch (stored_dtype(embeddings_ND)) {
    case io::Dtype::kI8:
      write_lines<int8_t>(file, embeddings_ND);
      break;
    case io::Dtype::kU8:
      write_lines<uint8_t>(file, embeddings_ND);
      break;
    default:
      write_lines<float>(file, embeddings_ND);
      break;
  }
  file.commit();
}

struct Format {
  const char* extension;
  void (*write)(const std::string&, const at::Tensor&);
};
constexpr std::array<Format, 3> kFormats = {
    {{".npy", write_npy}, {".safetensors", write_safetensors}, {".jsonl", write_jsonl}}};

const Format& format_of(const std::string& path) {
  const std::string extension = fs::path(path).extension().string();
  for (const Format& format : kFormats) {
    if (extension == format.extension) {
      return format;
    }
  }
  throw UserError(fmt::format("--output: '{}' must end in .npy, .safetensors or .jsonl", path));
}

}  // namespace

void check_embedding_path(const std::string& path, bool overwrites) {
  format_of(path);
  std::error_code error;
  if (fs::is_directory(path, error)) {
    throw UserError(fmt::format("--output: '{}' is a directory", path));
  }
  if (!overwrites && fs::exists(path, error)) {
    throw UserError(fmt::format("--output: '{}' exists already; use another name or --overwrite", path));
  }
  const std::string directory = fs::absolute(path).parent_path().string();
  if (!fs::is_directory(directory, error)) {
    throw UserError(fmt::format("--output: '{}' is not a directory", directory));
  }
  if (::access(directory.c_str(), W_OK | X_OK) != 0) {
    throw UserError(fmt::format("--output: no permission to write in '{}'", directory));
  }
}

void write_embeddings(const std::string& path, const at::Tensor& embeddings_ND) {
  format_of(path).write(path, embeddings_ND.contiguous());
}

}  // namespace stft::eval
