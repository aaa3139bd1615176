// Prompts against sentence-transformers: how many tokens they have, what pooling without them gives, which prompt goes
// before which text.
#include <ATen/ATen.h>

#include <catch2/catch.hpp>

#include "base/error.h"
#include "data/prompt.h"
#include "eval/prompts.h"
#include "eval/retrieval_evaluator.h"
#include "io/temporary_directory.h"
#include "model/pooling.h"
#include "support/plain_model.h"
#include "support/rank_messages.h"
#include "train/loss_evaluator.h"
#include "train/prompt_report.h"

using namespace stft;
using Catch::Matchers::Contains;
using model::Layout;
using model::PoolingMode;

namespace {

constexpr auto kModes = {PoolingMode::kCls,          PoolingMode::kMax,
                         PoolingMode::kMean,         PoolingMode::kMeanSqrtLenTokens,
                         PoolingMode::kWeightedMean, PoolingMode::kLastToken};
constexpr auto kLayouts = {Layout::kPacked, Layout::kPadded};

const io::Json& golden() {
  static const io::Json json = test::golden_json("prompts.json");
  return json;
}

at::Tensor golden_tensor(const std::string& name) {
  return test::read_tensor(test::golden_path("prompts.safetensors"), name);
}

// Infinities at equal places are equal.
bool is_close(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && at::allclose(a, b, 1e-5, 1e-5);
}

// A golden model without Normalize.
test::PlainModel model_of(const std::string& name, std::vector<PoolingMode> pooling, bool includes_prompt) {
  model::ModelConfig config;
  config.pooling = std::move(pooling);
  config.normalize = false;
  config.include_prompt = includes_prompt;
  config.max_seq_length = golden().at("max_length").get<int64_t>();
  return test::PlainModel(test::golden_path(name), config);
}

struct Batch {
  model::TokenBatch tokens;
  at::Tensor hidden;
};

// The texts of poolings.safetensors behind prompts of these lengths; padding holds what must not count.
Batch batch_with(const std::vector<int64_t>& prompt_lengths, Layout layout) {
  const std::string file = test::golden_path("poolings.safetensors");
  std::vector<at::Tensor> texts;
  std::vector<int32_t> ids;
  std::vector<int64_t> offsets{0};
  for (int i = 0; i < 3; ++i) {
    texts.push_back(test::read_tensor(file, "text_" + std::to_string(i)));
    ids.resize(ids.size() + static_cast<size_t>(texts.back().size(0)), 7);
    offsets.push_back(static_cast<int64_t>(ids.size()));
  }
  Batch batch{model::make_token_batch(ids, offsets, std::vector<model::TextKey>(3), layout, prompt_lengths), {}};
  std::vector<at::Tensor> in_memory(3);
  for (int i = 0; i < 3; ++i) {
    at::Tensor text = texts[static_cast<size_t>(i)];
    const int64_t padding = batch.tokens.buckets.back().length - text.size(0);
    text = layout == Layout::kPadded ? at::cat({text, at::full({padding, text.size(1)}, 1e3)}) : text;
    in_memory[static_cast<size_t>(batch.tokens.memory_to_caller_N[i].item<int64_t>())] = text;
  }
  batch.hidden = at::cat(in_memory);
  return batch;
}

eval::EvaluatorConfig beir_config() {
  eval::EvaluatorConfig config;
  config.queries.path = test::golden_path("data/beir/queries.jsonl");
  config.corpus.path = test::golden_path("data/beir/corpus.jsonl");
  config.qrels_path = test::golden_path("data/beir/qrels/test.tsv");
  return config;
}

void check_retrieval(const test::PlainModel& plain, const eval::EvaluatorConfig& config, const io::Json& expected) {
  const eval::RetrievalEvaluator evaluator(config, {32, model::Similarity::kCosine});
  eval::Interrupt interrupt;
  eval::CorpusCache cache;
  const eval::Embedder embedder(*plain.model, *plain.tokenizer, Layout::kPacked);
  const auto found = evaluator.evaluate(embedder, *dist::ProcessGroup::single(), cache, interrupt).value();
  int compared = 0;
  for (const auto& [name, value] : found.values) {
    if (expected.contains(name)) {
      INFO(name);
      CHECK(value == Approx(expected.at(name).get<double>()).margin(1e-6));
      compared += 1;
    }
  }
  CHECK(compared == 3);
}

}  // namespace

TEST_CASE("pooling without the prompt equals sentence-transformers', a text that is all prompt too") {
  for (const Layout layout : kLayouts) {
    for (const int64_t length : {1, 3, 5}) {
      const Batch batch = batch_with({length, length, length}, layout);
      for (const PoolingMode mode : kModes) {
        const std::string name = "pooled/" + std::to_string(length) + "/" + model::pooling_mode_name(mode);
        INFO(name << " padded " << (layout == Layout::kPadded));
        CHECK(is_close(model::pool(batch.hidden, batch.tokens, {mode}, false), golden_tensor(name)));
      }
    }
    const Batch plain = batch_with({0, 0, 0}, layout);
    const Batch mixed = batch_with({0, 5, 3}, layout);  // the columns of a batch have prompts of their own
    for (const PoolingMode mode : kModes) {
      const std::string name = model::pooling_mode_name(mode);
      INFO(name);
      const auto whole = test::read_tensor(test::golden_path("poolings.safetensors"), name);
      CHECK(is_close(model::pool(plain.hidden, plain.tokens, {mode}, false), whole));
      CHECK(is_close(model::pool(mixed.hidden, mixed.tokens, {mode}, true), whole));
      const auto rows =
          at::stack({whole[0], golden_tensor("pooled/5/" + name)[1], golden_tensor("pooled/3/" + name)[2]});
      CHECK(is_close(model::pool(mixed.hidden, mixed.tokens, {mode}, false), rows));
    }
  }
}

TEST_CASE("texts behind prompts are embedded as sentence-transformers does, a cut prompt too") {
  const auto texts = golden().at("texts").get<std::vector<std::string>>();
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  for (const std::string name : {"tiny_bert", "tiny_llama"}) {
    for (const PoolingMode mode : kModes) {
      const test::PlainModel plain = model_of(name, {mode}, false);
      const at::NoGradGuard no_grad;
      for (const auto& [prompt_name, text] : golden().at("prompts").items()) {
        const auto prompt = text.get<std::string>();
        INFO(name << " " << model::pooling_mode_name(mode) << " " << prompt_name);
        CHECK(data::measure_prompt(prompt, *plain.tokenizer, plain.model->max_seq_length()).length ==
              golden().at("prompt_lengths").at(name).at(prompt_name).get<int64_t>());
        const auto expected = golden_tensor(name + "/" + prompt_name + "/" + model::pooling_mode_name(mode));
        for (const Layout layout : kLayouts) {
          const eval::Embedder embedder(*plain.model, *plain.tokenizer, layout);
          CHECK(is_close(embedder.embed(views, embedder.measured(prompt)), expected));
          CHECK(is_close(embedder.embed(std::span(views).subspan(0, 1), embedder.measured(prompt)),
                         expected.narrow(0, 0, 1)));
        }
      }
    }
  }
}

TEST_CASE("without a prompt include_prompt changes nothing") {
  const std::vector<std::string_view> texts = {"a small flower", ""};
  const test::PlainModel with = model_of("tiny_bert", {PoolingMode::kMean}, true);
  const test::PlainModel without = model_of("tiny_bert", {PoolingMode::kMean}, false);
  const eval::Embedder a(*with.model, *with.tokenizer, Layout::kPacked);
  const eval::Embedder b(*without.model, *without.tokenizer, Layout::kPacked);
  CHECK(at::equal(a.embed(texts, {}), b.embed(texts, {})));
  CHECK_FALSE(is_close(a.embed(texts, a.measured("find: ")), b.embed(texts, b.measured("find: "))));
}

TEST_CASE("the loss of rows with a prompt for each role equals sentence-transformers'") {
  for (const std::string name : {"tiny_bert", "tiny_llama"}) {
    for (const bool includes : {true, false}) {
      INFO(name << " include_prompt " << includes);
      model::ModelConfig config;
      config.include_prompt = includes;
      const test::PlainModel plain(test::golden_path(name), config);
      data::DatasetConfig set;
      set.name = "pairs";
      set.paths = {test::golden_path("data/pairs.jsonl")};
      set.columns.anchor = "anchor";
      set.columns.positive = "positive";
      set.limit = golden().at("rows").get<int64_t>();
      set.prompts = golden().at("trained").get<std::map<std::string, std::string>>();
      loss::LossConfig loss;
      loss.type = loss::LossType::kMultipleNegativesRanking;
      const train::LossEvaluator evaluator({set}, *plain.model, *plain.tokenizer, {loss, *set.limit});
      eval::Interrupt interrupt;
      eval::CorpusCache cache;
      const eval::Embedder embedder(*plain.model, *plain.tokenizer, Layout::kPacked);
      const auto found = evaluator.evaluate(embedder, *dist::ProcessGroup::single(), cache, interrupt).value();
      const double expected = golden().at("losses").at(name).at(includes ? "include" : "exclude").get<double>();
      CHECK(found.primary_value() == Approx(expected).epsilon(1e-5));
    }
  }
}

TEST_CASE("retrieval with the model's prompts and with the evaluator's equals sentence-transformers'") {
  struct Case {
    const char* name;
    std::map<std::string, std::string> prompts;
    eval::PromptConfig query, corpus;
  };
  const std::vector<Case> cases = {
      {"own", {{"query", "find: "}, {"document", "some state: "}}, {}, {}},
      {"passage", {{"query", "find: "}, {"passage", "some state: "}}, {}, {}},
      {"default", {{"other", "small: "}}, {}, {}},
      {"names", {{"other", "small: "}, {"query", "find: "}}, {{}, "other"}, {{}, "query"}},
      {"texts", {{"query", "find: "}}, {"", {}}, {"small: ", {}}},
  };
  for (const std::string name : {"tiny_bert", "tiny_llama"}) {
    for (const Case& expected : cases) {
      for (const bool includes : {true, false}) {
        INFO(name << " " << expected.name << " include_prompt " << includes);
        model::ModelConfig config;
        config.include_prompt = includes;
        config.prompts = expected.prompts;
        const test::PlainModel plain(test::golden_path(name), config);
        auto evaluator = beir_config();
        evaluator.query_prompt = expected.query;
        evaluator.corpus_prompt = expected.corpus;
        check_retrieval(plain, evaluator,
                        golden().at("retrieval").at(name).at(expected.name).at(includes ? "include" : "exclude"));
      }
    }
  }
}

TEST_CASE("prompts are chosen as SentenceTransformer.encode, encode_query and encode_document choose them") {
  model::ModelSpec spec;
  spec.directory = "some/model";
  CHECK(eval::encoding_prompt(spec, {}).empty());
  CHECK(eval::encoding_prompt(spec, "query").empty());  // every model has the names query and document
  spec.prompts = {{"query", "q: "}, {"other", "o: "}, {"passage", "p: "}};
  CHECK(eval::encoding_prompt(spec, {}).empty());
  CHECK(eval::encoding_prompt(spec, "query") == "q: ");
  CHECK(eval::encoding_prompt(spec, "document").empty());
  CHECK(eval::query_prompt(spec, {}) == "q: ");
  CHECK(eval::document_prompt(spec, {}).empty());
  CHECK(eval::document_prompt(spec, {{}, "passage"}) == "p: ");
  CHECK(eval::query_prompt(spec, {"x ", {}}) == "x ");
  CHECK(eval::query_prompt(spec, {"", {}}).empty());
  spec.default_prompt_name = "other";
  CHECK(eval::encoding_prompt(spec, {}) == "o: ");
  CHECK(eval::encoding_prompt(spec, "query") == "q: ");
  CHECK(eval::document_prompt(spec, {}).empty());  // never the default one
  const std::string unknown = test::message_of<UserError>([&] { eval::encoding_prompt(spec, "absent"); });
  CHECK_THAT(unknown, Contains("some/model") && Contains("'absent'") && Contains("document, other, passage, query"));
  CHECK_THAT(test::message_of<UserError>([&] { eval::query_prompt(spec, {{}, "absent"}); }), Contains("'absent'"));
  spec.default_prompt_name = "nothing";
  CHECK_THAT(test::message_of<UserError>([&] { eval::encoding_prompt(spec, {}); }), Contains("default_prompt_name"));
}

TEST_CASE("a run tells the prompt of every role, and warns of one that only training or only evaluation has") {
  const test::PlainModel plain = model_of("tiny_bert", {PoolingMode::kMean}, false);
  recipe::Recipe recipe;
  data::DatasetConfig set;
  set.name = "pairs";
  set.columns.anchor = "anchor";
  set.columns.positive = "positive";
  recipe.data.train = {set};
  auto evaluator = beir_config();
  evaluator.name = "dev";
  recipe.evaluators = {evaluator};
  model::ModelSpec spec = plain.model->spec();
  CHECK(train::prompt_notes(recipe, spec, *plain.tokenizer).infos == std::vector<std::string>{"prompts: none"});

  spec.prompts = {{"query", "find: "}, {"document", ""}};
  recipe.data.train.front().prompts = {{"anchor", "query"}};
  const auto agreeing = train::prompt_notes(recipe, spec, *plain.tokenizer);
  CHECK(agreeing.infos ==
        std::vector<std::string>{R"(prompts of training data 'pairs': anchor "find: " (5 tokens), positive none)",
                                 R"(prompts of evaluator 'dev': queries "find: " (5 tokens), corpus none)",
                                 "prompts: pooling leaves their tokens out (include_prompt: false)"});
  CHECK(agreeing.warnings.empty());

  recipe.data.train.front().prompts = {{"anchor", "query"}, {"positive", "document"}};
  CHECK_THAT(train::prompt_notes(recipe, spec, *plain.tokenizer).warnings.at(0),
             Contains("positive has the prompt 'document', which is empty"));
  recipe.model.prompts = {{"document", ""}};
  CHECK(train::prompt_notes(recipe, spec, *plain.tokenizer).warnings.empty());

  recipe.data.train.front().prompts = {{"anchor", "say:\n"}};
  const auto skewed = train::prompt_notes(recipe, spec, *plain.tokenizer);
  CHECK(skewed.warnings ==
        std::vector<std::string>{R"(training data 'pairs': the prompt of anchor is "say:\n", which no evaluation uses)",
                                 R"(evaluator 'dev': the prompt of queries is "find: ", which training does not use)"});
}
