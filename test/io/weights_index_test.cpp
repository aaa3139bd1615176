#include "io/weights_index.h"

#include <catch2/catch.hpp>

#include "base/error.h"
#include "io/temporary_directory.h"

namespace stft::io {
namespace {

using Catch::Matchers::Contains;
using test::message_of;

// A file of one-element U8 tensors whose value is the first letter of their name.
void write_weights(const std::string& path, const std::vector<std::string>& names) {
  std::vector<TensorSpec> specs;
  for (const std::string& name : names) specs.push_back({name, Dtype::kU8, {1}});
  SafetensorsWriter writer(path, specs, {});
  for (const TensorInfo& info : writer.layout()) writer.append(std::as_bytes(std::span(info.name.data(), 1)));
  writer.finish();
}

std::string refusal(const test::TemporaryDirectory& directory) {
  return message_of<UserError>([&] { ModelWeights::open(directory.path("")); });
}

TEST_CASE("one file of weights") {
  const test::TemporaryDirectory directory;
  write_weights(directory.path("model.safetensors"), {"x", "y"});
  CHECK(ModelWeights::exist_in(directory.path("")));
  const ModelWeights weights = ModelWeights::open(directory.path(""));
  REQUIRE(weights.find("y"));
  CHECK(std::to_integer<char>(weights.find("y")->bytes()[0]) == 'y');
  CHECK(weights.find("y")->rows(0, 1).size() == 1);
  CHECK_FALSE(weights.find("z"));
  CHECK(weights.tensors().size() == 2);
  CHECK(weights.files().size() == 1);
}

TEST_CASE("weights in shards") {
  const test::TemporaryDirectory directory;
  write_weights(directory.path("model-00001-of-00002.safetensors"), {"x", "extra"});
  write_weights(directory.path("model-00002-of-00002.safetensors"), {"y"});
  const auto index = [&](const std::string& text) { directory.write("model.safetensors.index.json", text); };
  SECTION("tensors are found over all files, unmapped ones are not") {
    index(R"({"metadata":{"total_size":2},"weight_map":{"x":"model-00001-of-00002.safetensors",
              "y":"model-00002-of-00002.safetensors"}})");
    ModelWeights opened = ModelWeights::open(directory.path(""));
    const ModelWeights weights = std::move(opened);
    REQUIRE(weights.find("x"));
    REQUIRE(weights.find("y"));
    CHECK(std::to_integer<char>(weights.find("x")->bytes()[0]) == 'x');
    CHECK(std::to_integer<char>(weights.find("y")->bytes()[0]) == 'y');
    CHECK_FALSE(weights.find("extra"));
    CHECK(weights.files().size() == 2);
  }
  SECTION("a mapped tensor that its file lacks") {
    index(R"({"weight_map":{"y":"model-00001-of-00002.safetensors"}})");
    CHECK_THAT(refusal(directory), Contains("'model-00001-of-00002.safetensors' has no tensor 'y'"));
  }
  SECTION("a file that does not exist") {
    index(R"({"weight_map":{"y":"model-00003-of-00002.safetensors"}})");
    CHECK_THAT(refusal(directory), Contains("'model-00003-of-00002.safetensors' does not exist"));
  }
  SECTION("file names with path parts") {
    for (const char* name : {"../x.safetensors", "/etc/passwd", "sub/x.safetensors", "..", ".", "", "a\\\\b"}) {
      index(std::string(R"({"weight_map":{"y":")") + name + "\"}}");
      CHECK_THAT(refusal(directory), Contains("is not the name of a file beside it"));
    }
  }
  SECTION("malformed indexes") {
    index("{}");
    CHECK_THAT(refusal(directory), Contains("key 'weight_map' is missing"));
    index(R"({"weight_map":[]})");
    CHECK_THAT(refusal(directory), Contains("key 'weight_map' is a list"));
    index(R"({"weight_map":{"x":1}})");
    CHECK_THAT(refusal(directory), Contains("weight_map 'x' is an integer"));
    index("[]");
    CHECK_THAT(refusal(directory), Contains("a list, not an object"));
    index("{");
    CHECK_THAT(refusal(directory), Contains("not valid JSON"));
  }
}

TEST_CASE("a directory without safetensors weights") {
  const test::TemporaryDirectory directory;
  CHECK_FALSE(ModelWeights::exist_in(directory.path("")));
  CHECK_THAT(refusal(directory), Contains("no model.safetensors or model.safetensors.index.json in"));
  directory.write("pytorch_model.bin", "x");
  CHECK_THAT(refusal(directory), Contains("pytorch_model.bin: only safetensors weights are read"));
}

}  // namespace
}  // namespace stft::io
