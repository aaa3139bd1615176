// Ids, strings and offsets against the numbers of the Python package (test/golden/tokenizer).
#include <algorithm>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "fixtures.h"
#include "tokenizer/tokenizer.h"

namespace stft::tokenizer {
namespace {

using Ids = std::vector<std::int32_t>;
using Offsets = std::vector<std::pair<std::int64_t, std::int64_t>>;

Ids ids_of(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::int32_t>(stream), std::istream_iterator<std::int32_t>()};
}

void check_record(const Tokenizer& tokenizer, const nlohmann::json& record) {
  const auto text = record.at("text").get<std::string>();
  CAPTURE(record.dump(-1, ' ', true));
  const Encoding encoding = tokenizer.encode(text, 0);
  CHECK(encoding.ids == record.at("ids").get<Ids>());
  CHECK(encoding.tokens == record.at("tokens").get<std::vector<std::string>>());
  CHECK(encoding.offsets == record.at("offsets").get<Offsets>());
  CHECK(tokenizer.encode_ids(text, 0) == encoding.ids);
}

TEST_CASE("WordNet texts have the ids of the Python package") {
  const Tokenizer tokenizer = Tokenizer::load(test::model_directory());
  const auto texts = test::lines_of(test::golden("wordnet_texts.txt"));
  const auto expected = test::lines_of(test::golden("wordnet_ids.txt"));
  REQUIRE(texts.size() == 2000);
  REQUIRE(expected.size() == texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    CAPTURE(texts[i]);
    CHECK(tokenizer.encode_ids(texts[i], 0) == ids_of(expected[i]));
    CHECK(tokenizer.encode(texts[i], 0).ids == ids_of(expected[i]));
  }
}

TEST_CASE("Truncation reserves room for the special tokens") {
  const Tokenizer tokenizer = Tokenizer::load(test::model_directory());
  const auto texts = test::lines_of(test::golden("wordnet_texts.txt"));
  const auto expected = test::lines_of(test::golden("wordnet_ids_max12.txt"));
  REQUIRE(expected.size() == 300);
  std::size_t cut = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const Ids ids = tokenizer.encode_ids(texts[i], 12);
    CHECK(ids == ids_of(expected[i]));
    CHECK(tokenizer.encode(texts[i], 12).ids == ids);
    cut += ids.size() == 12 ? 1U : 0U;
  }
  CHECK(cut > 100);
}

TEST_CASE("Odd texts have the ids, tokens and offsets of the Python package") {
  const Tokenizer tokenizer = Tokenizer::load(test::model_directory());
  const auto lines = test::lines_of(test::golden("torture.jsonl"));
  REQUIRE(lines.size() >= 300);
  for (const std::string& line : lines) {
    check_record(tokenizer, nlohmann::json::parse(line));
  }
}

// One text of a variant: see make_tokenizer_golden.py for the layout.
void check_short_record(const Tokenizer& tokenizer, const std::string& text, const nlohmann::json& record,
                        const nlohmann::json& strings) {
  const Encoding encoding = tokenizer.encode(text, 0);
  CHECK(encoding.ids == record.at(0).get<Ids>());
  CHECK(tokenizer.encode_ids(text, 0) == encoding.ids);
  std::vector<std::int64_t> offsets;
  for (const auto& [begin, end] : encoding.offsets) {
    offsets.insert(offsets.end(), {begin, end});
  }
  CHECK(offsets == record.at(1).get<std::vector<std::int64_t>>());
  const std::size_t count = encoding.ids.size();
  const std::size_t before = record.at(2);
  const std::size_t behind = record.at(3);
  std::vector<bool> is_special(count, false);
  std::fill_n(is_special.begin(), std::min(before, count), true);
  std::fill_n(is_special.rbegin(), std::min(behind, count), true);
  CHECK(encoding.is_special == is_special);
  std::vector<std::string> tokens;
  for (const std::int32_t id : encoding.ids) {
    tokens.push_back(strings.value(std::to_string(id), std::string("(an id that does not occur)")));
  }
  for (const nlohmann::json& surface : record.at(4)) {
    tokens.at(surface.at(0).get<std::size_t>()) = surface.at(1).get<std::string>();
  }
  CHECK(encoding.tokens == tokens);
}

TEST_CASE("Every component behaves as in the Python package") {
  const auto lines = test::lines_of(test::golden("variants.jsonl"));
  REQUIRE(lines.size() >= 70);
  const auto texts = nlohmann::json::parse(lines.front()).get<std::vector<std::string>>();
  REQUIRE(texts.size() >= 50);
  std::size_t refused = 0;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const auto golden = nlohmann::json::parse(lines[i]);
    const auto variant = golden.at("variant").get<std::string>();
    const Tokenizer tokenizer = Tokenizer::load(test::golden("variants/" + variant));
    REQUIRE(golden.at("records").size() == texts.size());
    for (std::size_t k = 0; k < texts.size(); ++k) {
      const nlohmann::json& record = golden.at("records").at(k);
      CAPTURE(variant, nlohmann::json(texts[k]).dump(-1, ' ', true));
      if (record.is_null()) {
        CHECK_THROWS_AS(tokenizer.encode(texts[k], 0), UserError);
        CHECK_THROWS_AS(tokenizer.encode_ids(texts[k], 0), UserError);
        ++refused;
      } else {
        check_short_record(tokenizer, texts[k], record, golden.at("tokens"));
      }
    }
  }
  CHECK(refused > 10);
}

}  // namespace
}  // namespace stft::tokenizer
