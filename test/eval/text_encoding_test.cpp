// Texts to one matrix: order, ranks, threads, prompts.
#include "eval/text_encoding.h"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <limits>
#include <string>
#include <vector>

#include "base/error.h"
#include "io/file.h"
#include "io/temporary_directory.h"
#include "support/golden.h"
#include "support/plain_model.h"
#include "support/thread_ranks.h"

namespace stft::eval {
namespace {

using Catch::Matchers::Contains;

std::vector<std::string_view> lines(std::string_view content) {
  std::vector<std::string_view> result;
  while (!content.empty()) {
    const size_t length = content.find('\n');
    result.push_back(content.substr(0, length));
    content.remove_prefix(length + 1);
  }
  return result;
}

at::Tensor encode(const test::PlainModel& plain, std::span<const std::string_view> texts,
                  const EncodingOptions& options, int64_t ranks) {
  const Embedder embedder(*plain.model, *plain.tokenizer, model::Layout::kPacked);
  at::Tensor result;
  test::run_ranks(ranks, [&](std::unique_ptr<dist::ProcessGroup> world) {
    const auto of_rank = encode_texts(embedder, texts, options, *world);
    REQUIRE(of_rank.defined() == (world->rank() == 0));
    if (of_rank.defined()) {
      result = of_rank;
    }
  });
  return result;
}

}  // namespace

TEST_CASE("embeddings equal the peer's, in the order of the texts", "[text_encoding]") {
  const test::PlainModel plain(test::golden_path("tiny_bert"));
  const std::string content = io::read_text_file(test::golden_path("data/sentences.txt"));
  const auto found = encode(plain, lines(content), {}, 1);
  const auto expected = test::read_tensor(test::golden_path("embeddings_tiny.safetensors"), "mean");
  REQUIRE(found.sizes() == expected.sizes());
  CHECK(test::max_difference(found, expected) < 1e-5);
}

TEST_CASE("the bytes depend on neither ranks nor threads", "[text_encoding]") {
  const test::PlainModel plain(test::golden_path("tiny_bert"));
  const std::string content = io::read_text_file(test::golden_path("data/sentences.txt"));
  auto texts = lines(content);
  EncodingOptions options;
  options.block_size = 3;
  for (const size_t count : {size_t{0}, size_t{1}, size_t{7}, size_t{200}, size_t{1700}}) {
    while (texts.size() < count) {  // more than a round of 256 blocks of 3 on each of two ranks
      texts.push_back(texts[texts.size() - 200]);
    }
    const auto some = std::span<const std::string_view>(texts).subspan(0, count);
    options.threads = 1;
    const auto expected = encode(plain, some, options, 1);
    REQUIRE(expected.size(0) == static_cast<int64_t>(count));
    for (const auto& [ranks, threads] : std::vector<std::pair<int64_t, int64_t>>{{1, 3}, {2, 1}, {3, 2}}) {
      options.threads = threads;
      CHECK(encode(plain, some, options, ranks).equal(expected));
    }
  }
}

TEST_CASE("the prompt goes before every text and the first dimensions are kept as they are", "[text_encoding]") {
  const test::PlainModel plain(test::golden_path("tiny_bert"));
  const std::vector<std::string_view> texts = {"small flowers", "", "a person"};
  const std::vector<std::string_view> prompted = {"some state: small flowers", "some state: ", "some state: a person"};
  EncodingOptions options;
  const auto expected = encode(plain, prompted, options, 1);
  options.prompt = "some state: ";
  CHECK(encode(plain, texts, options, 1).equal(expected));
  options.truncate_dim = 5;
  CHECK(encode(plain, texts, options, 2).equal(expected.narrow(1, 0, 5)));
  options.truncate_dim = 1000;
  CHECK(encode(plain, texts, options, 1).equal(expected));
}

TEST_CASE("a vector that is not finite is refused with the number of its text", "[text_encoding]") {
  const test::PlainModel plain(test::golden_path("tiny_bert"));
  const int64_t id = plain.tokenizer->encode_ids("h", 0).at(1);
  const at::NoGradGuard no_grad;
  for (model::Parameter& parameter : plain.model->parameters()) {
    if (parameter.name == "embeddings.word_embeddings.weight") {
      parameter.leaf[id].fill_(std::numeric_limits<float>::quiet_NaN());
    }
  }
  const std::vector<std::string_view> texts = {"a", "", "h", "b"};
  EncodingOptions options;
  options.threads = 2;
  const std::string message = test::message_of<UserError>([&] { encode(plain, texts, options, 1); });
  CHECK_THAT(message, Contains("not finite for text 3"));
}

}  // namespace stft::eval
