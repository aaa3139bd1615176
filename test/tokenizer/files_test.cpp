// Vocabularies, sentencepiece models and configuration files: what is refused, and what is told.
#include <catch2/catch.hpp>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>

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

constexpr const char* kVocabTxt = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nhello\nworld\n##s\n";
constexpr const char* kVocabJson = R"({"h": 0, "e": 1, "l": 2, "he": 3, "<|endoftext|>": 4})";

// The message when a directory holds these files.
std::string message_with(const std::vector<std::pair<std::string, std::string>>& files) {
  const ModelDirectory directory;
  for (const auto& [name, content] : files) {
    directory.write(name, content);
  }
  return message_of(directory.path());
}

std::vector<std::string> warnings_with(const std::vector<std::pair<std::string, std::string>>& files) {
  const ModelDirectory directory;
  for (const auto& [name, content] : files) {
    directory.write(name, content);
  }
  return Tokenizer::load(directory.path()).policy().warnings;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) {
    text += line + "\n";
  }
  return text;
}

std::string sentencepiece(const std::string& name) {
  return test::content_of(test::golden("sources/" + name));
}

TEST_CASE("vocab.txt is checked line by line") {
  const auto with = [](const std::string& content) { return message_with({{"vocab.txt", content}}); };
  CHECK(with(kVocabTxt) == "no UserError");
  CHECK_THAT(with(std::string(kVocabTxt) + "x\nhello  \n"),
             Contains("vocab.txt:10: the token 'hello' stands in line 6 already"));
  CHECK_THAT(with(std::string(kVocabTxt) + "\xC3\x28\n"), Contains("vocab.txt:9: not valid UTF-8"));
  CHECK_THAT(with(std::string(kVocabTxt) + std::string(2'000'000, 'x') + "\ny\n"),
             Contains("vocab.txt:9: a line of 2000000 bytes"));
  CHECK_THAT(with(""), Contains("vocab.txt: holds no token"));
  CHECK_THAT(with("a\nb\n"), Contains("vocab.txt") && Contains("'[UNK]'"));
  CHECK(with(std::string(kVocabTxt) + "\n\nx\n") == "no UserError");
  CHECK(with("[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]\r\n[MASK]\r\n") == "no UserError");
}

TEST_CASE("vocab.json and merges.txt are checked against each other") {
  const auto with = [](const std::string& vocab, const std::string& merges) {
    return message_with({{"vocab.json", vocab}, {"merges.txt", merges}});
  };
  CHECK(with(kVocabJson, "#version: 0.2\nh e\n") == "no UserError");
  CHECK_THAT(with(kVocabJson, "h e\nh e l\n"), Contains("merges.txt:2: 'h e l' is not two tokens"));
  CHECK_THAT(with(kVocabJson, "h e\n\n"), Contains("merges.txt:2:"));
  CHECK_THAT(with(kVocabJson, "h e\nh x\n"), Contains("merges.txt:2: the merge names 'x'"));
  CHECK_THAT(with(kVocabJson, "h l\n"), Contains("merges.txt:1: the merge makes 'hl'"));
  CHECK_THAT(with(kVocabJson, "h \xFF\n"), Contains("merges.txt:1: not valid UTF-8"));
  CHECK_THAT(with("[]", "h e\n"), Contains("vocab.json: a list instead of an object"));
  CHECK_THAT(with("{}", ""), Contains("vocab.json: an empty object"));
  CHECK_THAT(with(R"({"a": 0, "b": 0})", ""), Contains("vocab.json") && Contains("'a'") && Contains("'b'"));
  CHECK_THAT(with(R"({"a": -1})", ""), Contains("vocab.json") && Contains("-1"));
  CHECK_THAT(with(R"({"a": "x"})", ""), Contains("vocab.json") && Contains("a string"));
  CHECK_THAT(with("{\"a\": 0", ""), Contains("vocab.json:1:"));
}

TEST_CASE("What a directory lacks is told by the class that needs it") {
  CHECK_THAT(message_with({}), Contains("no tokenizer.json"));
  CHECK_THAT(message_with({{"vocab.json", kVocabJson}}), Contains("no tokenizer.json"));
  CHECK_THAT(
      message_with({{"vocab.txt", kVocabTxt}, {"tokenizer_config.json", R"({"tokenizer_class": "T5Tokenizer"})"}}),
      Contains("T5Tokenizer") && Contains("spiece.model"));
  CHECK_THAT(message_with({{"vocab.json", kVocabJson}, {"config.json", R"({"model_type": "roberta"})"}}),
             Contains("RobertaTokenizer") && Contains("vocab.json with merges.txt"));
  CHECK_THAT(message_with({{"tokenizer.model", sentencepiece("llama/tokenizer.model")},
                           {"tokenizer_config.json", R"({"tokenizer_class": "PegasusTokenizer"})"}}),
             Contains("tokenizer_config.json: tokenizer_class: PegasusTokenizer without a tokenizer.json"));
  CHECK_THAT(message_with({{"vocab.txt", kVocabTxt}, {"config.json", R"({"model_type": "layoutlm"})"}}),
             Contains("config.json") && Contains("'layoutlm'"));
}

TEST_CASE("What is no sentencepiece model is refused with the byte") {
  const auto with = [](const std::string& content) { return message_with({{"tokenizer.model", content}}); };
  const std::string model = sentencepiece("unigram/tokenizer.model");
  CHECK(with(model) == "no UserError");
  CHECK_THAT(with(""), Contains("tokenizer.model: not a sentencepiece model: it holds no pieces"));
  CHECK_THAT(with("IQ== 0\nIg== 1\n"), Contains("tokenizer.model: not a sentencepiece model"));
  CHECK_THAT(with(std::string("\x08\x96\x01\x12\x07testing", 12)), Contains("field 1 is a number"));
  CHECK_THAT(with(std::string("\x22\x05hello", 7)), Contains("holds no pieces"));
  CHECK_THAT(with(std::string(1000, '\xFF')), Contains("byte 10: a number of more than ten bytes"));
  CHECK_THAT(with(model.substr(0, 20)), Contains("byte"));
  const std::string piece("\x0A\x08\x0A\x01x\x15\0\0\0\0", 10);
  CHECK_THAT(with(piece + piece), Contains("piece 1 is 'x' as piece 0 is already"));
  CHECK_THAT(with(std::string("\x0A\x08\x0A\x01\xFF\x15\0\0\0\0", 10)), Contains("field 1 is not text"));
  CHECK_THAT(with(std::string("\x0A\x08\x0A\x01x\x15\0\0\xC0\x7F", 10)), Contains("score of piece 0 ('x')"));
  CHECK_THAT(with(std::string("\x0A\x05\x15\0\0\0\0", 7)), Contains("piece 0 has 0 bytes"));
  CHECK_THAT(with(piece + std::string("\x12\x03\xC0\x02\x07", 5)), Contains("unk_id is 7"));
  CHECK_THAT(with(piece + std::string("\x12\x02\x18\x03", 4)), Contains("type 'word'"));
  CHECK_THAT(with(piece + std::string("\x12\x02\x18\x09", 4)), Contains("model type 9"));
}

// Loads or fails with a UserError; a tokenizer that loads must survive a text.
void survive(const std::string& content, const std::string& name, const std::string& config) {
  const ModelDirectory directory;
  directory.write(name, content);
  directory.write("tokenizer_config.json", config);
  try {
    const Tokenizer tokenizer = Tokenizer::load(directory.path());
    tokenizer.encode("Hello \xC3\x84 w\xC3\xB6rld \xE2\x91\xA0 <mask> \t\n\xF0\x9F\x98\x80 123 \xE2\x96\x81", 0);
  } catch (const UserError& error) {
    CHECK_FALSE(std::string(error.what()).empty());
  }
}

TEST_CASE("Truncated and damaged sentencepiece models neither crash nor hang") {
  const std::vector<std::array<std::string, 3>> models = {
      {"unigram/tokenizer.model", "tokenizer.model", "{}"},
      {"llama/tokenizer.model", "tokenizer.model", R"({"tokenizer_class": "LlamaTokenizer", "add_bos_token": true})"},
      {"xlmr/sentencepiece.bpe.model", "sentencepiece.bpe.model", R"({"tokenizer_class": "XLMRobertaTokenizer"})"}};
  for (const auto& [source, name, config] : models) {
    const std::string model = sentencepiece(source);
    for (std::size_t size = 0; size < model.size(); size += 97) {
      survive(model.substr(0, size), name, config);
    }
    std::mt19937 random(7);
    for (int round = 0; round < 150; ++round) {
      std::string damaged = model;
      for (std::size_t change = 0; change < 1 + random() % 6; ++change) {
        const std::size_t at = random() % damaged.size();
        switch (random() % 3) {
          case 0:
            damaged[at] = static_cast<char>(random());
            break;
          case 1:
            damaged.erase(at, 1 + random() % 8);
            break;
          default:
            damaged.insert(at, 1, static_cast<char>(random()));
        }
      }
      survive(damaged, name, config);
    }
  }
}

TEST_CASE("Malformed configuration files are refused by file and key") {
  const auto with = [](const std::string& name, const std::string& content) {
    return message_with({{"vocab.txt", kVocabTxt}, {name, content}});
  };
  CHECK_THAT(with("added_tokens.json", R"({"<x>": "8"})"), Contains("added_tokens.json: '<x>': a string"));
  CHECK_THAT(with("added_tokens.json", R"({"<x>": -8})"), Contains("added_tokens.json: '<x>': '-8'"));
  CHECK_THAT(with("added_tokens.json", "[]"), Contains("added_tokens.json: a list"));
  CHECK_THAT(with("special_tokens_map.json", R"({"mask_token": 7})"),
             Contains("special_tokens_map.json: 'mask_token'"));
  CHECK_THAT(with("special_tokens_map.json", R"({"mask_token": {"lstrip": true}})"), Contains("content"));
  const auto config = [&](const std::string& content) { return with("tokenizer_config.json", content); };
  CHECK_THAT(config(R"({"added_tokens_decoder": []})"), Contains("added_tokens_decoder: a list"));
  CHECK_THAT(config(R"({"added_tokens_decoder": {"x": {"content": "y"}}})"), Contains("added_tokens_decoder: 'x'"));
  CHECK_THAT(config(R"({"added_tokens_decoder": {"99999999999": {"content": "y"}}})"), Contains("'99999999999'"));
  CHECK_THAT(config(R"({"extra_special_tokens": 3})"), Contains("'extra_special_tokens': an integer"));
  CHECK_THAT(config(R"({"additional_special_tokens": [3]})"), Contains("additional_special_tokens"));
  CHECK_THAT(config(R"({"cls_token": null})"), Contains("cls_token is null, but BertTokenizer needs it"));
  CHECK_THAT(config(R"({"cls_token": ""})"), Contains("cls_token is empty"));
  CHECK_THAT(config(R"({"do_lower_case": "no"})"), Contains("do_lower_case"));
  CHECK_THAT(config(R"({"truncation_side": "top"})"), Contains("truncation_side is \"top\"; it must be 'left' or"));
  CHECK_THAT(config(R"({"padding_side": 1})"), Contains("padding_side is 1"));
  CHECK_THAT(message_with({{"spiece.model", sentencepiece("t5/spiece.model")},
                           {"tokenizer_config.json", R"({"tokenizer_class": "T5Tokenizer", "extra_ids": 100000000})"}}),
             Contains("extra_ids is 100000000"));
}

json golden_tokenizer(const std::string& name) {
  return json::parse(test::content_of(test::golden("sources/" + name + "/tokenizer.json")));
}

TEST_CASE("Files that disagree give a warning that names both") {  // A06
  const std::string only_bos = golden_tokenizer("json_only_bos").dump();
  CHECK_THAT(joined(warnings_with({{"tokenizer.json", only_bos},
                                   {"tokenizer_config.json", R"({"add_eos_token": true, "eos_token": "[SEP]"})"}})),
             Contains("tokenizer_config.json: add_eos_token is true") &&
                 Contains("tokenizer.json: post_processor puts [CLS] (2) before and nothing behind"));
  const std::string usual = golden_tokenizer("json_cased").dump();
  CHECK_THAT(joined(warnings_with({{"tokenizer.json", usual},
                                   {"tokenizer_config.json", R"({"add_bos_token": false, "bos_token": "[CLS]"})"}})),
             Contains("add_bos_token is false") && Contains("post_processor puts [CLS] (2) before"));
  CHECK_THAT(joined(warnings_with({{"tokenizer.json", only_bos}, {"config.json", R"({"model_type": "bert"})"}})),
             Contains("tokenizer.json: post_processor puts") && Contains("config.json: model_type"));
  CHECK_THAT(joined(warnings_with(
                 {{"tokenizer.json", usual},
                  {"tokenizer_config.json", R"({"tokenizer_class": "BertTokenizer", "do_lower_case": false})"}})),
             Contains("tokenizer.json: normalizer") && Contains("tokenizer_config.json"));
  CHECK_THAT(
      joined(warnings_with({{"vocab.txt", kVocabTxt},
                            {"tokenizer_config.json", R"({"mask_token": "[MASK]"})"},
                            {"special_tokens_map.json", R"({"mask_token": "<mask>"})"}})),
      Contains("tokenizer_config.json: mask_token is '[MASK]'") && Contains("special_tokens_map.json: '<mask>'"));
  CHECK_THAT(joined(warnings_with({{"vocab.txt", kVocabTxt}, {"added_tokens.json", R"({"<x>": 77})"}})),
             Contains("added_tokens.json: the added token '<x>' has the id 77, but 8 follows"));
  CHECK_THAT(joined(warnings_with({{"tokenizer.json", usual},
                                   {"tokenizer_config.json", R"({"tokenizer_class": "XLMRobertaTokenizer"})"}})),
             Contains("model type WordPiece is not that of XLMRobertaTokenizer"));
}

TEST_CASE("Files that agree give no warning") {
  for (const char* name : {"bert", "bert_added", "mpnet", "gpt2", "roberta", "clip", "xlmr", "camembert", "t5",
                           "albert", "llama", "llama_specials", "mistral", "gemma", "unigram", "json_left"}) {
    INFO(name);
    CHECK(joined(Tokenizer::load(test::golden("sources/" + std::string(name))).policy().warnings).empty());
  }
  CHECK(Tokenizer::load(test::model_directory()).policy().warnings.empty());
}

TEST_CASE("Only the first fragment of a text gets a blank in front when the class says so") {
  const Tokenizer llama = Tokenizer::load(test::golden("sources/llama"));
  for (const char* text : {"<s>b", "b<s>b</s>c", "<s><s> b", "b", ""}) {
    INFO(text);
    CHECK(llama.encode_ids(text, 0) == llama.encode(text, 0).ids);
  }
  CHECK(llama.encode_ids("<s>b", 0).size() == 2);
}

TEST_CASE("The policy tells what is put around a text") {
  const auto policy_of = [](const std::string& name) {
    return Tokenizer::load(test::golden("sources/" + name)).policy();
  };
  const TokenizerPolicy llama = policy_of("llama_specials");
  CHECK(llama.tokenizer_class == "LlamaTokenizer");
  CHECK(llama.adds_bos);
  CHECK(llama.adds_eos);
  CHECK(llama.pad_is_end);
  CHECK(llama.padding_side == Side::kLeft);
  CHECK_THAT(describe(llama), Contains("LlamaTokenizer from tokenizer.model, tokenizer_config.json") &&
                                  Contains("before a text <s> (1), behind it </s> (2)") &&
                                  Contains("pads on the left") && Contains("the padding token is the end token too"));
  const TokenizerPolicy plain = policy_of("llama");
  CHECK_FALSE(plain.adds_bos);
  CHECK_FALSE(plain.adds_eos);
  CHECK_FALSE(plain.pad_is_end);
  CHECK_THAT(describe(policy_of("bert_cased")), Contains("at most 64 tokens, cut on the left"));
  const TokenizerPolicy broken = policy_of("json_only_bos");
  CHECK(broken.adds_bos == false);
  CHECK_FALSE(broken.adds_eos);
}

}  // namespace
}  // namespace stft::tokenizer
