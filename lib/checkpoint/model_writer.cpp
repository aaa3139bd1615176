#include "checkpoint/model_writer.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <memory>

#include "base/error.h"
#include "checkpoint/dtype.h"
#include "io/json.h"

namespace stft::checkpoint {
namespace {

std::span<const std::byte> bytes_of(const at::Tensor& memory) {
  return {static_cast<const std::byte*>(memory.const_data_ptr()), static_cast<size_t>(memory.nbytes())};
}

// A finite value that fp16 would make infinite is refused. Some rows at a time.
void check_fits_half(const at::Tensor& values, const std::string& key) {
  constexpr double kRoundsToInfinity = 65520;
  for (const at::Tensor& part : values.reshape({-1}).split(int64_t{1} << 20)) {
    const auto size = part.abs();
    if (((size >= kRoundsToInfinity) & size.isfinite()).any().item<bool>()) {
      throw UserError(
          fmt::format("'{}' has values that fp16 cannot hold (its largest is 65504); write bf16 or fp32", key));
    }
  }
}

void append_as(io::SafetensorsWriter& writer, const WholeTensor& tensor, io::Dtype dtype, const std::string& key) {
  if (tensor.dtype == dtype) {
    writer.append(bytes_of(tensor.memory));
    return;
  }
  at::Tensor values = tensor.memory;
  if (tensor.dtype != io::Dtype::kF32 || values.scalar_type() != at::kFloat) {
    values = at::empty({static_cast<int64_t>(tensor.memory.nbytes()) * 8 / io::dtype_bits(tensor.dtype)}, at::kFloat);
    read_as_float(bytes_of(tensor.memory), tensor.dtype, values);
  }
  if (dtype == io::Dtype::kF16) {
    check_fits_half(values, key);
  }
  writer.append(write_as(values, dtype));
}

// The first top-level key of a config that tells the type: transformers 5 writes "dtype", older versions "torch_dtype".
std::optional<std::string> dtype_key(const std::string& config_text, const std::string& origin) {
  const io::Json config = io::parse_json(config_text, origin);
  for (const char* key : {"dtype", "torch_dtype"}) {
    if (config.is_object() && config.contains(key) && config[key].is_string()) {
      return key;
    }
  }
  return std::nullopt;
}

}  // namespace

void write_weights(const WeightPlan& plan, WeightPrecision precision, const WholeTensors& tensors,
                   const std::optional<std::string>& directory, Attempt& attempt) {
  for (const PlannedFile& file : plan) {
    std::vector<io::TensorSpec> specs;
    std::map<std::string, const PlannedTensor*> by_key;
    for (const PlannedTensor& tensor : file.tensors) {
      specs.push_back({tensor.key, written_dtype(tensor, precision), tensor.shape});
      by_key[tensor.key] = &tensor;
    }
    const std::string path = directory ? (std::filesystem::path(*directory) / file.path).string() : file.path;
    std::unique_ptr<io::SafetensorsWriter> writer;
    if (directory) {
      attempt.run([&] { writer = std::make_unique<io::SafetensorsWriter>(path, specs, file.metadata); });
    }
    for (const io::TensorInfo& info : io::safetensors_layout(path, specs)) {
      const PlannedTensor& planned = *by_key.at(info.name);
      WholeTensor whole;
      if (planned.is_parameter) {
        whole = tensors(file, planned);  // may be collective, so every rank asks, whatever failed
      } else {
        attempt.run([&] { whole = tensors(file, planned); });
      }
      if (directory) {
        attempt.run([&] { append_as(*writer, whole, info.dtype, info.name); });
      }
    }
    if (directory) {
      attempt.run([&] { writer->finish(); });
    }
  }
}

WholeTensor read_whole(const TensorSource& source, const std::string& key) {
  const auto found = source.find(key);
  STFT_CHECK(found.has_value(), "the tensor exists");
  WholeTensor whole;
  whole.dtype = found->dtype;
  whole.memory = at::empty({static_cast<int64_t>(*io::tensor_bytes(found->dtype, found->shape))}, at::kByte);
  source.read_rows(key, 0, all_rows(found->shape).count,
                   {static_cast<std::byte*>(whole.memory.data_ptr()), static_cast<size_t>(whole.memory.nbytes())});
  return whole;
}

std::optional<std::string> config_dtype(const std::string& config_text, const std::string& origin) {
  const auto key = dtype_key(config_text, origin);
  return key ? std::optional(io::parse_json(config_text, origin)[*key].get<std::string>()) : std::nullopt;
}

std::string with_config_dtype(const std::string& config_text, const std::string& dtype, const std::string& origin) {
  const auto key = dtype_key(config_text, origin);
  if (!key) {
    const size_t brace = config_text.find('{');
    const bool is_empty = io::parse_json(config_text, origin).empty();
    return config_text.substr(0, brace + 1) + "\n  \"dtype\": \"" + dtype + "\"" + (is_empty ? "\n" : ",") +
           config_text.substr(brace + 1);
  }
  // Of several places with this key (nested configurations) the outermost one counts: that of least depth.
  int depth = 0;
  bool is_string = false;
  const std::string quoted = "\"" + *key + "\"";
  for (size_t i = 0; i < config_text.size(); ++i) {
    const char c = config_text[i];
    if (is_string) {
      i += c == '\\' ? 1 : 0;
      is_string = c != '"';
      continue;
    }
    if (depth == 1 && config_text.compare(i, quoted.size(), quoted) == 0) {
      const size_t colon = config_text.find_first_not_of(" \t\r\n", i + quoted.size());
      if (colon != std::string::npos && config_text[colon] == ':') {
        const size_t begin = config_text.find('"', colon);
        const size_t end = config_text.find('"', begin + 1);
        return config_text.substr(0, begin + 1) + dtype + config_text.substr(end);
      }
    }
    depth += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
    is_string = c == '"';
  }
  throw_internal("the key is in the text", *key);
}

std::optional<std::string> precision_name(WeightPrecision precision) {
  switch (precision) {
    case WeightPrecision::kAsInput:
      return std::nullopt;
    case WeightPrecision::kMaster:
    case WeightPrecision::kFloat32:
      return "float32";
    case WeightPrecision::kBFloat16:
      return "bfloat16";
    case WeightPrecision::kFloat16:
      return "float16";
  }
  throw_internal("known precision", "");
}

}  // namespace stft::checkpoint
