#include "tokenizer/tokenizer.h"

#include <utility>

#include "base/error.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/unicode.h"

namespace stft::tokenizer {
namespace {

constexpr std::size_t kMaxTextBytes = std::size_t{16} << 20;  // each takes up to 200 bytes of memory

std::size_t content_budget(std::int64_t max_length, std::size_t specials) {
  if (max_length <= 0) {
    return SIZE_MAX;
  }
  const auto allowed = static_cast<std::size_t>(max_length);
  return allowed > specials ? allowed - specials : 0;
}

void check_size(std::string_view text) {
  if (text.size() > kMaxTextBytes) {
    throw UserError("a text of " + std::to_string(text.size()) + " bytes is too long for the tokenizer (16 MiB)");
  }
}

}  // namespace

Tokenizer::Tokenizer(std::shared_ptr<const Pipeline> pipeline, TokenizerPolicy policy)
    : pipeline_(std::move(pipeline)), policy_(std::make_shared<const TokenizerPolicy>(std::move(policy))) {}

std::vector<std::int32_t> Tokenizer::encode_ids(std::string_view text, std::int64_t max_length) const {
  check_size(text);
  const std::size_t budget = content_budget(max_length, pipeline_->special_count());
  const std::optional<std::string> repaired = replace_invalid_utf8(text);
  return pipeline_->encode_ids(repaired ? *repaired : text, budget);
}

Encoding Tokenizer::encode(std::string_view text, std::int64_t max_length) const {
  check_size(text);
  const std::size_t budget = content_budget(max_length, pipeline_->special_count());
  const std::optional<std::string> repaired = replace_invalid_utf8(text);
  return pipeline_->encode(repaired ? *repaired : text, budget);
}

std::int64_t Tokenizer::vocab_size() const {
  return std::int64_t{pipeline_->largest_id()} + 1;
}

std::int64_t Tokenizer::special_tokens_per_text() const {
  return static_cast<std::int64_t>(pipeline_->special_count());
}

bool Tokenizer::is_special(std::int32_t id) const {
  return pipeline_->is_special(id);
}

}  // namespace stft::tokenizer
