// Texts that are broken, endless or hostile; truncation at the edges; threads.
#include <catch2/catch.hpp>
#include <thread>

#include "base/error.h"
#include "fixtures.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"

namespace stft::tokenizer {
namespace {

using Ids = std::vector<std::int32_t>;

constexpr std::int32_t kCls = 101;
constexpr std::int32_t kSep = 102;
constexpr std::int32_t kUnk = 100;

TEST_CASE("Every maximal ill-formed part becomes one replacement character") {
  const std::string r = "\xEF\xBF\xBD";
  CHECK_FALSE(replace_invalid_utf8("plain \xC3\xA9 \xF0\x9F\x98\x80"));
  CHECK_FALSE(replace_invalid_utf8(""));
  CHECK(*replace_invalid_utf8("a\xFF"
                              "b") == "a" + r + "b");
  CHECK(*replace_invalid_utf8("\x80\x80") == r + r);
  CHECK(*replace_invalid_utf8("\xE4\xB8x") == r + "x");               // cut short
  CHECK(*replace_invalid_utf8("x\xF0\x9F\x98") == "x" + r);           // at the end
  CHECK(*replace_invalid_utf8("\xC0\xAF") == r + r);                  // overlong
  CHECK(*replace_invalid_utf8("\xE0\x80\xAF") == r + r + r);          // overlong
  CHECK(*replace_invalid_utf8("\xED\xA0\x80") == r + r + r);          // a surrogate
  CHECK(*replace_invalid_utf8("\xF4\x90\x80\x80") == r + r + r + r);  // above U+10FFFF
  CHECK(*replace_invalid_utf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF"
                              "A") == r + r + r + r + "A");
}

TEST_CASE("Ill-formed UTF-8 is read as U+FFFD and keeps its place in the offsets") {
  const Tokenizer tokenizer = Tokenizer::load(test::model_directory());
  const std::string broken = "caf\xE4\xB8 \xFF tea\xC3";
  const std::string repaired = "caf\xEF\xBF\xBD \xEF\xBF\xBD tea\xEF\xBF\xBD";
  CHECK(tokenizer.encode_ids(broken, 0) == tokenizer.encode_ids(repaired, 0));
  const Encoding encoding = tokenizer.encode("\xFF\xFE tea", 0);
  REQUIRE(encoding.tokens == std::vector<std::string>{"[CLS]", "tea", "[SEP]"});
  CHECK(encoding.offsets[1] == std::pair<std::int64_t, std::int64_t>(3, 6));
}

TEST_CASE("The maximal length counts the special tokens") {
  const Tokenizer tokenizer = Tokenizer::load(test::model_directory());
  const Ids all = tokenizer.encode_ids("one two three", 0);
  REQUIRE(all.size() == 5);
  CHECK(tokenizer.encode_ids("one two three", -1) == all);
  CHECK(tokenizer.encode_ids("one two three", 5) == all);
  CHECK(tokenizer.encode_ids("one two three", INT64_MAX) == all);
  CHECK(tokenizer.encode_ids("one two three", 4) == Ids{all[0], all[1], all[2], all[4]});
  for (const std::int64_t length : {1, 2}) {
    CHECK(tokenizer.encode_ids("one two three", length) == Ids{kCls, kSep});
    CHECK(tokenizer.encode("one two three", length).ids == Ids{kCls, kSep});
  }
  CHECK(tokenizer.encode_ids("", 8) == Ids{kCls, kSep});
  CHECK(tokenizer.special_tokens_per_text() == 2);
  CHECK(tokenizer.vocab_size() == 30522);
  CHECK(tokenizer.model_max_length() == 512);
  CHECK(tokenizer.max_seq_length() == 256);
}

TEST_CASE("Ten megabytes without a blank") {
  const Tokenizer tokenizer = Tokenizer::load(test::model_directory());
  CHECK(tokenizer.encode_ids(std::string(10'000'000, 'x'), 0) == Ids{kCls, kUnk, kSep});
  CHECK(tokenizer.encode_ids(std::string(10'000'000, '!'), 256).size() == 256);
  CHECK(tokenizer.encode_ids(test::repeated("\xE4\xB8\xAD", 3'000'000), 0).size() == 1'000'002);
  CHECK(tokenizer.encode_ids(test::repeated("abcdefgh\xC3\xA9", 3'000'000), 0) == Ids{kCls, kUnk, kSep});
  CHECK(tokenizer.encode_ids(test::repeated("[MASK", 1'500'000), 0).size() == 600'002);
}

TEST_CASE("A million combining marks out of order") {
  const Tokenizer tokenizer = Tokenizer::load(test::model_directory());
  const std::string text = "a" + test::repeated("\xCC\x81\xCC\xA7", 2'000'000) + "b";
  const Encoding encoding = tokenizer.encode(text, 0);
  CHECK(encoding.tokens == std::vector<std::string>{"[CLS]", "ab", "[SEP]"});
  CHECK(encoding.offsets[1] == std::pair<std::int64_t, std::int64_t>(0, 1'000'002));
  CHECK(tokenizer.encode_ids(text, 0) == encoding.ids);
  const Tokenizer composing = Tokenizer::load(test::golden("variants/nfc"));
  CHECK(composing.encode_ids(text, 0).size() == 1);
}

TEST_CASE("A text over the limit is refused") {
  const Tokenizer tokenizer = Tokenizer::load(test::model_directory());
  const std::string text((std::size_t{16} << 20) + 1, ' ');
  CHECK_THROWS_AS(tokenizer.encode_ids(text, 16), UserError);
}

TEST_CASE("One tokenizer serves several threads") {
  const Tokenizer tokenizer = Tokenizer::load(test::model_directory());
  const auto texts = test::lines_of(test::golden("wordnet_texts.txt"));
  std::vector<Ids> expected;
  for (const std::string& text : texts) {
    expected.push_back(tokenizer.encode_ids(text + " caf\xC3\xA9", 0));
  }
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      const Tokenizer copy = tokenizer;
      for (std::size_t i = 0; i < texts.size(); ++i) {
        wrong[t] += copy.encode_ids(texts[i] + " caf\xC3\xA9", 0) == expected[i] ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK(wrong == std::vector<int>(4, 0));
}

}  // namespace
}  // namespace stft::tokenizer
