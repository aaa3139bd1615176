#include "model/family_config.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"

namespace stft::model {
namespace {

constexpr int64_t kMaxLayers = 4094;  // what the dropout's counter has room for

}  // namespace

void FamilyConfig::refuse(const std::string& key, const std::string& what) const {
  throw UserError(fmt::format("{}: {}: {}", origin_, key, what));
}

int64_t FamilyConfig::checked_positive(const std::string& key, int64_t value) const {
  if (value <= 0 || value > (int64_t{1} << 31)) {
    refuse(key, fmt::format("expected a positive number, found {}", value));
  }
  return value;
}

int64_t FamilyConfig::positive(const std::string& key) const {
  return checked_positive(key, io::get_int(json_, key, origin_));
}

std::optional<int64_t> FamilyConfig::optional_positive(const std::string& key) const {
  const auto value = io::optional_int(json_, key, origin_);
  return value ? std::optional(checked_positive(key, *value)) : std::nullopt;
}

int64_t FamilyConfig::positive(const std::string& key, int64_t or_else) const {
  return optional_positive(key).value_or(or_else);
}

int64_t FamilyConfig::index(const std::string& key, int64_t or_else) const {
  const int64_t value = io::optional_int(json_, key, origin_).value_or(or_else);
  if (value < 0 || value > (int64_t{1} << 31)) {
    refuse(key, fmt::format("expected 0 or a positive number, found {}", value));
  }
  return value;
}

std::optional<int64_t> FamilyConfig::padding_token(int64_t vocab_size, std::optional<int64_t> or_else) const {
  auto token = json_.contains("pad_token_id") ? io::optional_int(json_, "pad_token_id", origin_) : or_else;
  if (token && *token < 0) {
    token = *token + vocab_size;
  }
  if (token && (*token < 0 || *token >= vocab_size)) {
    refuse("pad_token_id", fmt::format("{} is no id of a vocabulary of {}", *token, vocab_size));
  }
  return token;
}

int64_t FamilyConfig::layers(const std::string& key) const {
  const int64_t value = positive(key);
  if (value > kMaxLayers) {
    refuse(key, fmt::format("expected at most {}, found {}", kMaxLayers, value));
  }
  return value;
}

double FamilyConfig::epsilon(const std::string& key, double or_else) const {
  const double value = io::optional_double(json_, key, origin_).value_or(or_else);
  if (!(value > 0 && value < 1)) {
    refuse(key, fmt::format("expected a number between 0 and 1, found {}", value));
  }
  return value;
}

double FamilyConfig::probability(const std::string& key, double or_else) const {
  const double value = io::optional_double(json_, key, origin_).value_or(or_else);
  if (!(value >= 0 && value < 1)) {
    refuse(key, fmt::format("expected a number from 0 to below 1, found {}", value));
  }
  return value;
}

std::optional<double> FamilyConfig::optional_positive_number(const std::string& key) const {
  const auto value = io::optional_double(json_, key, origin_);
  if (value && !(*value > 0 && std::isfinite(*value))) {
    refuse(key, fmt::format("expected a positive number, found {}", *value));
  }
  return value;
}

double FamilyConfig::positive_number(const std::string& key, double or_else) const {
  return optional_positive_number(key).value_or(or_else);
}

bool FamilyConfig::flag(const std::string& key, bool or_else) const {
  return io::optional_bool(json_, key, origin_).value_or(or_else);
}

std::string FamilyConfig::text(const std::string& key, const std::string& or_else) const {
  return io::optional_string(json_, key, origin_).value_or(or_else);
}

void FamilyConfig::require_text(const std::string& key, const std::string& available) const {
  const std::string value = text(key, available);
  if (value != available) {
    throw UserError(fmt::format("{}: {} '{}' is not available yet", origin_, key, value));
  }
}

void FamilyConfig::require_flag(const std::string& key, bool available) const {
  if (flag(key, available) != available) {
    throw UserError(fmt::format("{}: {} {} is not available yet", origin_, key, !available));
  }
}

void FamilyConfig::require_multiple(const std::string& key, int64_t value, const std::string& divisor_key,
                                    int64_t divisor) const {
  if (value % divisor != 0) {
    throw UserError(fmt::format("{}: {} {} is not a multiple of {} {}", origin_, key, value, divisor_key, divisor));
  }
}

}  // namespace stft::model
