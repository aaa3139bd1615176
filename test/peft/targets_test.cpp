#include "peft/targets.h"

#include <catch2/catch.hpp>

#include "base/error.h"
#include "io/temporary_directory.h"
#include "peft/name_pattern.h"

using namespace stft;
using peft::AdapterConfig;
using peft::choose_targets;

namespace {

const std::vector<std::string>& bert_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> result;
    for (const char* layer : {"encoder.layer.0.", "encoder.layer.1.", "encoder.layer.10."}) {
      for (const char* name : {"attention.self.query", "attention.self.key", "attention.self.value",
                               "attention.output.dense", "intermediate.dense", "output.dense"}) {
        result.push_back(std::string(layer) + name);
      }
    }
    return result;
  }();
  return names;
}

AdapterConfig with_list(std::vector<std::string> entries) {
  AdapterConfig config;
  config.target_modules = std::move(entries);
  config.target_modules_is_list = true;
  return config;
}

AdapterConfig with_text(const std::string& text) {
  AdapterConfig config;
  config.target_modules = {text};
  return config;
}

std::vector<std::string> names_of(const AdapterConfig& config) {
  std::vector<std::string> names;
  for (const peft::Target& target :
       choose_targets({bert_names(), {"embeddings.word_embeddings"}}, config, "bert", "where").targets) {
    names.push_back(target.name);
  }
  return names;
}

}  // namespace

TEST_CASE("targets are names, or ends of names behind a dot") {
  CHECK(names_of(with_list({"query", "value"})).size() == 6);
  CHECK(names_of(with_list({"output.dense"})).size() == 6);  // of the attention and of the MLP
  CHECK(names_of(with_list({"encoder.layer.1.output.dense"})) ==
        std::vector<std::string>{"encoder.layer.1.output.dense"});
  CHECK(names_of(with_text("all-linear")).size() == 18);
  CHECK(names_of(with_list({"word_embeddings", "query"})).size() == 4);  // a table of embeddings by its name
  CHECK(names_of(AdapterConfig{}).size() == 6);                          // PEFT's choice for BERT: query and value
}

TEST_CASE("a text is a regular expression of the whole name") {
  CHECK(names_of(with_text(".*layer\\.0\\..*\\.(query|key)")).size() == 2);
  CHECK(names_of(with_text("encoder\\.layer\\.1\\..*")).size() == 6);  // not those of layer 10
  CHECK(names_of(with_text("(?!.*output).*dense")).size() == 3);
  CHECK(names_of(with_text("(?P<layer>encoder\\.layer\\.(?:0|1))(\\.attention)?(?:\\.self)?.(key|query)")).size() == 4);
  CHECK(test::message_of<UserError>([] { names_of(with_text("query")); }).find("matches nothing") != std::string::npos);
  CHECK(test::message_of<UserError>([] { names_of(with_text("(query")); }).find("(query") != std::string::npos);
  CHECK(test::message_of<UserError>([] { names_of(with_text("a)|(b")); }).find("not valid") != std::string::npos);
  const peft::NamePattern hostile("(([a-z.]*)*)*!");
  CHECK_THROWS_AS(hostile.matches("encoder.layer.0.attention.self.query"), UserError);
}

TEST_CASE("a pattern is found as re.search finds it") {
  const std::string name = "model.0.model.encoder.layer.1.attention.self.query.lora_B.default.weight";
  for (const char* found : {"lora_B", "^model", "weight$", "layer\\.(1|2)\\.", "lora_(?!A)", "|x", ""}) {
    INFO(found);
    CHECK(peft::NamePattern(found).is_found_in(name));
  }
  for (const char* absent : {"lora_A", "^encoder", "layer$", "Query"}) {
    INFO(absent);
    CHECK_FALSE(peft::NamePattern(absent).is_found_in(name));
  }
  CHECK(peft::NamePattern("a|b").is_found_in("xb"));
  const peft::NamePattern hostile("(([a-z.]*)*)*[!0-9][x-z]");
  CHECK_THROWS_AS(hostile.is_found_in("encoder.layer.0.attention.self.query"), UserError);
}

TEST_CASE("modules are left out by exclude_modules, modules_to_save and layers_to_transform") {
  auto config = with_text("all-linear");
  config.exclude_modules = {"key", "encoder.layer.0.output.dense"};
  CHECK(names_of(config).size() == 14);
  config.exclude_modules = {".*layer\\.1\\..*"};
  config.exclude_modules_is_list = false;
  CHECK(names_of(config).size() == 12);
  config = with_text("all-linear");
  config.modules_to_save = {"attention", "dense"};
  CHECK(test::message_of<UserError>([&] { names_of(config); }).find("matches nothing") != std::string::npos);
  config.modules_to_save = {"attention"};
  CHECK(names_of(config).size() == 6);
  config = with_list({"query"});
  config.layers_to_transform = std::vector<int64_t>{1};
  CHECK(names_of(config) == std::vector<std::string>{"encoder.layer.1.attention.self.query"});
}

TEST_CASE("A10: no match is an error that lists the names; some of a list are told") {
  const auto message = test::message_of<UserError>([] { names_of(with_list({"q_proj"})); });
  CHECK(message ==
        "where: 'q_proj' matches nothing; the model's linear modules are encoder.layer.*.attention.self.query (3), "
        "encoder.layer.*.attention.self.key (3), encoder.layer.*.attention.self.value (3), "
        "encoder.layer.*.attention.output.dense (3), encoder.layer.*.intermediate.dense (3), "
        "encoder.layer.*.output.dense (3)");
  const auto choice = choose_targets({bert_names(), {"embeddings.word_embeddings"}},
                                     with_list({"query", "q_proj", "uery"}), "bert", "where");
  CHECK(choice.unmatched == std::vector<std::string>{"q_proj", "uery"});
  CHECK(test::message_of<UserError>([] {
          choose_targets({bert_names(), {"embeddings.word_embeddings"}}, {}, "mpnet", "where");
        }).find("required") != std::string::npos);
}

TEST_CASE("rank_pattern and alpha_pattern go by the end of the name") {
  auto config = with_text("all-linear");
  config.r = 4;
  config.lora_alpha = 8;
  config.rank_pattern = {{"intermediate.dense", 2}};
  config.alpha_pattern = {{"value", 16}, {"encoder\\.layer\\.1\\..*\\.key", 3}};
  const auto of = [&](const std::string& name) { return peft::with_patterns(name, config); };
  CHECK(of("encoder.layer.0.intermediate.dense").r == 2);
  CHECK(of("encoder.layer.0.output.dense").r == 4);
  CHECK(of("encoder.layer.0.attention.self.value").alpha == 16);
  CHECK(of("encoder.layer.1.attention.self.key").alpha == 3);
  CHECK(of("encoder.layer.0.attention.self.key").alpha == 8);
  CHECK(peft::scale_of({"", 4, 8}, false) == 2);
  CHECK(peft::scale_of({"", 4, 8}, true) == 4);
}
