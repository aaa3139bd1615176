#include "tokenizer/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <queue>

#include "base/error.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/unicode.h"

namespace stft::tokenizer {
namespace {

constexpr std::size_t kFew = 24;  // symbols
constexpr std::string_view kBlank = kMetaspace;

std::int32_t known_id(const Vocabulary& vocabulary, const std::string& token, const BpeMerge& merge) {
  const std::optional<std::int32_t> id = vocabulary.id_of(token);
  if (!id) {
    throw UserError(fmt::format("the merge '{} {}' needs the token '{}', which is not in the vocabulary",
                                shortened(merge.left), shortened(merge.right), shortened(token)));
  }
  return *id;
}

// Whether the last symbol of a token may be one that stands for a character under another name: <0xNN>.
bool may_end_with_byte(std::string_view token) {
  constexpr std::size_t kLength = 6;
  return token.size() >= kLength && token.ends_with('>') && token.substr(token.size() - kLength).starts_with("<0x");
}

}  // namespace

Bpe::Bpe(Vocabulary table, const std::vector<BpeMerge>& merges, BpeOptions options)
    : VocabularyModel(std::move(table)), options_(std::move(options)), merges_(merges.size()) {
  cuts_at_blanks_ = !options_.ignore_merges && options_.continuing_prefix.empty() &&
                    options_.end_of_word_suffix.empty() && id_of(kBlank);
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const BpeMerge& merge = merges[rank];
    const std::int32_t left = known_id(vocabulary(), merge.left, merge);
    const std::int32_t right = known_id(vocabulary(), merge.right, merge);
    const std::size_t prefix = std::min(options_.continuing_prefix.size(), merge.right.size());
    const std::string result = merge.left + merge.right.substr(prefix);
    merges_.set(left, right, {static_cast<std::uint32_t>(rank), known_id(vocabulary(), result, merge)});
    note_crossing(merge, result);
  }
  for (std::size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    byte_ids_[byte] = id_of(fmt::format("<0x{:02X}>", byte)).value_or(-1);
  }
  for (std::size_t c = 0; c < char_ids_.size(); ++c) {
    std::string character;
    append_utf8(static_cast<char32_t>(c), character);
    char_ids_[c] = id_of(character).value_or(-1);
  }
}

// What a merged token says about where words may not be cut.
void Bpe::note_crossing(const BpeMerge& merge, const std::string& result) {
  for (std::size_t at = result.find(kBlank); at != std::string::npos; at = result.find(kBlank, at + kBlank.size())) {
    if (at > 0 && !std::string_view(result).substr(0, at).ends_with(kBlank)) {
      before_blanks_.insert(decode_char_before(result, at));
    }
  }
  const bool is_unknown = options_.unknown_token && merge.left.ends_with(*options_.unknown_token);
  if (merge.right.starts_with(kBlank) && (is_unknown || may_end_with_byte(merge.left))) {
    cuts_at_blanks_ = false;
  }
}

std::int32_t Bpe::unknown_id() const {
  const std::optional<std::int32_t> id = id_of(*options_.unknown_token);
  if (!id) {
    throw UserError("a character is unknown, but the unknown token '" + *options_.unknown_token +
                    "' is not in the vocabulary");
  }
  return *id;
}

std::optional<std::int32_t> Bpe::char_id(std::string_view character, bool is_first, bool is_last) const {
  const bool has_prefix = !is_first && !options_.continuing_prefix.empty();
  const bool has_suffix = is_last && !options_.end_of_word_suffix.empty();
  if (!has_prefix && !has_suffix) {
    if (const char32_t c = decode_char(character, 0).value; c < char_ids_.size()) {
      return char_ids_[c] < 0 ? std::nullopt : std::optional(char_ids_[c]);
    }
    return id_of(character);
  }
  std::string token;
  token.append(has_prefix ? options_.continuing_prefix : "").append(character);
  token.append(has_suffix ? options_.end_of_word_suffix : "");
  return id_of(token);
}

// The byte tokens of a character with its affixes, when there are all of them.
bool Bpe::append_bytes(std::string_view character, std::vector<Symbol>& symbols) const {
  const auto id = [&](char c) { return byte_ids_[static_cast<unsigned char>(c)]; };
  if (!std::all_of(character.begin(), character.end(), [&](char c) { return id(c) >= 0; })) {
    return false;
  }
  for (const char c : character) {
    symbols.push_back({id(c), 1, -1, -1});
  }
  return true;
}

// The characters of the word. An unknown one is held back until a known character or the end follows, so that byte
// tokens come before it: HF tokenizers does so.
std::vector<Bpe::Symbol> Bpe::symbols_of(std::string_view word) const {
  std::vector<Symbol> symbols;
  symbols.reserve(word.size());
  std::optional<Symbol> unknown;
  const auto flush = [&] {
    if (unknown) {
      symbols.push_back(*unknown);
      unknown.reset();
    }
  };
  for (std::size_t begin = 0; begin < word.size();) {
    const std::size_t length = decode_char(word, begin).length;
    const std::string_view character = word.substr(begin, length);
    const bool is_first = begin == 0;
    begin += length;
    const bool is_last = begin == word.size();
    if (const auto id = char_id(character, is_first, is_last)) {
      flush();
      symbols.push_back({*id, static_cast<std::uint32_t>(length), -1, -1});
      continue;
    }
    if (options_.byte_fallback) {
      std::string affixed(is_first ? "" : options_.continuing_prefix);
      affixed.append(character).append(is_last ? options_.end_of_word_suffix : "");
      if (append_bytes(affixed, symbols)) {
        continue;
      }
    }
    if (!options_.unknown_token) {
      continue;
    }
    if (unknown && options_.fuse_unknown) {
      unknown->length += static_cast<std::uint32_t>(length);
      continue;
    }
    flush();
    unknown = Symbol{unknown_id(), static_cast<std::uint32_t>(length), -1, -1};
  }
  flush();
  return symbols;
}

std::vector<Bpe::Symbol> Bpe::merged(std::string_view word) const {
  if (options_.ignore_merges) {
    if (const auto id = id_of(word)) {
      return {{*id, static_cast<std::uint32_t>(word.size()), -1, -1}};
    }
  }
  std::vector<Symbol> symbols = symbols_of(word);
  if (symbols.size() <= kFew && options_.continuing_prefix.empty()) {
    merge_few(symbols);
  } else {
    merge_many(symbols);
  }
  return symbols;
}

// A word's usual length: searching all neighbours for the first merge costs less than a queue of them.
void Bpe::merge_few(std::vector<Symbol>& symbols) const {
  std::array<Merge, kFew> merges;  // of each symbol with its neighbour
  const auto look_up = [&](std::size_t i) {
    merges[i] = i + 1 < symbols.size() ? merges_.find(symbols[i].id, symbols[i + 1].id) : Merge{};
    merges[i].rank = merges[i].result < 0 ? UINT32_MAX : merges[i].rank;
  };
  for (std::size_t i = 0; i < symbols.size(); ++i) {
    look_up(i);
  }
  while (symbols.size() > 1) {
    const auto end = merges.begin() + static_cast<std::ptrdiff_t>(symbols.size());
    const auto first =
        std::min_element(merges.begin(), end, [](const Merge& a, const Merge& b) { return a.rank < b.rank; });
    if (first->result < 0) {
      break;
    }
    const std::ptrdiff_t at = first - merges.begin();
    const auto left = symbols.begin() + at;
    left->id = first->result;
    left->length += left[1].length;
    symbols.erase(left + 1);
    std::move(first + 2, end, first + 1);
    look_up(static_cast<std::size_t>(at));
    if (at > 0) {
      look_up(static_cast<std::size_t>(at) - 1);
    }
  }
}

void Bpe::merge_many(std::vector<Symbol>& symbols) const {
  const auto later = [](const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
  };
  std::vector<Candidate> room;
  room.reserve(2 * symbols.size());
  std::priority_queue<Candidate, std::vector<Candidate>, decltype(later)> queue(later, std::move(room));
  const auto consider = [&](std::int32_t left, std::int32_t right) {
    if (left < 0 || right < 0) {
      return;
    }
    const std::int32_t left_id = symbols[static_cast<std::size_t>(left)].id;
    const std::int32_t right_id = symbols[static_cast<std::size_t>(right)].id;
    const Merge merge = merges_.find(left_id, right_id);
    if (merge.result >= 0) {
      queue.push({merge.rank, static_cast<std::uint32_t>(left), merge.result, left_id, right_id});
    }
  };
  const auto count = static_cast<std::int32_t>(symbols.size());
  for (std::int32_t i = 0; i < count; ++i) {
    symbols[static_cast<std::size_t>(i)].previous = i - 1;
    symbols[static_cast<std::size_t>(i)].next = i + 1 < count ? i + 1 : -1;
    consider(i - 1, i);
  }
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    Symbol& left = symbols[top.left];
    if (left.length == 0 || left.next < 0) {
      continue;
    }
    Symbol& right = symbols[static_cast<std::size_t>(left.next)];
    const bool is_same_pair = left.id == top.left_id && right.id == top.right_id;
    if (!is_same_pair && merges_.find(left.id, right.id).result != top.result) {
      continue;  // one of the two has been merged since, into something else
    }
    left.id = top.result;
    left.length += right.length;
    left.next = right.next;
    right.length = 0;
    if (left.next >= 0) {
      symbols[static_cast<std::size_t>(left.next)].previous = static_cast<std::int32_t>(top.left);
    }
    consider(left.previous, static_cast<std::int32_t>(top.left));
    consider(static_cast<std::int32_t>(top.left), left.next);
  }
  std::erase_if(symbols, [](const Symbol& symbol) { return symbol.length == 0; });
}

void Bpe::append_pieces(std::string_view word, std::vector<Piece>& pieces) const {
  std::size_t begin = 0;
  for (const Symbol& symbol : merged(word)) {
    pieces.push_back({symbol.id, begin, begin + symbol.length});
    begin += symbol.length;
  }
}

void Bpe::append_ids(std::string_view word, std::vector<std::int32_t>& ids) const {
  for (const Symbol& symbol : merged(word)) {
    ids.push_back(symbol.id);
  }
}

std::size_t Bpe::next_cut(std::string_view word, std::size_t from) const {
  if (!cuts_at_blanks_) {
    return word.size();
  }
  const auto behind_blanks = [&](std::size_t at) {
    while (word.substr(at).starts_with(kBlank)) {
      at += kBlank.size();
    }
    return at;
  };
  std::size_t at = word.find(kBlank, behind_blanks(from));
  while (at != std::string_view::npos && before_blanks_.contains(decode_char_before(word, at))) {
    at = word.find(kBlank, behind_blanks(at));
  }
  return std::min(at, word.size());
}

}  // namespace stft::tokenizer
