// What PEFT's own models compute with the adapters of test/golden/peft.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <catch2/catch.hpp>

#include "io/file.h"
#include "support/golden.h"
#include "support/plain_model.h"
#include "train/loaded_model.h"

using namespace stft;

namespace {

std::vector<std::string> first_sentences(size_t count) {
  std::vector<std::string> texts;
  const std::string all = io::read_text_file(test::golden_path("data/sentences.txt"));
  for (size_t begin = 0; texts.size() < count;) {
    const size_t end = all.find('\n', begin);
    texts.push_back(all.substr(begin, end - begin));
    begin = end + 1;
  }
  return texts;
}

at::Tensor fixed_weights(at::IntArrayRef shape) {
  auto v = at::empty(shape, at::kFloat);
  for (int64_t i = 0; i < v.numel(); ++i) {
    v.data_ptr<float>()[i] = static_cast<float>(static_cast<double>(i * 7919 % 1009) / 1009 - 0.5);
  }
  return v;
}

// Texts in the order and with the keys of PlainModel.
model::TokenBatch batch_of(const train::LoadedModel& loaded, const std::vector<std::string>& texts,
                           model::Layout layout) {
  std::vector<int32_t> ids;
  std::vector<int64_t> offsets{0};
  std::vector<model::TextKey> keys;
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto of_text = loaded.tokenizer->encode_ids(texts[i], loaded.model->max_seq_length());
    ids.insert(ids.end(), of_text.begin(), of_text.end());
    offsets.push_back(static_cast<int64_t>(ids.size()));
    keys.push_back({static_cast<uint32_t>(i), 0});
  }
  return model::make_token_batch(ids, offsets, keys, layout);
}

}  // namespace

namespace {

// Embeddings and the adapter's gradients of the golden in an adapter's directory.
void check_golden(const std::string& directory, const std::string& base) {
  const auto loaded = train::load_model(directory, base);
  const std::string expected = directory + "/expected.safetensors";
  for (model::Parameter& parameter : loaded.model->parameters()) {
    parameter.leaf.set_requires_grad(parameter.is_trainable);
  }
  const auto batch = batch_of(loaded, first_sentences(8), model::Layout::kPacked);
  const auto embeddings = loaded.model->embed(batch, {});
  CHECK(test::max_difference(embeddings.detach(), test::read_tensor(expected, "embeddings")) < 1e-6);

  torch::autograd::backward({(embeddings * fixed_weights(embeddings.sizes())).sum()}, {});
  size_t compared = 0;
  double error = 0, total = 0;
  const auto golden = io::SafetensorsFile::open(expected);
  for (const io::TensorInfo& info : golden.tensors()) {
    if (!info.name.starts_with("gradients/")) {
      continue;
    }
    const std::string key = info.name.substr(std::string("gradients/").size());
    const auto gradient = test::read_tensor(expected, info.name);
    for (model::Parameter& parameter : loaded.model->parameters()) {
      std::string own = parameter.name;
      for (const char* part : {".default.weight", ".default"}) {
        const size_t at = own.find(part);
        const bool is_magnitude =
            own.find("magnitude") != std::string::npos || own.find("embedding_") != std::string::npos;
        if (at != std::string::npos && (std::string(part) == ".default" || is_magnitude)) {
          own.erase(at, std::string(part).size());
        }
      }
      const std::string prefix = "base_model.model.";
      std::string bare = key.substr(prefix.size());
      if (const size_t at = bare.find(".base_layer"); at != std::string::npos) {
        bare.erase(at, std::string(".base_layer").size());
      }
      if (own == bare && parameter.is_trainable && parameter.leaf.grad().defined()) {
        const double difference = (parameter.leaf.grad() - gradient).norm().item<double>();
        error += difference * difference;
        total += std::pow(gradient.norm().item<double>(), 2);
        ++compared;
      }
    }
  }
  CHECK(compared >= 4);
  CHECK(std::sqrt(error / total) < 5e-6);
}

}  // namespace

TEST_CASE("embeddings and gradients are PEFT's") {
  const std::string name = GENERATE("default", "all_linear_rslora", "dora", "lora_bias_regex", "modules_to_save",
                                    "bias_all", "pooler", "embedding");
  INFO(name);
  check_golden(test::golden_path("peft/" + name), test::golden_path("tiny_bert"));
}

TEST_CASE("on a base that bitsandbytes quantized, weights, embeddings and gradients are PEFT's") {
  const std::string adapter = test::golden_path("qlora/adapter");
  const std::string base = test::golden_path("qlora/base");
  check_golden(adapter, base);
  const auto loaded = train::load_model(adapter, base);
  size_t compared = 0;
  const auto golden = io::SafetensorsFile::open(adapter + "/expected.safetensors");
  for (const model::Parameter& parameter : loaded.model->parameters()) {
    if (golden.find("weights/" + parameter.name) != nullptr) {
      INFO(parameter.name);
      CHECK(at::equal(parameter.leaf, test::read_tensor(golden.path(), "weights/" + parameter.name)));
      ++compared;
    }
  }
  CHECK(compared == 12);
}
TEST_CASE("packed and padded texts have the same dropout of an adapter, which changes the vectors") {
  const std::string name = GENERATE("default", "dora");
  const auto loaded = train::load_model(test::golden_path("peft/" + name), test::golden_path("tiny_bert"));
  for (model::Projection& projection : loaded.model->projections()) {
    if (projection.branch) {
      projection.branch->dropout = 0.3;
    }
  }
  const auto texts = test::mixed_texts();
  const auto embed = [&](model::Layout layout, std::optional<model::DropoutPlan> plan) {
    return loaded.model->embed(batch_of(loaded, texts, layout), {nullptr, plan});
  };
  const model::DropoutPlan plan{rng::micro_step_key(42, 3)};
  const auto packed = embed(model::Layout::kPacked, plan);
  CHECK(test::max_difference(packed, embed(model::Layout::kPadded, plan)) < 1e-6);
  CHECK(test::max_difference(packed, embed(model::Layout::kPacked, std::nullopt)) > 1e-3);
  CHECK(test::max_difference(packed, embed(model::Layout::kPacked, model::DropoutPlan{rng::micro_step_key(42, 4)})) >
        1e-3);
}
