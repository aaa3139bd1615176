#include "checkpoint/quantization_file.h"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>

#include "base/error.h"
#include "io/file.h"
#include "io/json.h"
#include "quant/nf4.h"

namespace stft::checkpoint {
namespace {

constexpr const char* kType = "bnb_4bit_quant_type";
constexpr const char* kDouble = "bnb_4bit_use_double_quant";
constexpr const char* kBlocksize = "blocksize";
constexpr const char* kHash = "quantized_base_hash";

uint64_t parse_hash(const std::string& text, const std::string& path) {
  uint64_t hash = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, hash, 16);
  if (text.empty() || parsed.ec != std::errc() || parsed.ptr != end) {
    throw UserError(fmt::format("{}: {}: found '{}', expected a hexadecimal number", path, kHash, text.substr(0, 40)));
  }
  return hash;
}

}  // namespace

std::string to_json(const QuantizationRecord& record) {
  const bool is_nf4 = record.config.bnb_4bit_quant_type == quant::QuantType::kNf4;
  const nlohmann::ordered_json values = {{kType, is_nf4 ? "nf4" : "fp4"},
                                         {kDouble, record.config.bnb_4bit_use_double_quant},
                                         {kBlocksize, record.config.blocksize},
                                         {kHash, fmt::format("{:016x}", record.base_hash)}};
  return values.dump(2) + "\n";
}

std::optional<QuantizationRecord> read_quantization_file(const std::string& directory) {
  const std::string path = (std::filesystem::path(directory) / kQuantizationFile).string();
  if (!std::filesystem::exists(path)) {
    return std::nullopt;
  }
  const io::Json values = io::parse_json(io::read_text_file(path), path);
  QuantizationRecord record;
  const std::string type = io::get_string(values, kType, path);
  if (type != "nf4" && type != "fp4") {
    throw UserError(fmt::format("{}: {}: found '{}', allowed: nf4, fp4", path, kType, type.substr(0, 40)));
  }
  record.config.bnb_4bit_quant_type = type == "nf4" ? quant::QuantType::kNf4 : quant::QuantType::kFp4;
  record.config.bnb_4bit_use_double_quant = io::get_bool(values, kDouble, path);
  record.config.blocksize = io::get_int(values, kBlocksize, path);
  if (!quant::is_blocksize(record.config.blocksize)) {
    throw UserError(fmt::format("{}: {}: found {}, expected a power of two from 32 to 4096", path, kBlocksize,
                                record.config.blocksize));
  }
  record.base_hash = parse_hash(io::get_string(values, kHash, path), path);
  return record;
}

}  // namespace stft::checkpoint
