#include "recipe/compare.h"

#include <catch2/catch.hpp>

#include "base/error.h"

using namespace stft;
using namespace stft::recipe;

TEST_CASE("two resolved recipes are compared key by key") {
  const std::string ours = "run: {seed: 1}\nmodel: {name_or_path: a}\ntrain: {epochs: 2, optim: sgd}\nnew: 1\n";
  const std::string theirs =
      "run: {seed: 1}\nmodel: {name_or_path: b}\ntrain: {epochs: 3, optim: adamw}\nold: [1, 2]\n";
  const auto differences = compare_resolved({ours, "ours"}, {theirs, "theirs"});
  std::vector<std::string> keys;
  for (const Difference& difference : differences) {
    keys.push_back(difference.key);
  }
  CHECK(keys == std::vector<std::string>{"model.name_or_path", "train.epochs", "train.optim", "new", "old.0", "old.1"});
  CHECK(differences[0].ours == "a");
  CHECK(differences[0].theirs == "b");
  CHECK(differences[3].theirs == "(not set)");
  const auto fixed = fixed_differences(differences);
  REQUIRE(fixed.size() == 2);
  CHECK(fixed[1].key == "train.optim");
  CHECK_THROWS_AS(compare_resolved({ours, "ours"}, {"just text", "theirs"}), UserError);
}

TEST_CASE("a resolved recipe as lines: a key and its value each") {
  CHECK(flat_text({"loss: {scale: 20}\ndata: [a, {b: null}]\nempty: {}\ntext: \"two\\nlines\"\n", "r"}) ==
        "loss.scale: 20\ndata.0: a\ndata.1.b: null\nempty: {}\ntext: two lines\n");
  CHECK_THROWS_AS(flat_text({"just text", "r"}), UserError);
}

TEST_CASE("what is fixed is a whole key or a section, no mere beginning of a name") {
  const auto is_fixed = [](const std::string& key) { return fixed_differences({{key, "1", "2"}}).size() == 1; };
  for (const char* key : {"loss.scale", "data.train.0.path.0", "adapter", "adapter.r", "run.seed", "train.optim"}) {
    INFO(key);
    CHECK(is_fixed(key));
  }
  for (const char* key : {"train.optim_more", "data.eval.0.path", "run.seed_of", "train.per_device_train_batch_size",
                          "launch.nproc", "checkpoint.save_steps", "run.output_dir"}) {
    INFO(key);
    CHECK_FALSE(is_fixed(key));
  }
}
