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

std::uint32_t count_chars(std::string_view utf8) {
  return static_cast<std::uint32_t>(
      std::count_if(utf8.begin(), utf8.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

}  // namespace

struct Pipeline::Prepared {
  struct Word {
    Span bytes;                         // of utf8
    const AddedToken* token = nullptr;  // null: a word for the model
  };

  AlignedText chars;
  std::string utf8;
  std::vector<std::uint32_t> char_at;  // for each byte of utf8, its index into chars
  std::vector<Word> words;

  std::string_view text(Span bytes) const {
    return std::string_view(utf8).substr(bytes.begin, bytes.end - bytes.begin);
  }
};

Pipeline::Pipeline(PipelineParts parts)
    : normalizer_(std::move(parts.normalizer)),
      pre_tokenizer_(std::move(parts.pre_tokenizer)),
      model_(std::move(parts.model)),
      post_processor_(std::move(parts.post_processor)),
      largest_id_(model_->largest_id()) {
  std::vector<AddedTokenMatcher::Entry> raw;
  std::vector<AddedTokenMatcher::Entry> normalized;
  // Of equal patterns the first wins, and special tokens come first.
  std::stable_partition(parts.added_tokens.begin(), parts.added_tokens.end(),
                        [](const AddedToken& token) { return token.special; });
  for (AddedToken& token : parts.added_tokens) {
    largest_id_ = std::max(largest_id_, token.id);
    std::string pattern = token.normalized ? normalizer_.normalize(token.content) : token.content;
    if (pattern.empty()) {
      throw UserError("the added token '" + token.content + "' normalizes to nothing");
    }
    auto& entries = token.normalized ? normalized : raw;
    entries.push_back({std::move(pattern), std::move(token)});
  }
  raw_added_ = AddedTokenMatcher(std::move(raw));
  normalized_added_ = AddedTokenMatcher(std::move(normalized));
  for (const auto* specials : {&post_processor_.prefix, &post_processor_.suffix}) {
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
  if (normalized_added_.empty()) {
    return;
  }
  for (std::size_t byte = 0; byte < may_begin_added_.size(); ++byte) {
    may_begin_added_[byte] =
        byte >= ascii_.size() || normalized_added_.first_bytes()[static_cast<unsigned char>(ascii_[byte].lowered)];
  }
}

Pipeline::Prepared Pipeline::prepare(std::string_view raw, std::uint32_t first_index) const {
  Prepared prepared;
  prepared.chars = normalizer_.normalize(aligned_text(raw, first_index));
  std::vector<std::size_t> byte_at;
  byte_at.reserve(prepared.chars.size() + 1);
  prepared.utf8.reserve(prepared.chars.size());
  for (const AlignedChar& c : prepared.chars) {
    byte_at.push_back(prepared.utf8.size());
    append_utf8(c.value, prepared.utf8);
    prepared.char_at.resize(prepared.utf8.size(), static_cast<std::uint32_t>(byte_at.size() - 1));
  }
  byte_at.push_back(prepared.utf8.size());
  prepared.char_at.push_back(static_cast<std::uint32_t>(prepared.chars.size()));
  for (const Fragment& fragment : normalized_added_.split(prepared.utf8)) {
    if (fragment.token != nullptr) {
      prepared.words.push_back({{fragment.begin, fragment.end}, fragment.token});
      continue;
    }
    const Span range{prepared.char_at[fragment.begin], prepared.char_at[fragment.end]};
    for (const Span& word : pre_tokenizer_.split(prepared.chars, range)) {
      prepared.words.push_back({{byte_at[word.begin], byte_at[word.end]}, nullptr});
    }
  }
  return prepared;
}

std::vector<std::int32_t> Pipeline::encode_ids(std::string_view text, std::size_t budget) const {
  std::vector<std::int32_t> ids;
  ids.reserve(std::min(text.size() / 3, budget) + special_count() + 8);
  for (const SpecialToken& special : post_processor_.prefix) {
    ids.push_back(special.id);
  }
  const std::size_t limit = budget > SIZE_MAX - ids.size() ? SIZE_MAX : ids.size() + budget;
  for (const Fragment& fragment : raw_added_.split(text)) {
    if (ids.size() >= limit) {
      break;
    }
    if (fragment.token != nullptr) {
      ids.push_back(fragment.token->id);
    } else {
      append_fragment(text.substr(fragment.begin, fragment.end - fragment.begin), limit, ids);
    }
  }
  ids.resize(std::min(ids.size(), limit));
  for (const SpecialToken& special : post_processor_.suffix) {
    ids.push_back(special.id);
  }
  return ids;
}

void Pipeline::append_fragment(std::string_view raw, std::size_t limit, std::vector<std::int32_t>& ids) const {
  const bool may_hold_added = !normalized_added_.empty() && std::any_of(raw.begin(), raw.end(), [&](char c) {
    return may_begin_added_[static_cast<unsigned char>(c)];
  });
  if (has_fast_path_ && !may_hold_added) {
    append_fast(raw, limit, ids);
  } else {
    append_prepared(raw, ids);
  }
}

void Pipeline::append_prepared(std::string_view raw, std::vector<std::int32_t>& ids) const {
  const Prepared prepared = prepare(raw, 0);
  for (const Prepared::Word& word : prepared.words) {
    if (word.token != nullptr) {
      ids.push_back(word.token->id);
    } else {
      model_->append_ids(prepared.text(word.bytes), ids);
    }
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
      append_prepared(raw.substr(word_begin, end - word_begin), ids);
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
    if (content.ids.size() >= budget) {
      break;
    }
    // Fragments may overlap, see AddedTokenMatcher::split.
    index = fragment.begin >= counted ? index + count_chars(text.substr(counted, fragment.begin - counted))
                                      : index - count_chars(text.substr(fragment.begin, counted - fragment.begin));
    counted = fragment.begin;
    const std::string_view raw = text.substr(fragment.begin, fragment.end - fragment.begin);
    if (fragment.token != nullptr) {
      content.ids.push_back(fragment.token->id);
      content.tokens.emplace_back(raw);
      content.offsets.emplace_back(index, index + count_chars(raw));
    } else {
      append_encoding(prepare(raw, index), content);
    }
  }
  const std::size_t kept = std::min(content.ids.size(), budget);
  content.ids.resize(kept);
  content.tokens.resize(kept);
  content.offsets.resize(kept);
  return post_processor_.process(std::move(content));
}

void Pipeline::append_encoding(const Prepared& prepared, Encoding& encoding) const {
  const auto append = [&](std::int32_t id, std::string_view token, Span bytes) {
    encoding.ids.push_back(id);
    encoding.tokens.emplace_back(token);
    encoding.offsets.emplace_back(prepared.chars[prepared.char_at[bytes.begin]].begin,
                                  prepared.chars[prepared.char_at[bytes.end - 1]].end);
  };
  std::vector<Piece> pieces;
  for (const Prepared::Word& word : prepared.words) {
    if (word.token != nullptr) {
      append(word.token->id, prepared.text(word.bytes), word.bytes);
      continue;
    }
    pieces.clear();
    model_->append_pieces(prepared.text(word.bytes), pieces);
    for (const Piece& piece : pieces) {
      append(piece.id, model_->token_of(piece.id), {word.bytes.begin + piece.begin, word.bytes.begin + piece.end});
    }
  }
}

}  // namespace stft::tokenizer
