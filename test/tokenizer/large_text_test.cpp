// Texts of megabytes: what takes quadratic time runs into the time limit of the test.
#include <catch2/catch.hpp>
#include <string>

#include "fixtures.h"
#include "tokenizer/tokenizer.h"

namespace stft::tokenizer {
namespace {

using test::repeated;

TEST_CASE("Ten megabytes without a blank through BPE and Unigram") {
  for (const char* directory : {"sources/llama", "sources/gpt2", "sources/xlmr"}) {
    const Tokenizer tokenizer = Tokenizer::load(test::golden(directory));
    CHECK(tokenizer.encode_ids(repeated("etaoin", 10'000'000), 256).size() == 256);
  }
}

TEST_CASE("A million combining marks through charsmaps and canonical composition") {
  const std::string marks = "a" + repeated("\xCC\x81\xCC\xA7", 2'000'000);
  for (const char* directory : {"sources/xlmr", "sources/t5", "sources/albert", "sources/qwen2"}) {
    const Tokenizer tokenizer = Tokenizer::load(test::golden(directory));
    CHECK(tokenizer.encode_ids(marks, 128).size() <= 128);
  }
}

}  // namespace
}  // namespace stft::tokenizer
