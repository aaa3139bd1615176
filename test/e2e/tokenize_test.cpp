// stft tokenize: one JSON line a text.
#include <algorithm>
#include <catch2/catch.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "e2e/process.h"
#include "e2e/run_files.h"

namespace stft::test {
namespace {

using Catch::Matchers::Contains;

const std::string kModel = "test/golden/tiny_bert";

std::vector<Json> tokenize(const Command& command) {
  const Outcome outcome = run_stft(command);
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  CHECK(outcome.err.empty());
  std::vector<Json> lines;
  std::istringstream stream(outcome.out);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(Json::parse(line));
  }
  return lines;
}

Json hello() {
  return {{"ids", {2, 42, 480, 88, 3}},
          {"tokens", {"[CLS]", "h", "##ell", "##o", "[SEP]"}},
          {"offsets", {{0, 0}, {0, 1}, {1, 4}, {4, 5}, {0, 0}}}};
}

Json empty_text() {
  return {{"ids", {2, 3}}, {"tokens", {"[CLS]", "[SEP]"}}, {"offsets", {{0, 0}, {0, 0}}}};
}

}  // namespace

TEST_CASE("tokenize prints ids, tokens and offsets of a text", "[e2e][tokenize]") {
  CHECK(tokenize({{"tokenize", kModel, "--text", "hello"}, {}, false}) == std::vector<Json>{hello()});
  CHECK(tokenize({{"tokenize", kModel, "--text", ""}, {}, false}) == std::vector<Json>{empty_text()});
}

TEST_CASE("offsets count code points of the text as it was given", "[e2e][tokenize]") {
  // Two code points of three and two bytes, a capital with an accent that normalization takes off, and two blanks.
  const auto lines = tokenize({{"tokenize", kModel, "--text", "\u4e2d\u00c9  a"}, {}, false});
  REQUIRE(lines.size() == 1);
  const Json& offsets = lines[0].at("offsets");
  REQUIRE(offsets.size() == lines[0].at("ids").size());
  REQUIRE(offsets.size() == 5);
  CHECK(offsets[1] == Json({0, 1}));
  CHECK(offsets[2] == Json({1, 2}));
  CHECK(offsets[3] == Json({4, 5}));
  CHECK(lines[0].at("tokens")[3] == "a");
}

TEST_CASE("a file and standard input are read line by line, blank lines too", "[e2e][tokenize]") {
  const TemporaryDirectory directory;
  const std::string text = "hello\n\nhello\n";
  const std::vector<Json> expected = {hello(), empty_text(), hello()};
  CHECK(tokenize({{"tokenize", kModel, "--input", directory.write("texts.txt", text)}, {}, false}) == expected);
  CHECK(tokenize({{"tokenize", kModel}, text, false}) == expected);
  CHECK(tokenize({{"tokenize", kModel}, "hello\n\nhello", false}) == expected);  // the last line needs no end
  CHECK(tokenize({{"tokenize", kModel}, "", false}).empty());
}

TEST_CASE("a directory with only a tokenizer.json does not truncate", "[e2e][tokenize]") {
  const TemporaryDirectory directory;
  directory.write("tokenizer.json", read_bytes(source_path(kModel + "/tokenizer.json")));
  std::string text;
  for (int i = 0; i < 100; ++i) {
    text += "a ";
  }
  const auto whole = tokenize({{"tokenize", directory.path(""), "--text", text}, {}, false});
  CHECK(whole.at(0).at("ids").size() == 102);
  const auto cut = tokenize({{"tokenize", kModel, "--text", text}, {}, false});
  CHECK(cut.at(0).at("ids").size() == 32);  // the model's max_seq_length
}

TEST_CASE("many lines come back in order", "[e2e][tokenize]") {
  const std::string path = source_path("test/golden/data/sentences.txt");
  const std::string text = read_bytes(path);
  const auto from_file = tokenize({{"tokenize", kModel, "--input", path}, {}, false});
  CHECK(from_file.size() == static_cast<size_t>(std::count(text.begin(), text.end(), '\n')));
  CHECK((from_file == tokenize({{"tokenize", kModel}, text, false})));
}

TEST_CASE("tokenize refuses what it cannot read", "[e2e][tokenize]") {
  const TemporaryDirectory directory;
  directory.write("tokenizer.json", "{\"version\": \"1.0\", \"model\": {");
  struct Refusal {
    std::vector<std::string> arguments;
    std::string expected;
  };
  const std::vector<Refusal> refusals = {
      {{"tokenize", "no/such/model", "--text", "x"}, "no/such/model"},
      {{"tokenize", "configs", "--text", "x"}, "configs"},
      {{"tokenize", kModel, "--input", "no/such/texts.txt"}, "no/such/texts.txt"},
      {{"tokenize", kModel, "--text", "x", "--input", "README.md"}, "--text"},
      {{"tokenize", directory.path(""), "--text", "x"}, "tokenizer.json:1:"},
      {{"tokenize"}, "model"},
  };
  for (const Refusal& refusal : refusals) {
    const Outcome outcome = run_stft(refusal.arguments);
    INFO(outcome.err);
    CHECK(outcome.exit_code == 2);
    CHECK(outcome.out.empty());
    CHECK_THAT(outcome.err, Contains(refusal.expected));
  }
}

}  // namespace stft::test
