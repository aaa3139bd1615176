// config.json of an encoder, read with checks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "io/json.h"

namespace stft::model {

// Every method throws UserError naming the file and the key when the value has another type or is out of range; a key
// with a default may be missing or null.
class FamilyConfig {
 public:
  FamilyConfig(const io::Json& json, std::string origin) : json_(json), origin_(std::move(origin)) {}

  // At least 1.
  int64_t positive(const std::string& key) const;
  int64_t positive(const std::string& key, int64_t or_else) const;
  std::optional<int64_t> optional_positive(const std::string& key) const;
  // At least 0.
  int64_t index(const std::string& key, int64_t or_else) const;
  // pad_token_id, the token whose embedding gets no gradient: as torch's padding_idx, a negative one counts from the
  // end of the vocabulary.
  std::optional<int64_t> padding_token(int64_t vocab_size, std::optional<int64_t> or_else) const;
  // num_hidden_layers or what the family calls it: as many as the dropout's counter has room for.
  int64_t layers(const std::string& key = "num_hidden_layers") const;
  // Of a norm: above 0, below 1.
  double epsilon(const std::string& key, double or_else) const;
  // From 0 to below 1.
  double probability(const std::string& key, double or_else) const;
  // Above 0 and finite.
  double positive_number(const std::string& key, double or_else) const;
  std::optional<double> optional_positive_number(const std::string& key) const;
  bool flag(const std::string& key, bool or_else) const;
  std::string text(const std::string& key, const std::string& or_else) const;

  // Refuses every value of `key` but `available`, when it is there.
  void require_text(const std::string& key, const std::string& available) const;
  void require_flag(const std::string& key, bool available) const;
  // Refuses sizes that `divisor` does not divide.
  void require_multiple(const std::string& key, int64_t value, const std::string& divisor_key, int64_t divisor) const;

  [[noreturn]] void refuse(const std::string& key, const std::string& what) const;

  const io::Json& json() const { return json_; }
  const std::string& origin() const { return origin_; }

 private:
  int64_t checked_positive(const std::string& key, int64_t value) const;

  const io::Json& json_;
  std::string origin_;
};

}  // namespace stft::model
