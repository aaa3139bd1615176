// A model directory that is damaged or hostile: exit 2 within seconds, with the file and the tensor.
#include <catch2/catch.hpp>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "e2e/model_copy.h"

namespace stft::test {
namespace {

using Catch::Matchers::Contains;

const std::string kEmbeddings = "embeddings.word_embeddings.weight";  // F32, 500 x 32

}  // namespace

TEST_CASE("the copy that these tests damage is a good model", "[e2e][hostile]") {
  const ModelCopy model;
  model.damage_weights([](Weights&) {});
  const Outcome outcome = model.train(1);
  INFO(outcome.err);
  CHECK(outcome.exit_code == 0);
}

TEST_CASE("weights whose header lies are refused with the tensor's name", "[e2e][hostile]") {
  struct Damage {
    const char* what;
    std::function<void(Weights&)> damage;
    std::vector<std::string> expected;
  };
  const std::vector<Damage> damages = {
      {"overlapping offsets",
       [](Weights& w) {
         w.header["embeddings.LayerNorm.bias"]["data_offsets"] =
             w.header["embeddings.LayerNorm.weight"]["data_offsets"];
       },
       {"embeddings.LayerNorm."}},
      {"offsets past the end",
       [](Weights& w) {
         w.header[kEmbeddings]["data_offsets"] = {0, 1ULL << 60};
       },
       {kEmbeddings}},
      {"offsets that run backwards",
       [](Weights& w) {
         w.header[kEmbeddings]["data_offsets"] = {64000, 0};
       },
       {kEmbeddings}},
      {"a shape whose size overflows",
       [](Weights& w) {
         w.header[kEmbeddings]["shape"] = {1ULL << 62, 8};
       },
       {kEmbeddings}},
      {"a shape whose size wraps to the right one",
       [](Weights& w) {
         w.header[kEmbeddings]["shape"] = {(1ULL << 62) + 500, 32};
       },
       {kEmbeddings}},
      {"a negative dimension",
       [](Weights& w) {
         w.header[kEmbeddings]["shape"] = {-500, -32};
       },
       {kEmbeddings}},
      {"a dimension that is text",
       [](Weights& w) {
         w.header[kEmbeddings]["shape"] = {"500", 32};
       },
       {kEmbeddings}},
      {"an unknown type", [](Weights& w) { w.header[kEmbeddings]["dtype"] = "F33"; }, {kEmbeddings, "F33"}},
      {"a type that is not of weights",
       [](Weights& w) { w.header[kEmbeddings]["dtype"] = "I32"; },
       {kEmbeddings, "I32"}},
      {"a tensor is missing", [](Weights& w) { remove_tensor(w, kEmbeddings); }, {kEmbeddings}},
      {"a tensor of an inner layer is missing",
       [](Weights& w) { remove_tensor(w, "encoder.layer.1.output.dense.bias"); },
       {"encoder.layer.1.output.dense.bias"}},
      {"another shape",
       [](Weights& w) {
         w.header[kEmbeddings]["shape"] = {250, 64};
       },
       {kEmbeddings, "500", "250"}},
      {"transposed",
       [](Weights& w) {
         w.header[kEmbeddings]["shape"] = {32, 500};
       },
       {kEmbeddings, "32"}},
      {"flat", [](Weights& w) { w.header[kEmbeddings]["shape"] = {16000}; }, {kEmbeddings, "16000"}},
      {"bytes that no tensor owns", [](Weights& w) { w.data += "tail"; }, {}},
      {"bytes are missing", [](Weights& w) { w.data.resize(w.data.size() - 100); }, {}},
      {"the header is a list", [](Weights& w) { w.header = Json::array(); }, {}},
  };
  for (const Damage& damage : damages) {
    INFO(damage.what);
    const ModelCopy model;
    model.damage_weights(damage.damage);
    std::vector<std::string> expected = damage.expected;
    expected.push_back(model.path("model.safetensors"));
    model.check_refused(expected);
  }
}

TEST_CASE("weights that are no safetensors file are refused", "[e2e][hostile]") {
  const ModelCopy model;
  const std::string file = model.path("model.safetensors");
  const std::string good = read_bytes(file);
  for (const std::string& bytes :
       {std::string(), good.substr(0, 5), good.substr(0, 100), good.substr(0, good.size() / 2),
        length_bytes(~0ULL) + good.substr(8), std::string(4096, '\0')}) {
    model.write("model.safetensors", bytes);
    model.check_refused({file});
  }
  // A header over the cap of 100,000,000 bytes is not even looked at, though the file (with a hole) is long enough.
  model.write("model.safetensors", length_bytes(140'000'000));
  std::filesystem::resize_file(file, 150'000'000);
  model.check_refused({file, "100000000"});
  std::filesystem::remove(file);
  model.check_refused({"model.safetensors"});
}

TEST_CASE("two ranks refuse a damaged model as one does", "[e2e][hostile]") {
  const ModelCopy model;
  model.damage_weights([](Weights& w) { remove_tensor(w, "encoder.layer.1.output.dense.bias"); });
  model.check_refused({"encoder.layer.1.output.dense.bias"}, 2);
}

TEST_CASE("a tokenizer that cannot be read is refused", "[e2e][hostile]") {
  struct Damage {
    const char* what;
    std::function<void(const ModelCopy&)> damage;
    std::vector<std::string> expected;
  };
  const std::vector<Damage> damages = {
      {"cut off",
       [](const ModelCopy& m) { m.write("tokenizer.json", read_bytes(m.path("tokenizer.json")).substr(0, 3000)); },
       {"tokenizer.json:"}},
      {"empty", [](const ModelCopy& m) { m.write("tokenizer.json", ""); }, {"tokenizer.json"}},
      {"no model",
       [](const ModelCopy& m) { m.damage_json("tokenizer.json", [](Json& j) { j.erase("model"); }); },
       {"tokenizer.json", "model"}},
      {"no vocabulary",
       [](const ModelCopy& m) { m.damage_json("tokenizer.json", [](Json& j) { j["model"].erase("vocab"); }); },
       {"tokenizer.json", "vocab"}},
      {"an id that is text",
       [](const ModelCopy& m) { m.damage_json("tokenizer.json", [](Json& j) { j["model"]["vocab"]["a"] = "x"; }); },
       {"tokenizer.json", "vocab"}},
      {"an id past the embeddings",
       [](const ModelCopy& m) { m.damage_json("tokenizer.json", [](Json& j) { j["model"]["vocab"]["zzz"] = 500; }); },
       {"tokenizer.json", "500"}},
      {"a negative id",
       [](const ModelCopy& m) { m.damage_json("tokenizer.json", [](Json& j) { j["model"]["vocab"]["zzz"] = -1; }); },
       {"tokenizer.json"}},
      {"an id without bounds",
       [](const ModelCopy& m) {
         m.damage_json("tokenizer.json", [](Json& j) { j["model"]["vocab"]["zzz"] = 9'000'000'000'000; });
       },
       {"tokenizer.json"}},
      {"a list", [](const ModelCopy& m) { m.write("tokenizer.json", "[1, 2]"); }, {"tokenizer.json"}},
  };
  for (const Damage& damage : damages) {
    INFO(damage.what);
    const ModelCopy model;
    damage.damage(model);
    model.check_refused(damage.expected);
  }
}

TEST_CASE("a configuration that does not fit is refused", "[e2e][hostile]") {
  struct Damage {
    const char* file;
    std::function<void(Json&)> damage;
    std::vector<std::string> expected;
  };
  const std::vector<Damage> damages = {
      {"config.json", [](Json& j) { j.erase("hidden_size"); }, {"config.json", "hidden_size"}},
      {"config.json", [](Json& j) { j["hidden_size"] = "32"; }, {"config.json", "hidden_size"}},
      {"config.json", [](Json& j) { j["hidden_size"] = -32; }, {"config.json", "hidden_size"}},
      {"config.json", [](Json& j) { j["num_attention_heads"] = 0; }, {"config.json", "num_attention_heads"}},
      {"config.json", [](Json& j) { j["num_attention_heads"] = 5; }, {"config.json", "num_attention_heads"}},
      {"config.json", [](Json& j) { j["num_hidden_layers"] = 3; }, {"encoder.layer.2."}},
      {"config.json",
       [](Json& j) { j["num_hidden_layers"] = 4'000'000'000'000; },
       {"config.json", "num_hidden_layers"}},
      {"config.json", [](Json& j) { j["num_hidden_layers"] = 300'000'000; }, {"config.json", "num_hidden_layers"}},
      {"config.json", [](Json& j) { j["layer_norm_eps"] = -1; }, {"config.json", "layer_norm_eps"}},
      {"config.json", [](Json& j) { j["layer_norm_eps"] = 0; }, {"config.json", "layer_norm_eps"}},
      {"config.json", [](Json& j) { j["hidden_act"] = "mystery"; }, {"config.json", "hidden_act", "mystery"}},
      {"config.json", [](Json& j) { j["model_type"] = "mystery"; }, {"config.json", "model_type", "mystery"}},
      {"config.json", [](Json& j) { j = Json::array(); }, {"config.json"}},
      {"modules.json", [](Json& j) { j[1]["type"] = "my.own.Module"; }, {"modules.json", "my.own.Module"}},
      {"modules.json", [](Json& j) { j[1]["path"] = "../../elsewhere"; }, {"elsewhere"}},
      {"modules.json", [](Json& j) { j = Json::object(); }, {"modules.json"}},
      {"config_sentence_transformers.json",
       [](Json& j) { j["similarity_fn_name"] = "mystery"; },
       {"config_sentence_transformers.json", "similarity_fn_name", "mystery"}},
      {"1_Pooling/config.json", [](Json& j) { j["word_embedding_dimension"] = 31; }, {"pooling", "31", "32"}},
  };
  for (const Damage& damage : damages) {
    INFO(damage.file << ": " << damage.expected.back());
    const ModelCopy model;
    model.damage_json(damage.file, damage.damage);
    model.check_refused(damage.expected);
  }
}

}  // namespace stft::test
