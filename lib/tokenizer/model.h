// What turns one word into pieces of the vocabulary; each kind of model derives from this.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/vocabulary.h"

namespace stft::tokenizer {

struct Piece {
  std::int32_t id = 0;
  std::size_t begin = 0;  // bytes of the word
  std::size_t end = 0;
  bool is_surface = false;  // its string is its part of the word instead of token_of(id)
};

// Immutable after construction; safe on any number of threads.
class Model {
 public:
  virtual ~Model() = default;

  // Appends the pieces of a non-empty, well-formed UTF-8 word, in order. Both give the same ids. UserError when the
  // word needs an unknown token and the vocabulary has none.
  virtual void append_pieces(std::string_view word, std::vector<Piece>& pieces) const = 0;
  virtual void append_ids(std::string_view word, std::vector<std::int32_t>& ids) const = 0;

  // The least position behind `from` < word.size() where the word may be cut without changing its ids, or its size.
  virtual std::size_t next_cut(std::string_view word, std::size_t from) const {
    static_cast<void>(from);
    return word.size();
  }

  virtual std::optional<std::int32_t> id_of(std::string_view token) const = 0;
  virtual std::string_view token_of(std::int32_t id) const = 0;  // empty for an id that the model lacks
  virtual std::size_t token_count() const = 0;
  virtual std::int32_t largest_id() const = 0;
};

// A model whose tokens are those of one table.
class VocabularyModel : public Model {
 public:
  std::optional<std::int32_t> id_of(std::string_view token) const override { return vocabulary_.id_of(token); }
  std::string_view token_of(std::int32_t id) const override { return vocabulary_.token_of(id); }
  std::size_t token_count() const override { return vocabulary_.size(); }
  std::int32_t largest_id() const override { return vocabulary_.largest_id(); }

 protected:
  explicit VocabularyModel(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  Vocabulary vocabulary_;
};

}  // namespace stft::tokenizer
