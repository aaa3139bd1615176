// What turns one word into pieces of the vocabulary: WordPiece today; other models derive from this.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace stft::tokenizer {

// Token ids lie in [0, kMaxTokenId]; the loader refuses others.
inline constexpr std::int32_t kMaxTokenId = (1 << 24) - 1;

using Vocabulary = std::unordered_map<std::string, std::int32_t>;

struct Piece {
  std::int32_t id = 0;
  std::size_t begin = 0;  // bytes of the word
  std::size_t end = 0;
};

// Immutable after construction; safe on any number of threads.
class Model {
 public:
  virtual ~Model() = default;

  // Appends the pieces of a non-empty, well-formed UTF-8 word, in order. Both give the same ids.
  virtual void append_pieces(std::string_view word, std::vector<Piece>& pieces) const = 0;
  virtual void append_ids(std::string_view word, std::vector<std::int32_t>& ids) const = 0;

  virtual std::optional<std::int32_t> id_of(std::string_view token) const = 0;
  virtual std::string_view token_of(std::int32_t id) const = 0;  // empty for an id that the model lacks
  virtual std::size_t token_count() const = 0;
  virtual std::int32_t largest_id() const = 0;
};

}  // namespace stft::tokenizer
