// The tokenizers of public models, which are not in the repository: STFT_TOKENIZERS names a directory that
// scripts/fetch_tokenizers.py has filled.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "fixtures.h"
#include "tokenizer/tokenizer.h"

namespace stft::tokenizer {
namespace {

using Ids = std::vector<std::int32_t>;

std::string joined(const Ids& ids) {
  std::string line;
  for (const std::int32_t id : ids) {
    line += (line.empty() ? "" : " ") + std::to_string(id);
  }
  return line;
}

std::string directory_of_tokenizers() {
  const char* directory = std::getenv("STFT_TOKENIZERS");
  if (directory == nullptr) {
    std::cout << "no tokenizers to test with: STFT_TOKENIZERS is not set\n";
    return {};
  }
  return directory;
}

TEST_CASE("Public tokenizers give the ids of the Python package") {
  const std::string directory = directory_of_tokenizers();
  if (directory.empty()) {
    return;
  }
  const auto texts =
      nlohmann::json::parse(test::content_of(test::golden("public/texts.json"))).get<std::vector<std::string>>();
  std::size_t tested = 0;
  for (const auto& entry : std::filesystem::directory_iterator(test::golden("public"))) {
    const std::string model = directory + "/" + entry.path().stem().string();
    if (entry.path().extension() != ".txt" || !std::filesystem::exists(model + "/tokenizer.json")) {
      continue;
    }
    const auto expected = test::lines_of(entry.path().string());
    REQUIRE(expected.size() == texts.size());
    const Tokenizer tokenizer = Tokenizer::load(model);
    for (std::size_t i = 0; i < texts.size(); ++i) {
      CAPTURE(model, texts[i]);
      CHECK(joined(tokenizer.encode_ids(texts[i], 0)) == expected[i]);
      CHECK(joined(tokenizer.encode(texts[i], 0).ids) == expected[i]);
    }
    ++tested;
  }
  CHECK(tested > 0);
}

// llama.cpp's vectors, which the original tokenizers gave, without special tokens around the text.
TEST_CASE("Public tokenizers give the ids of the vectors that come with them") {
  const std::string directory = directory_of_tokenizers();
  if (directory.empty()) {
    return;
  }
  std::size_t tested = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string vectors = entry.path().string() + "/vectors.json";
    if (!std::filesystem::exists(vectors)) {
      continue;
    }
    const Tokenizer tokenizer = Tokenizer::load(entry.path().string());
    const Encoding nothing = tokenizer.encode("", 0);
    for (const auto& vector : nlohmann::json::parse(test::content_of(vectors))) {
      CAPTURE(entry.path().string(), vector.dump(-1, ' ', true));
      const Encoding encoding = tokenizer.encode(vector.at("text").get<std::string>(), 0);
      Ids ids;
      for (std::size_t i = 0; i < encoding.ids.size(); ++i) {
        if (!encoding.is_special[i]) {
          ids.push_back(encoding.ids[i]);
        }
      }
      CHECK(ids == vector.at("ids").get<Ids>());
      ++tested;
    }
    CHECK(nothing.ids.size() == static_cast<std::size_t>(tokenizer.special_tokens_per_text()));
  }
  CHECK(tested > 0);
}

}  // namespace
}  // namespace stft::tokenizer
