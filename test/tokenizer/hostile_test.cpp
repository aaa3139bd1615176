// Files and texts made to hurt: they end in ids or in a UserError, and soon. A text of quadratic cost would run into
// the test's time limit.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <thread>

#include "base/error.h"
#include "directory.h"
#include "fixtures.h"
#include "tokenizer/regex.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/trie.h"

namespace stft::tokenizer {
namespace {

using Catch::Matchers::Contains;
using nlohmann::json;
using test::ModelDirectory;
using test::repeated;

// Loads and encodes; the message of the UserError, or nothing.
std::string outcome(const std::string& directory, const std::string& text) {
  try {
    const Tokenizer tokenizer = Tokenizer::load(directory);
    const auto ids = tokenizer.encode_ids(text, 0);
    CHECK(tokenizer.encode(text, 0).ids == ids);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

json minimal(const json& model) {
  return {{"added_tokens", json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", nullptr},
          {"post_processor", nullptr},
          {"model", model}};
}

json word_level() {
  return minimal({{"type", "WordLevel"}, {"unk_token", "[UNK]"}, {"vocab", {{"[UNK]", 0}, {"a", 1}}}});
}

TEST_CASE("Long texts of every kind end soon with every kind of tokenizer") {
  const std::vector<std::string> directories = {
      "sources/llama", "sources/xlmr", "sources/gpt2",   "sources/t5",   "sources/clip",
      "sources/qwen2", "sources/bert", "sources/albert", "variants/nfc",
  };
  const std::vector<std::string> parts = {"x",
                                          "ab",
                                          " ",
                                          "\n ",
                                          "!",
                                          "1",
                                          "\xCC\x81\xCC\xA7",
                                          "\xE4\xB8\xAD",
                                          "\xE2\x96\x81",
                                          "\xF0\x9F\x91\xA8\xE2\x80\x8D",
                                          "a ",
                                          "\xC2\xA0",
                                          "<s>",
                                          "\xFF"};
  for (const std::string& directory : directories) {
    const Tokenizer tokenizer = Tokenizer::load(test::golden(directory));
    for (const std::string& part : parts) {
      CAPTURE(directory, part);
      const std::string text = repeated(part, 50'000);
      CHECK(tokenizer.encode_ids(text, 0) == tokenizer.encode(text, 0).ids);
    }
  }
}

TEST_CASE("A regular expression that steps back without end is given up") {
  const Regex regex("x*y|x");
  CHECK(regex.find_all("xxy").size() == 1);
  CHECK_THROWS_AS(Regex("(x+x+)+y").find_all(std::string(200, 'x')), UserError);
  CHECK(Regex(R"((?<=\ba)b)").find_all("ab cab").size() == 1);
}

TEST_CASE("A vocabulary of single holes builds at once") {
  std::vector<std::string> keys;
  for (int i = 0; i < 12'000; ++i) {
    const std::string stem = {static_cast<char>(1 + i % 120), static_cast<char>(1 + i / 120 % 120),
                              static_cast<char>(1 + i / 14400)};
    for (const char c : std::string("abcdfghi")) {
      keys.push_back(stem + c);
    }
  }
  for (int i = 0; i < 12'000; ++i) {
    const std::string stem = {static_cast<char>(130), static_cast<char>(1 + i % 120), static_cast<char>(1 + i / 120)};
    keys.push_back(stem + "ab");
    keys.push_back(stem + "bb");
  }
  std::vector<Trie::Entry> entries;
  for (const std::string& key : keys) {
    entries.push_back({key, 1});
  }
  const Trie trie(std::move(entries));
  CHECK(trie.find(keys.back()) == 1);
}

TEST_CASE("Replacements that grow without end are refused") {
  json content = word_level();
  const json step = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(1024, 'a')}};
  content["normalizer"] = {{"type", "Sequence"}, {"normalizers", {step, step, step}}};
  const ModelDirectory directory;
  directory.write("tokenizer.json", content.dump());
  CHECK_THAT(outcome(directory.path(), "a"), Contains("64 times"));
  content["normalizer"]["normalizers"] = json::array();
  for (int i = 0; i < 300; ++i) {
    content["normalizer"]["normalizers"].push_back({{"type", "NFC"}});
  }
  directory.write("tokenizer.json", content.dump());
  CHECK_THAT(outcome(directory.path(), "a"), Contains("more than 256 steps"));
}

TEST_CASE("Added tokens that overlap in white space have a bound") {
  json content = word_level();
  content["added_tokens"] = {{{"id", 2},
                              {"content", " "},
                              {"special", false},
                              {"single_word", false},
                              {"lstrip", false},
                              {"rstrip", true},
                              {"normalized", false}}};
  const ModelDirectory directory;
  directory.write("tokenizer.json", content.dump());
  CHECK(outcome(directory.path(), "a  a").empty());
  CHECK_THAT(outcome(directory.path(), std::string(1'000'000, ' ')), Contains("overlap"));
}

// Every place of a JSON value.
void collect(json& value, std::vector<json*>& places, int depth) {
  places.push_back(&value);
  if (value.is_structured() && depth < 6) {
    int count = 0;
    for (auto& item : value) {
      if (count++ < 12) {
        collect(item, places, depth + 1);
      }
    }
  }
}

TEST_CASE("Damaged tokenizer files load or are refused, whatever class is named") {
  std::mt19937 random(7);
  const std::vector<json> values = {nullptr,
                                    true,
                                    -1,
                                    2147483647,
                                    std::int64_t{1} << 40,
                                    0.5,
                                    "x",
                                    std::string(3000, 'y'),
                                    json::array(),
                                    json::object(),
                                    {{"type", "BPE"}},
                                    json::array({1}),
                                    {{"a", 1}}};
  const std::vector<std::pair<std::string, std::string>> sources = {{"sources/json_cased", "BertTokenizer"},
                                                                    {"variants/uncased", "CamembertTokenizer"},
                                                                    {"variants/unigram_bare", "XLMRobertaTokenizer"},
                                                                    {"variants/unigram_bare", "CamembertTokenizer"},
                                                                    {"variants/mpnet", "MPNetTokenizer"},
                                                                    {"variants/bpe_byte", "GPT2Tokenizer"},
                                                                    {"variants/unigram_bare", "DebertaV2Tokenizer"}};
  int tried = 0;
  for (const auto& [source, name] : sources) {
    const std::string path = test::golden(source) + "/tokenizer.json";
    const json whole = json::parse(test::content_of(path));
    const ModelDirectory directory;
    directory.write("tokenizer_config.json",
                    json({{"tokenizer_class", name}, {"pad_token", "<pad>"}, {"bos_token", "<new>"}}).dump());
    for (int i = 0; i < 150; ++i) {
      json damaged = whole;
      std::vector<json*> places;
      collect(damaged, places, 0);
      *places[random() % places.size()] = values[random() % values.size()];
      directory.write("tokenizer.json", damaged.dump());
      CAPTURE(source, name, i);
      CHECK_NOTHROW(outcome(directory.path(), "some text \u00e9\u4e2d <s>"));
      ++tried;
    }
  }
  CHECK(tried == 1050);
}

TEST_CASE("Tokenizers of different kinds share threads") {
  std::vector<Tokenizer> tokenizers;
  for (const char* directory : {"sources/llama", "sources/gpt2", "sources/xlmr", "sources/clip", "sources/bert"}) {
    tokenizers.push_back(Tokenizer::load(test::golden(directory)));
  }
  const auto texts = test::lines_of(test::golden("wordnet_texts.txt"));
  std::vector<std::vector<std::vector<std::int32_t>>> answers(4);
  std::vector<std::thread> threads;
  for (auto& answer : answers) {
    threads.emplace_back([&] {
      for (std::size_t i = 0; i < 400; ++i) {
        for (const Tokenizer& tokenizer : tokenizers) {
          answer.push_back(tokenizer.encode_ids(texts[i] + " caf\u00e9", 0));
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (std::size_t i = 0; i < answers.front().size(); ++i) {
    CHECK(answers.front()[i] ==
          tokenizers[i % tokenizers.size()].encode(texts[i / tokenizers.size()] + " caf\u00e9", 0).ids);
  }
  CHECK(answers[1] == answers[0]);
  CHECK(answers[2] == answers[0]);
  CHECK(answers[3] == answers[0]);
}

}  // namespace
}  // namespace stft::tokenizer
