// The models and what is read for them, piece by piece, with answers worked out by hand.
#include <catch2/catch.hpp>
#include <string>

#include "base/error.h"
#include "tokenizer/bpe.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/components.h"
#include "tokenizer/unigram.h"
#include "tokenizer/word_level.h"

namespace stft::tokenizer {
namespace {

using Catch::Matchers::Contains;
using Ids = std::vector<std::int32_t>;

// The tokens of one model, numbered in order.
Vocabulary numbered(const std::vector<std::string>& tokens) {
  std::vector<VocabularyEntry> entries;
  for (const std::string& token : tokens) {
    entries.push_back({token, static_cast<std::int32_t>(entries.size())});
  }
  return Vocabulary(std::move(entries));
}

Ids ids_of(const Model& model, std::string_view word) {
  Ids ids;
  model.append_ids(word, ids);
  std::vector<Piece> pieces;
  model.append_pieces(word, pieces);
  Ids again;
  for (const Piece& piece : pieces) {
    again.push_back(piece.id);
  }
  CHECK(again == ids);
  return ids;
}

TEST_CASE("BPE merges by rank, the leftmost of equals first") {
  const std::vector<std::string> tokens = {"a", "b", "c", "aa", "ab", "bc", "abc"};
  const Bpe bpe(numbered(tokens), {{"b", "c"}, {"a", "a"}, {"a", "b"}, {"a", "bc"}}, {});
  CHECK(ids_of(bpe, "aaa") == Ids{3, 0});
  CHECK(ids_of(bpe, "abc") == Ids{6});      // bc before ab
  CHECK(ids_of(bpe, "aabc") == Ids{3, 5});  // aa before a bc
  CHECK(ids_of(bpe, "abb") == Ids{4, 1});
  CHECK(ids_of(bpe, "axb") == Ids{4});  // without an unknown token, what is unknown is not there
}

TEST_CASE("BPE fuses unknown characters only when told to, and falls back to bytes") {
  const std::vector<std::string> tokens = {"a", "<unk>", "<0xC3>", "<0xA9>"};
  BpeOptions options;
  options.unknown_token = "<unk>";
  CHECK(ids_of(Bpe(numbered(tokens), {}, options), "axxa") == Ids{0, 1, 1, 0});
  options.fuse_unknown = true;
  CHECK(ids_of(Bpe(numbered(tokens), {}, options), "axxa") == Ids{0, 1, 0});
  options.byte_fallback = true;
  CHECK(ids_of(Bpe(numbered(tokens), {}, options), "a\u00e9xa") == Ids{0, 2, 3, 1, 0});
  CHECK(ids_of(Bpe(numbered(tokens), {}, options), "a\u00e8") == Ids{0, 1});  // no token for its second byte
}

TEST_CASE("BPE looks characters up with their affixes") {
  BpeOptions options;
  options.continuing_prefix = "##";
  options.end_of_word_suffix = "</w>";
  const Bpe bpe(numbered({"a", "##b", "##b</w>", "ab</w>", "a</w>"}), {{"a", "##b</w>"}}, options);
  CHECK(ids_of(bpe, "ab") == Ids{3});
  CHECK(ids_of(bpe, "abb") == Ids{0, 1, 2});
  CHECK(ids_of(bpe, "a") == Ids{4});
}

TEST_CASE("A word that is a token stays whole only with ignore_merges") {
  BpeOptions options;
  const std::vector<std::string> tokens = {"a", "b", "ab"};
  CHECK(ids_of(Bpe(numbered(tokens), {}, options), "ab") == Ids{0, 1});
  options.ignore_merges = true;
  CHECK(ids_of(Bpe(numbered(tokens), {}, options), "ab") == Ids{2});
}

TEST_CASE("BPE may be cut before blanks unless a token reaches over one") {
  const std::string text = "a\u2581\u2581b\u2581a";
  const Bpe free(numbered({"a", "b", "\u2581", "\u2581b"}), {{"\u2581", "b"}}, {});
  CHECK(free.next_cut(text, 0) == 1);
  CHECK(free.next_cut(text, 1) == 8);  // runs of blanks stay together
  CHECK(free.next_cut(text, 8) == text.size());
  const Bpe bound(numbered({"a", "b", "\u2581", "a\u2581"}), {{"a", "\u2581"}}, {});
  CHECK(bound.next_cut(text, 0) == 8);  // not behind an a
  CHECK(bound.next_cut(text, 8) == text.size());
  const Bpe bytes(numbered({"\u2581", "<0xC3>", "<0xC3>\u2581"}), {{"<0xC3>", "\u2581"}}, {});
  CHECK(bytes.next_cut(text, 0) == text.size());
}

TEST_CASE("Merges of unknown tokens are refused") {
  const auto message = [](const BpeMerge& merge) {
    try {
      Bpe(numbered({"a", "b"}), {merge}, {});
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string("no UserError");
  };
  CHECK_THAT(message({"a", "x"}), Contains("merge 'a x'") && Contains("'x'"));
  CHECK_THAT(message({"a", "b"}), Contains("'ab'"));
}

TEST_CASE("Unigram takes the most probable segmentation and fuses what is unknown") {
  UnigramOptions options;
  options.unknown_id = 0;
  const std::vector<UnigramToken> tokens = {{"<unk>", 0}, {"a", -1}, {"b", -1}, {"ab", -1.5}, {"abb", -4}};
  const Unigram unigram(tokens, options);
  CHECK(ids_of(unigram, "abab") == Ids{3, 3});
  CHECK(ids_of(unigram, "abb") == Ids{3, 2});
  CHECK(ids_of(unigram, "xya") == Ids{0, 1});
  std::vector<Piece> pieces;
  unigram.append_pieces("axy", pieces);
  REQUIRE(pieces.size() == 2);
  CHECK(pieces[1].is_surface);
  CHECK(pieces[1].begin == 1);
  CHECK(pieces[1].end == 3);
  options.unknown_id.reset();
  Ids ids;
  CHECK_THROWS_AS(Unigram(tokens, options).append_ids("x", ids), UserError);
  options.unknown_id = 5;
  CHECK_THROWS_AS(Unigram(tokens, options), UserError);
}

TEST_CASE("WordLevel knows a word or does not") {
  const WordLevel model(numbered({"[UNK]", "word"}), "[UNK]");
  CHECK(ids_of(model, "word") == Ids{1});
  CHECK(ids_of(model, "words") == Ids{0});
  Ids ids;
  CHECK_THROWS_AS(WordLevel(numbered({"word"}), "[UNK]").append_ids("words", ids), UserError);
}

TEST_CASE("Added tokens that the vocabulary lacks are numbered behind it, with a warning about other ids") {
  const WordLevel model(numbered({"[UNK]", "word"}), "[UNK]");
  const auto token = [](const std::string& content, int id) {
    return io::Json{{"content", content}, {"id", id},        {"special", true},    {"single_word", false},
                    {"lstrip", false},    {"rstrip", false}, {"normalized", false}};
  };
  const auto list = io::Json::array({token("word", 1), token("[A]", 0), token("[B]", 3), token("[A]", 2)});
  const AddedTokenList added = parse_added_tokens(list, model, "file");
  REQUIRE(added.tokens.size() == 3);
  CHECK(added.tokens[0].id == 1);
  CHECK(added.tokens[1].id == 2);
  CHECK(added.tokens[2].id == 3);
  REQUIRE(added.warnings.size() == 2);
  CHECK_THAT(added.warnings[0], Contains("added_tokens[1]") && Contains("has the id 0, but 2 follows"));
  CHECK_THAT(added.warnings[1], Contains("added_tokens[3]") && Contains("'[A]' is added twice"));
}

TEST_CASE("Base64 is decoded or refused") {
  CHECK(decode_base64("") == "");
  CHECK(decode_base64("AP+A") == std::string("\0\xFF\x80", 3));
  CHECK(decode_base64("YQ==") == "a");
  CHECK(decode_base64("YWI=") == "ab");
  CHECK_FALSE(decode_base64("YQ="));
  CHECK_FALSE(decode_base64("Y*=="));
  CHECK_FALSE(decode_base64("===="));
}

TEST_CASE("Malformed charsmaps are refused") {
  const auto message = [](const std::string& bytes) {
    try {
      static_cast<void>(Charsmap(bytes));
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string("no UserError");
  };
  CHECK_THAT(message("abc"), Contains("shorter"));
  CHECK_THAT(message(std::string("\x08\0\0\0abcd", 8)), Contains("8 bytes does not fit"));
  CHECK_THAT(message(std::string("\0\0\0\0", 4)), Contains("does not fit"));
  CHECK_THAT(message(std::string("\x04\0\0\0abcd\xFF", 9)), Contains("not UTF-8"));
  // Units that point anywhere lead to no replacement.
  const Charsmap wild(std::string("\x04\0\0\0\xFF\xFF\xFF\xFFtext", 12));
  CHECK(wild.normalize(aligned_text("any text \u00e9\u0301", 0)).size() == 11);
}

}  // namespace
}  // namespace stft::tokenizer
