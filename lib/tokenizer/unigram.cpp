#include "tokenizer/unigram.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "tokenizer/unicode.h"

namespace stft::tokenizer {
namespace {

// How much less probable than the least probable token an unknown character is.
constexpr double kUnknownPenalty = 10;

Vocabulary vocabulary_of(const std::vector<UnigramToken>& tokens) {
  std::vector<VocabularyEntry> entries;
  entries.reserve(tokens.size());
  for (const UnigramToken& token : tokens) {
    entries.push_back({token.token, static_cast<std::int32_t>(entries.size())});
  }
  return Vocabulary(std::move(entries));
}

}  // namespace

Unigram::Unigram(const std::vector<UnigramToken>& tokens, UnigramOptions options)
    : VocabularyModel(vocabulary_of(tokens)), options_(options), trie_(trie_of(vocabulary())) {
  if (options_.unknown_id && (*options_.unknown_id < 0 || *options_.unknown_id > largest_id())) {
    throw UserError(fmt::format("the unknown id {} is not among the {} tokens", *options_.unknown_id, tokens.size()));
  }
  double lowest = std::numeric_limits<double>::max();
  scores_.reserve(tokens.size());
  for (const UnigramToken& token : tokens) {
    scores_.push_back(token.score);
    lowest = std::min(lowest, token.score);
  }
  unknown_score_ = lowest - kUnknownPenalty;
  for (std::size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    byte_ids_[byte] = id_of(fmt::format("<0x{:02X}>", byte)).value_or(-1);
  }
}

std::int32_t Unigram::unknown_id() const {
  if (!options_.unknown_id) {
    throw UserError("a character is unknown, but the tokenizer has no unknown token (unk_id)");
  }
  return *options_.unknown_id;
}

std::vector<Unigram::Node> Unigram::best_paths(std::string_view word) const {
  std::vector<Node> nodes(word.size() + 1);
  const auto offer = [&](std::size_t begin, std::size_t end, double score, std::int32_t id) {
    Node& node = nodes[end];
    if (node.begin == SIZE_MAX || score > node.score) {
      node = {score, begin, id};
    }
  };
  for (std::size_t begin = 0; begin < word.size();) {
    const std::size_t char_end = begin + decode_char(word, begin).length;
    const double so_far = nodes[begin].score;
    bool is_char_known = false;
    Trie::State state = Trie::kRoot;
    for (std::size_t end = begin; end < word.size();) {
      state = trie_.next(state, static_cast<unsigned char>(word[end]));
      if (state == Trie::kDead) {
        break;
      }
      ++end;
      if (const std::int32_t id = trie_.value_at(state); id != Trie::kNone) {
        offer(begin, end, scores_[static_cast<std::size_t>(id)] + so_far, id);
        is_char_known = is_char_known || end == char_end;
      }
    }
    if (!is_char_known) {
      offer(begin, char_end, unknown_score_ + so_far, unknown_id());
    }
    begin = char_end;
  }
  return nodes;
}

// The parts of the word on the best path, neighbouring unknown ones as one.
std::vector<Piece> Unigram::segmented(std::string_view word) const {
  const std::vector<Node> nodes = best_paths(word);
  std::vector<Piece> parts;
  for (std::size_t end = word.size(); end > 0;) {
    const Node& node = nodes[end];
    const bool is_unknown = options_.unknown_id && node.id == *options_.unknown_id;
    if (is_unknown && !parts.empty() && parts.back().is_surface) {
      parts.back().begin = node.begin;
    } else {
      parts.push_back({node.id, node.begin, end, is_unknown});
    }
    end = node.begin;
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

template <typename Emit>
void Unigram::emit_part(std::string_view word, const Piece& part, Emit emit) const {
  if (!part.is_surface) {
    emit(part);
    return;
  }
  const std::string_view text = word.substr(part.begin, part.end - part.begin);
  if (const std::int32_t id = trie_.find(text); id != Trie::kNone) {
    emit({id, part.begin, part.end, false});
    return;
  }
  const auto byte_id = [&](char c) { return byte_ids_[static_cast<unsigned char>(c)]; };
  if (options_.byte_fallback && std::all_of(text.begin(), text.end(), [&](char c) { return byte_id(c) >= 0; })) {
    for (const char c : text) {
      emit({byte_id(c), part.begin, part.end, false});
    }
    return;
  }
  emit(part);
}

void Unigram::append_pieces(std::string_view word, std::vector<Piece>& pieces) const {
  for (const Piece& part : segmented(word)) {
    emit_part(word, part, [&](const Piece& piece) { pieces.push_back(piece); });
  }
}

void Unigram::append_ids(std::string_view word, std::vector<std::int32_t>& ids) const {
  for (const Piece& part : segmented(word)) {
    emit_part(word, part, [&](const Piece& piece) { ids.push_back(piece.id); });
  }
}

}  // namespace stft::tokenizer
