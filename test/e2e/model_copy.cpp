#include "e2e/model_copy.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <filesystem>

namespace stft::test {
namespace {

using Catch::Matchers::Contains;

Weights take_apart(const std::string& bytes) {
  std::uint64_t length = 0;
  for (int i = 7; i >= 0; --i) {
    length = length << 8 | static_cast<unsigned char>(bytes[static_cast<size_t>(i)]);
  }
  return {Json::parse(bytes.substr(8, length)), bytes.substr(8 + length)};
}

std::string put_together(const Weights& weights) {
  const std::string header = weights.header.dump();
  return length_bytes(header.size()) + header + weights.data;
}

}  // namespace

std::string length_bytes(std::uint64_t length) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) {
    bytes += static_cast<char>(length >> (8 * i) & 0xFF);
  }
  return bytes;
}

void remove_tensor(Weights& weights, const std::string& name) {
  const auto begin = weights.header.at(name).at("data_offsets")[0].get<std::uint64_t>();
  const auto end = weights.header.at(name).at("data_offsets")[1].get<std::uint64_t>();
  weights.header.erase(name);
  weights.data.erase(begin, end - begin);
  for (auto& entry : weights.header.items()) {
    if (entry.key() != "__metadata__" && entry.value().at("data_offsets")[0].get<std::uint64_t>() >= end) {
      for (Json& offset : entry.value().at("data_offsets")) {
        offset = offset.get<std::uint64_t>() - (end - begin);
      }
    }
  }
}

ModelCopy::ModelCopy(const std::string& model) {
  std::filesystem::copy(source_path(model), path(""), std::filesystem::copy_options::recursive);
}

void ModelCopy::damage_weights(const std::function<void(Weights&)>& damage) const {
  Weights weights = take_apart(read_bytes(path("model.safetensors")));
  damage(weights);
  write("model.safetensors", put_together(weights));
}

void ModelCopy::damage_json(const std::string& file, const std::function<void(Json&)>& damage) const {
  Json json = read_json(path(file));
  damage(json);
  write(file, json.dump());
}

Json ModelCopy::recipe() const {
  Json recipe = small_recipe(directory_);
  recipe["model"]["name_or_path"] = path("");
  return recipe;
}

Outcome ModelCopy::train(int ranks) const {
  return run_stft({"train", write_recipe(directory_, recipe()), "--nproc", std::to_string(ranks)});
}

void ModelCopy::check_refused(const std::vector<std::string>& expected, int ranks) const {
  const Outcome outcome = train(ranks);
  INFO(outcome.err.substr(0, 2000));
  CHECK(outcome.exit_code == 2);
  CHECK(outcome.seconds < 5);
  CHECK(outcome.out.empty());
  CHECK_THAT(outcome.err, !Contains("internal error"));
  for (const std::string& text : expected) {
    CHECK_THAT(outcome.err, Contains(text));
  }
  CHECK_FALSE(std::filesystem::exists(directory_.path("run/final")));
}

}  // namespace stft::test
