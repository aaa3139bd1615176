#include "tokenizer/pipeline.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "tokenizer/unicode.h"

namespace stft::tokenizer {
namespace {

bool is_ascii(char c) {
  return static_cast<unsigned char>(c) < 0x80;
}

// Cuts what is over the budget off one end of the elements from `first` on.
template <typename List>
void truncate(List& list, std::size_t first, std::size_t budget, Side side) {
  if (list.size() - first <= budget) {
    return;
  }
  const auto excess = static_cast<std::ptrdiff_t>(list.size() - first - budget);
  const auto begin = side == Side::kLeft ? list.begin() + static_cast<std::ptrdiff_t>(first) : list.end() - excess;
  list.erase(begin, begin + excess);
}

}  // namespace

Pipeline::Pipeline(PipelineParts parts)
    : normalizer_(std::move(parts.normalizer)),
      pre_tokenizer_(std::move(parts.pre_tokenizer)),
      model_(std::move(parts.model)),
      post_processor_(std::move(parts.post_processor)),
      truncation_side_(parts.truncation_side),
      largest_id_(model_->largest_id()) {
  std::vector<AddedTokenMatcher::Entry> raw;
  std::vector<AddedTokenMatcher::Entry> normalized;
  // Of equal patterns the first wins, and special tokens come first.
  std::stable_partition(parts.added_tokens.begin(), parts.added_tokens.end(),
                        [](const AddedToken& token) { return token.special; });
  for (AddedToken& token : parts.added_tokens) {
    largest_id_ = std::max(largest_id_, token.id);
    if (token.special) {
      special_ids_.push_back(token.id);
    }
    std::string pattern = token.normalized ? normalizer_.normalize(token.content) : token.content;
    if (pattern.empty() || pattern.size() > kMaxAddedTokenBytes) {
      throw UserError("the added token '" + shortened(token.content) + "' normalizes to " +
                      (pattern.empty() ? "nothing" : "more than " + std::to_string(kMaxAddedTokenBytes) + " bytes"));
    }
    auto& entries = token.normalized ? normalized : raw;
    entries.push_back({std::move(pattern), std::move(token)});
  }
  std::sort(special_ids_.begin(), special_ids_.end());
  raw_added_ = AddedTokenMatcher(std::move(raw));
  normalized_added_ = AddedTokenMatcher(std::move(normalized));
  const SpecialTokens& all_specials = post_processor_.special_tokens();
  for (const auto* specials : {&all_specials.prefix, &all_specials.suffix}) {
    for (const SpecialToken& special : *specials) {
      largest_id_ = std::max(largest_id_, special.id);
    }
  }
  set_up_fast_path();
}

void Pipeline::set_up_fast_path() {
  has_fast_path_ = normalizer_.is_local_on_ascii() && pre_tokenizer_.is_bert();
  for (std::size_t byte = 0; byte < ascii_.size() && has_fast_path_; ++byte) {
    const std::string normalized = normalizer_.normalize(std::string(1, static_cast<char>(byte)));
    if (normalized.empty()) {
      ascii_[byte] = {AsciiKind::kDropped, 0};
      continue;
    }
    has_fast_path_ = normalized.size() == 1 && is_ascii(normalized.front());
    const auto c = static_cast<char32_t>(normalized.front());
    const AsciiKind kind = has_flag(c, kWhiteSpace)    ? AsciiKind::kBlank
                           : has_flag(c, kPunctuation) ? AsciiKind::kPunctuation
                                                       : AsciiKind::kWord;
    ascii_[byte] = {kind, normalized.front()};
  }
  for (std::size_t byte = 0; byte < may_begin_added_.size() && has_fast_path_; ++byte) {
    may_begin_added_[byte] =
        byte >= ascii_.size() || normalized_added_.first_bytes()[static_cast<unsigned char>(ascii_[byte].lowered)];
  }
}

// Normalizes a fragment of the raw text, calls on_token(token, its code points) for the added tokens in it and
// on_words(WordText) for what lies between.
template <typename OnToken, typename OnWords>
void Pipeline::for_parts(std::string_view raw, std::uint32_t first_index, OnToken on_token, OnWords on_words) const {
  AlignedText chars = normalizer_.normalize(aligned_text(raw, first_index));
  if (normalized_added_.empty()) {
    on_words(pre_tokenizer_.split(std::move(chars)));
    return;
  }
  std::string utf8;
  std::vector<std::uint32_t> char_at;  // for each byte of utf8, and its end, the index into chars
  append_utf8(chars, utf8);
  char_at.reserve(utf8.size() + 1);
  for (std::uint32_t i = 0; i < chars.size(); ++i) {
    char_at.insert(char_at.end(), utf8_length(chars[i].value), i);
  }
  char_at.push_back(static_cast<std::uint32_t>(chars.size()));
  for (const Fragment& fragment : normalized_added_.split(utf8)) {
    const auto begin = chars.begin() + char_at[fragment.begin];
    const auto end = chars.begin() + char_at[fragment.end];
    if (fragment.token != nullptr) {
      on_token(*fragment.token, std::span<const AlignedChar>(begin, end));
    } else {
      on_words(pre_tokenizer_.split(AlignedText(begin, end)));
    }
  }
}

std::vector<std::int32_t> Pipeline::encode_ids(std::string_view text, std::size_t budget) const {
  std::vector<std::int32_t> ids;
  ids.reserve(std::min(text.size() / 3, budget) + special_count() + 8);
  const auto append_special = [&](const std::vector<SpecialToken>& specials) {
    for (const SpecialToken& special : specials) {
      ids.push_back(special.id);
    }
  };
  append_special(post_processor_.special_tokens().prefix);
  const std::size_t first = ids.size();
  // What is cut off at the right need not be made.
  const bool stops_early = truncation_side_ == Side::kRight && budget < SIZE_MAX - first;
  const std::size_t limit = stops_early ? first + budget : SIZE_MAX;
  for (const Fragment& fragment : raw_added_.split(text)) {
    if (ids.size() >= limit) {
      break;
    }
    if (fragment.token != nullptr) {
      ids.push_back(fragment.token->id);
    } else {
      append_fragment(text.substr(fragment.begin, fragment.end - fragment.begin), fragment.begin == 0, limit, ids);
    }
  }
  truncate(ids, first, budget, truncation_side_);
  append_special(post_processor_.special_tokens().suffix);
  return ids;
}

void Pipeline::append_fragment(std::string_view raw, bool begins_text, std::size_t limit,
                               std::vector<std::int32_t>& ids) const {
  const auto may_begin_added = [&](char c) { return may_begin_added_[static_cast<unsigned char>(c)]; };
  if (has_fast_path_ && (normalized_added_.empty() || std::none_of(raw.begin(), raw.end(), may_begin_added))) {
    append_fast(raw, limit, ids);
  } else {
    append_general(raw, begins_text, limit, ids);
  }
}

void Pipeline::append_general(std::string_view raw, bool begins_text, std::size_t limit,
                              std::vector<std::int32_t>& ids) const {
  std::string utf8;
  const std::uint32_t first_index = begins_text ? 0 : 1;  // only that it is 0 matters without offsets
  for_parts(
      raw, first_index, [&](const AddedToken& token, std::span<const AlignedChar>) { ids.push_back(token.id); },
      [&](const WordText& text) {
        for (std::size_t i = 0; i < text.words.size() && ids.size() < limit; ++i) {
          const Span& word = text.words[i];
          utf8.clear();
          append_utf8(std::span(text.text).subspan(word.begin, word.end - word.begin), utf8);
          append_word(utf8, ids);
        }
      });
}

void Pipeline::append_word(std::string_view word, std::vector<std::int32_t>& ids) const {
  for (std::size_t begin = 0; begin < word.size();) {
    const std::size_t end = model_->next_cut(word, begin);
    cache_.append_ids(*model_, word.substr(begin, end - begin), ids);
    begin = end;
  }
}

// ASCII is normalized and cut byte by byte. Any other character sends what stands between the nearest blanks or
// punctuation marks of ASCII through the full path: those cut the text for the normalizer and the pre-tokenizer alike.
void Pipeline::append_fast(std::string_view raw, std::size_t limit, std::vector<std::int32_t>& ids) const {
  std::string word;
  std::size_t word_begin = 0;
  for (std::size_t i = 0; i < raw.size() && ids.size() < limit;) {
    if (!is_ascii(raw[i])) {
      const std::size_t end = uncertain_end(raw, i);
      append_general(raw.substr(word_begin, end - word_begin), word_begin == 0, limit, ids);
      word.clear();
      word_begin = i = end;
      continue;
    }
    const AsciiAction action = ascii_[static_cast<unsigned char>(raw[i])];
    ++i;
    if (action.kind == AsciiKind::kWord) {
      word.push_back(action.lowered);
      continue;
    }
    if (action.kind == AsciiKind::kDropped) {
      continue;
    }
    if (!word.empty()) {
      model_->append_ids(word, ids);
      word.clear();
    }
    if (action.kind == AsciiKind::kPunctuation) {
      model_->append_ids({&action.lowered, 1}, ids);
    }
    word_begin = i;
  }
  if (!word.empty() && ids.size() < limit) {
    model_->append_ids(word, ids);
  }
}

// The first blank or punctuation mark of ASCII at or behind `from`, or the end.
std::size_t Pipeline::uncertain_end(std::string_view raw, std::size_t from) const {
  const auto cuts = [&](char c) {
    return is_ascii(c) && (ascii_[static_cast<unsigned char>(c)].kind == AsciiKind::kBlank ||
                           ascii_[static_cast<unsigned char>(c)].kind == AsciiKind::kPunctuation);
  };
  return static_cast<std::size_t>(std::find_if(raw.begin() + static_cast<std::ptrdiff_t>(from), raw.end(), cuts) -
                                  raw.begin());
}

Encoding Pipeline::encode(std::string_view text, std::size_t budget) const {
  Encoding content;
  std::uint32_t index = 0;  // of the code point at `counted`
  std::size_t counted = 0;
  for (const Fragment& fragment : raw_added_.split(text)) {
    if (content.ids.size() >= budget && truncation_side_ == Side::kRight) {
      break;
    }
    // Fragments may overlap, see AddedTokenMatcher::split.
    const std::size_t low = std::min(counted, fragment.begin);
    const std::size_t high = std::max(counted, fragment.begin);
    const auto moved = static_cast<std::uint32_t>(count_chars(text.substr(low, high - low)));
    index = fragment.begin >= counted ? index + moved : index - moved;
    counted = fragment.begin;
    const std::string_view raw = text.substr(fragment.begin, fragment.end - fragment.begin);
    if (fragment.token != nullptr) {
      content.ids.push_back(fragment.token->id);
      content.tokens.emplace_back(raw);
      content.offsets.emplace_back(index, index + count_chars(raw));
    } else {
      append_fragment_encoding(raw, index, content);
    }
  }
  truncate(content.ids, 0, budget, truncation_side_);
  truncate(content.tokens, 0, budget, truncation_side_);
  truncate(content.offsets, 0, budget, truncation_side_);
  content.is_special.assign(content.ids.size(), false);
  return post_processor_.process(std::move(content));
}

void Pipeline::append_fragment_encoding(std::string_view raw, std::uint32_t first_index, Encoding& encoding) const {
  for_parts(
      raw, first_index,
      [&](const AddedToken& token, std::span<const AlignedChar> chars) {
        encoding.ids.push_back(token.id);
        append_utf8(chars, encoding.tokens.emplace_back());
        encoding.offsets.emplace_back(chars.front().begin, chars.back().end);
      },
      [&](const WordText& text) {
        for (const Span& word : text.words) {
          append_word_encoding(std::span(text.text).subspan(word.begin, word.end - word.begin), encoding);
        }
      });
}

void Pipeline::append_word_encoding(std::span<const AlignedChar> word, Encoding& encoding) const {
  std::string utf8;
  std::vector<std::size_t> char_at;  // for each byte of utf8, the index into word
  for (std::size_t i = 0; i < word.size(); ++i) {
    append_utf8(word[i].value, utf8);
    char_at.resize(utf8.size(), i);
  }
  std::vector<Piece> pieces;
  model_->append_pieces(utf8, pieces);
  for (const Piece& piece : pieces) {
    // Pieces reach over the end where a character without a piece was counted (see Bpe).
    const std::size_t first = std::min(piece.begin, utf8.size() - 1);
    const std::size_t last = std::min(std::max(piece.end, piece.begin + 1), utf8.size()) - 1;
    encoding.ids.push_back(piece.id);
    encoding.tokens.emplace_back(piece.is_surface ? std::string_view(utf8).substr(piece.begin, piece.end - piece.begin)
                                                  : model_->token_of(piece.id));
    encoding.offsets.emplace_back(word[char_at[first]].begin, word[char_at[last]].end);
  }
}

bool Pipeline::is_special(std::int32_t id) const {
  return std::binary_search(special_ids_.begin(), special_ids_.end(), id);
}

}  // namespace stft::tokenizer
