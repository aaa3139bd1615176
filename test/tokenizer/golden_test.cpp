// Ids, strings and offsets against the numbers of the Python package (test/golden/tokenizer).
#include <catch2/catch.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

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

TEST_CASE("Other components behave as in the Python package") {
  std::map<std::string, Tokenizer> tokenizers;
  const auto lines = test::lines_of(test::golden("variants.jsonl"));
  REQUIRE(lines.size() >= 300);
  for (const std::string& line : lines) {
    const auto record = nlohmann::json::parse(line);
    const auto variant = record.at("variant").get<std::string>();
    CAPTURE(variant);
    auto known = tokenizers.find(variant);
    if (known == tokenizers.end()) {
      known = tokenizers.emplace(variant, Tokenizer::load(test::golden("variants/" + variant))).first;
    }
    check_record(known->second, record);
  }
  CHECK(tokenizers.size() >= 15);
}

}  // namespace
}  // namespace stft::tokenizer
