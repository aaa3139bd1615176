// Directories with every kind of tokenizer files against the numbers of transformers (test/golden/tokenizer/sources).
#include <catch2/catch.hpp>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "fixtures.h"
#include "tokenizer/tokenizer.h"

namespace stft::tokenizer {
namespace {

using nlohmann::json;
using Ids = std::vector<std::int32_t>;
using Offsets = std::vector<std::pair<std::int64_t, std::int64_t>>;

const char* name_of(Side side) {
  return side == Side::kLeft ? "left" : "right";
}

void check_policy(const TokenizerPolicy& policy, const json& facts) {
  CHECK(name_of(policy.padding_side) == facts.at("padding_side").get<std::string>());
  CHECK(name_of(policy.truncation_side) == facts.at("truncation_side").get<std::string>());
  const json& longest = facts.at("model_max_length");
  CHECK(policy.model_max_length.value_or(0) == (longest.is_null() ? 0 : longest.get<std::int64_t>()));
}

void check_text(const Tokenizer& tokenizer, const json& record) {
  const auto text = record.at("text").get<std::string>();
  CAPTURE(record.at("directory").get<std::string>(), record.dump(-1, ' ', true));
  const Encoding encoding = tokenizer.encode(text, 0);
  CHECK(encoding.ids == record.at("ids").get<Ids>());
  CHECK(encoding.tokens == record.at("tokens").get<std::vector<std::string>>());
  CHECK(encoding.offsets == record.at("offsets").get<Offsets>());
  CHECK(tokenizer.encode_ids(text, 0) == encoding.ids);
  CHECK(tokenizer.encode_ids(text, 7) == record.at("cut").get<Ids>());
  CHECK(tokenizer.encode(text, 7).ids == record.at("cut").get<Ids>());
}

TEST_CASE("Every kind of tokenizer files gives the ids of transformers") {
  std::map<std::string, Tokenizer> tokenizers;
  for (const std::string& line : test::lines_of(test::golden("sources.jsonl"))) {
    const json record = json::parse(line);
    const auto name = record.at("directory").get<std::string>();
    const auto found = tokenizers.try_emplace(name, Tokenizer::load(test::golden("sources/" + name))).first;
    if (record.contains("text")) {
      check_text(found->second, record);
    } else {
      check_policy(found->second.policy(), record);
    }
  }
  CHECK(tokenizers.size() == 26);
}

}  // namespace
}  // namespace stft::tokenizer
