// What Tokenizer::load accepts, refuses and says.
#include <catch2/catch.hpp>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "directory.h"
#include "fixtures.h"
#include "tokenizer/tokenizer.h"

namespace stft::tokenizer {
namespace {

using Catch::Matchers::Contains;
using nlohmann::json;

using test::message_of;
using test::ModelDirectory;

json small_tokenizer() {
  return json::parse(R"({
    "version": "1.0", "truncation": {"max_length": 2}, "padding": null,
    "added_tokens": [{"id": 1, "content": "[CLS]", "single_word": false, "lstrip": false, "rstrip": false,
                      "normalized": false, "special": true}],
    "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null,
                   "lowercase": true},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 1]},
    "decoder": {"type": "unheard of"},
    "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
              "max_input_chars_per_word": 100,
              "vocab": {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "a": 3, "##b": 4, "b": 5}}})");
}

std::string message_for(const std::string& content) {
  const ModelDirectory directory;
  directory.write("tokenizer.json", content);
  return message_of(directory.path());
}

std::string message_after(const std::function<void(json&)>& change) {
  json content = small_tokenizer();
  change(content);
  return message_for(content.dump());
}

Tokenizer loaded_after(const std::function<void(json&)>& change) {
  const ModelDirectory directory;
  json content = small_tokenizer();
  change(content);
  directory.write("tokenizer.json", content.dump());
  return Tokenizer::load(directory.path());
}

TEST_CASE("A small tokenizer loads; truncation, padding and decoder of the file do not matter") {
  const Tokenizer tokenizer = loaded_after([](json&) {});
  CHECK(tokenizer.encode_ids("AB a b", 0) == std::vector<std::int32_t>{1, 3, 4, 3, 5, 2});
  CHECK_FALSE(tokenizer.model_max_length());
  CHECK_FALSE(tokenizer.max_seq_length());
  CHECK(tokenizer.vocab_size() == 6);
}

TEST_CASE("Missing and malformed files are named") {
  CHECK_THAT(message_of("/nonexistent/model"), Contains("/nonexistent/model"));
  CHECK_THAT(message_of(std::string(5000, 'x')), Contains("not a model directory"));
  const ModelDirectory directory;
  CHECK_THAT(message_of(directory.path()), Contains("tokenizer.json"));
  directory.write("tokenizer.json", "{\"model\": ");
  CHECK_THAT(message_of(directory.path()), Contains("tokenizer.json:1"));
  CHECK_THAT(message_for("[]"), Contains("a list instead of an object"));
  CHECK_THAT(message_for("{}"), Contains("model"));
  CHECK_THAT(message_for(std::string(1'000'000, '[')), Contains("tokenizer.json"));
  CHECK_THAT(message_for("{\"model\": {\"type\": \"\xFF\"}}"), Contains("tokenizer.json"));
}

TEST_CASE("Components that are not available are refused by name") {
  const auto replaced = [](const std::string& stage, const std::string& type) {
    return message_after([&](json& content) { content[stage] = {{"type", type}}; });
  };
  CHECK_THAT(replaced("model", "Morpheme"), Contains("tokenizer.json: model type 'Morpheme' is not available"));
  CHECK_THAT(replaced("normalizer", "Rot13"), Contains("normalizer type 'Rot13' is not available"));
  CHECK_THAT(replaced("pre_tokenizer", "UnicodeScripts"),
             Contains("pre_tokenizer type 'UnicodeScripts' is not available"));
  CHECK_THAT(replaced("pre_tokenizer", "FixedLength"), Contains("pre_tokenizer type 'FixedLength' is not available"));
  CHECK_THAT(replaced("post_processor", "Shuffle"), Contains("post_processor type 'Shuffle' is not available"));
  CHECK_THAT(message_after([](json& content) {
               content["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "Rot13"}}}}};
             }),
             Contains("normalizer type 'Rot13'"));
}

TEST_CASE("A model without a type is known by its keys") {
  const Tokenizer tokenizer = loaded_after([](json& content) { content["model"].erase("type"); });
  CHECK(tokenizer.encode_ids("ab", 0).size() == 4);
}

TEST_CASE("A hostile vocabulary is refused") {
  const auto with_id = [](const json& id) {
    return message_after([&](json& content) { content["model"]["vocab"]["b"] = id; });
  };
  CHECK_THAT(with_id(-1), Contains("'b'") && Contains("-1"));
  CHECK_THAT(with_id(1LL << 40), Contains("'b'") && Contains("1099511627776"));
  CHECK_THAT(with_id(18446744073709551615ULL), Contains("18446744073709551615"));
  CHECK_THAT(with_id(1.5), Contains("'b'") && Contains("a number"));
  CHECK_THAT(with_id("5"), Contains("'b'") && Contains("a string"));
  CHECK_THAT(with_id(nullptr), Contains("null"));
  CHECK_THAT(with_id(3), Contains("the id 3 to both"));
  CHECK_THAT(message_after([](json& content) { content["model"]["vocab"] = json::array(); }), Contains("'vocab'"));
  CHECK_THAT(message_after([](json& content) { content["model"].erase("vocab"); }), Contains("'vocab'"));
  CHECK_THAT(message_after([](json& content) { content["model"]["unk_token"] = "<unk>"; }), Contains("'<unk>'"));
  CHECK_THAT(message_after([](json& content) { content["model"]["unk_token"] = 3; }), Contains("unk_token"));
  CHECK_THAT(message_after([](json& content) { content["model"]["max_input_chars_per_word"] = -5; }), Contains("-5"));
  CHECK_THAT(message_after([](json& content) { content["model"] = nullptr; }), Contains("model"));
  CHECK_THAT(message_after([](json& content) { content["model"] = "WordPiece"; }), Contains("model"));
}

TEST_CASE("Hostile added tokens are refused") {
  const auto with = [](const std::string& key, const json& value) {
    return message_after([&](json& content) { content["added_tokens"][0][key] = value; });
  };
  CHECK_THAT(with("id", -1), Contains("-1"));
  CHECK_THAT(with("content", ""), Contains("content"));
  CHECK_THAT(with("content", std::string(5000, 'x')), Contains("content"));
  CHECK_THAT(with("content", 7), Contains("content"));
  CHECK_THAT(with("lstrip", "yes"), Contains("lstrip"));
  CHECK_THAT(message_after([](json& content) { content["added_tokens"] = 7; }), Contains("added_tokens"));
  CHECK_THAT(message_after([](json& content) { content["added_tokens"] = {7}; }), Contains("added_tokens[0]"));
  CHECK_THAT(message_after([](json& content) { content["added_tokens"][0].erase("normalized"); }),
             Contains("normalized"));
  CHECK_THAT(message_after([](json& content) {
               json token = content["added_tokens"][0];
               token["content"] = "\u200b";
               token["id"] = 6;
               token["normalized"] = true;
               content["added_tokens"].push_back(token);
             }),
             Contains("normalizes to nothing"));
}

TEST_CASE("Nested sequences end") {
  CHECK_THAT(message_after([](json& content) {
               json inner = {{"type", "NFD"}};
               for (int i = 0; i < 50; ++i) {
                 inner = {{"type", "Sequence"}, {"normalizers", {inner}}};
               }
               content["normalizer"] = inner;
             }),
             Contains("nested too deeply"));
  CHECK_THAT(message_after([](json& content) {
               content["pre_tokenizer"] = {{"type", "Sequence"}};
             }),
             Contains("'pretokenizers'"));
  CHECK_THAT(message_after([](json& content) {
               content["pre_tokenizer"] = {{"type", "Punctuation"}, {"behavior", "Sideways"}};
             }),
             Contains("Sideways"));
}

TEST_CASE("Post-processors are checked") {
  const auto with = [](const char* processor) {
    return message_after([&](json& content) { content["post_processor"] = json::parse(processor); });
  };
  CHECK_THAT(with(R"({"type": "BertProcessing", "sep": ["[SEP]", 2]})"), Contains("'cls'"));
  CHECK_THAT(with(R"({"type": "BertProcessing", "sep": [2, "[SEP]"], "cls": ["[CLS]", 1]})"), Contains("'sep'"));
  CHECK_THAT(with(R"({"type": "TemplateProcessing", "single": "$A", "special_tokens": {}})"), Contains("'single'"));
  CHECK_THAT(with(R"({"type": "TemplateProcessing", "single": [], "special_tokens": {}})"), Contains("sequence A"));
  CHECK_THAT(with(R"({"type": "TemplateProcessing", "single": [{"Sequence": {"id": "B"}}], "special_tokens": {}})"),
             Contains("sequence A"));
  CHECK_THAT(with(R"({"type": "TemplateProcessing", "special_tokens": {},
                      "single": [{"SpecialToken": {"id": "[CLS]"}}, {"Sequence": {"id": "A"}}]})"),
             Contains("special_tokens '[CLS]' is missing"));
  CHECK_THAT(with(R"({"type": "TemplateProcessing", "special_tokens": {"x": {"ids": [1, 2], "tokens": ["x"]}},
                      "single": [{"SpecialToken": {"id": "x"}}, {"Sequence": {"id": "A"}}]})"),
             Contains("2 ids but 1 tokens"));
}

TEST_CASE("A template may hold several ids and decides the vocabulary size with the rest") {
  const Tokenizer tokenizer = loaded_after([](json& content) {
    content["post_processor"] = json::parse(R"({
      "type": "TemplateProcessing", "special_tokens": {"x": {"id": "x", "ids": [1, 9], "tokens": ["p", "q"]}},
      "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "x", "type_id": 0}}]})");
  });
  CHECK(tokenizer.encode_ids("a", 0) == std::vector<std::int32_t>{3, 1, 9});
  CHECK(tokenizer.special_tokens_per_text() == 2);
  CHECK(tokenizer.vocab_size() == 10);
}

TEST_CASE("The maximal lengths come from the configuration files") {
  const ModelDirectory directory;
  directory.write("tokenizer.json", small_tokenizer().dump());
  const auto with_config = [&](const std::string& value) {
    directory.write("tokenizer_config.json", "{\"model_max_length\": " + value + "}");
    return Tokenizer::load(directory.path()).model_max_length();
  };
  CHECK(with_config("512") == 512);
  CHECK(with_config("512.0") == 512);
  CHECK_FALSE(with_config("1e30"));
  CHECK_FALSE(with_config("1000000000000000019884624838656"));
  CHECK_FALSE(with_config("null"));
  CHECK_THROWS_AS(with_config("\"512\""), UserError);
  CHECK_THROWS_AS(with_config("0"), UserError);
  CHECK_THROWS_AS(with_config("-1e300"), UserError);
  directory.write("tokenizer_config.json", "{}");
  directory.write("sentence_bert_config.json", R"({"max_seq_length": 128, "do_lower_case": false})");
  CHECK(Tokenizer::load(directory.path()).max_seq_length() == 128);
  directory.write("sentence_bert_config.json", R"({"do_lower_case": "yes"})");
  CHECK_THAT(message_of(directory.path()), Contains("sentence_bert_config.json") && Contains("do_lower_case"));
  directory.write("sentence_bert_config.json", "[1]");
  CHECK_THAT(message_of(directory.path()), Contains("sentence_bert_config.json"));
}

TEST_CASE("do_lower_case lower-cases what a cased tokenizer would keep") {
  const ModelDirectory directory;
  json content = small_tokenizer();
  content["normalizer"]["lowercase"] = false;
  directory.write("tokenizer.json", content.dump());
  CHECK(Tokenizer::load(directory.path()).encode_ids("A", 0) == std::vector<std::int32_t>{1, 0, 2});
  directory.write("sentence_bert_config.json", R"({"do_lower_case": true})");
  CHECK(Tokenizer::load(directory.path()).encode_ids("A", 0) == std::vector<std::int32_t>{1, 3, 2});
}

}  // namespace
}  // namespace stft::tokenizer
