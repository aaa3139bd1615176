#include "shard/unit_plan.h"

#include <catch2/catch.hpp>

#include "shard/strategy.h"

using namespace stft;
using shard::ShardConfig;
using shard::Strategy;

namespace {

struct Table {
  model::ParameterTable parameters;
  std::vector<model::Block> blocks;

  // A block of two parameters: `kilobytes` of fp32 and a small one.
  void add(const std::string& name, int64_t kilobytes, bool is_read_by_backward = true) {
    model::Block block{name, {}, is_read_by_backward};
    for (const int64_t rows : {kilobytes, int64_t{1}}) {
      model::Parameter parameter;
      parameter.name = name + (rows == 1 ? ".bias" : ".weight");
      parameter.shape = {rows, 256};
      block.parameters.push_back(static_cast<int64_t>(parameters.size()));
      parameters.push_back(parameter);
    }
    blocks.push_back(block);
  }

  std::vector<shard::UnitPlan> plan(const ShardConfig& config) const {
    return shard::plan_units(parameters, blocks, config, 4);
  }
  std::optional<std::string> problem(const ShardConfig& config) const {
    return shard::wrap_problem(parameters, blocks, config);
  }
};

// As MiniLM: a table of 47 MB and six layers of 7 MB.
Table small_encoder() {
  Table table;
  table.add("embeddings", 45784, false);
  for (int i = 0; i < 6; ++i) {
    table.add("encoder.layer." + std::to_string(i), 6930);
  }
  return table;
}

std::vector<int64_t> ends(const std::vector<shard::UnitPlan>& units) {
  std::vector<int64_t> result;
  int64_t expected = 0;
  for (const shard::UnitPlan& unit : units) {
    CHECK(unit.first_block == expected);
    expected = unit.end_block;
    result.push_back(unit.end_block);
  }
  return result;
}

}  // namespace

TEST_CASE("auto: large embeddings alone, small layers merged into even units, large layers one by one") {
  const auto units = small_encoder().plan({});
  CHECK(ends(units) == std::vector<int64_t>{1, 4, 7});
  CHECK_FALSE(units[0].is_read_by_backward);
  CHECK(units[1].is_read_by_backward);
  CHECK(units[1].name == "encoder.layer.0 .. encoder.layer.2");
  REQUIRE(units[0].groups.size() == 2);  // the table is alone, its companion in a second group
  CHECK(units[0].groups[0].parameters == std::vector<int64_t>{0});
  CHECK(units[1].groups.size() == 1);
  CHECK(units[1].groups[0].parameters.size() == 6);

  Table large;
  large.add("embeddings", 90000, false);
  for (int i = 0; i < 12; ++i) {
    large.add("layer." + std::to_string(i), 28000);
  }
  ShardConfig config;
  config.own_group_bytes = int64_t{1} << 30;
  CHECK(large.plan(config).size() == 13);

  Table tiny;
  tiny.add("embeddings", 60, false);
  tiny.add("layer.0", 20);
  tiny.add("layer.1", 20);
  const auto one = tiny.plan({});
  CHECK(ends(one) == std::vector<int64_t>{3});
  CHECK(one[0].is_read_by_backward);
}

TEST_CASE("auto with fewer bytes an element merges more") {
  const Table table = small_encoder();
  CHECK(shard::plan_units(table.parameters, table.blocks, {}, 2).size() == 2);
}

TEST_CASE("wrap: block by block, or the modules that are named") {
  const Table table = small_encoder();
  ShardConfig config;
  config.wrap = shard::WrapKind::kBlock;
  CHECK(table.plan(config).size() == 7);
  config.wrap = shard::WrapKind::kModules;
  config.wrap_modules = {"layer"};
  CHECK(table.plan(config).size() == 7);
  config.wrap_modules = {"layer.2", "encoder.layer.4"};
  CHECK(ends(table.plan(config)) == std::vector<int64_t>{3, 4, 5, 6, 7});
  config.wrap_modules = {"embeddings"};
  CHECK(ends(table.plan(config)) == std::vector<int64_t>{1, 7});
  config.wrap_modules = {"layer.2", "ayer", "BertLayer"};
  REQUIRE(table.problem(config).has_value());
  CHECK_THAT(*table.problem(config), Catch::Contains("'ayer' ends the name of no module") &&
                                         Catch::Contains("embeddings, encoder.layer.0, encoder.layer.1"));
  config.wrap_modules = {"layer.2"};
  CHECK_FALSE(table.problem(config).has_value());
}

TEST_CASE("blocks that share a parameter are in one unit") {
  Table table = small_encoder();
  table.blocks[5].parameters.push_back(4);  // of block 2
  const auto units = table.plan({});
  CHECK(ends(units) == std::vector<int64_t>{1, 7});
  int64_t count = 0;
  for (const auto& group : units[1].groups) {
    count += static_cast<int64_t>(group.parameters.size());
  }
  CHECK(count == 12);
  ShardConfig config;
  config.wrap = shard::WrapKind::kModules;
  config.wrap_modules = {"layer.2"};
  REQUIRE(table.problem(config).has_value());
  CHECK_THAT(*table.problem(config), Catch::Contains("encoder.layer.1 and encoder.layer.4 share"));
  config.wrap_modules = {"layer.0"};
  CHECK_FALSE(table.problem(config).has_value());
  CHECK(ends(table.plan(config)) == std::vector<int64_t>{1, 2, 7});
}

TEST_CASE("the mesh of every strategy") {
  const auto shape = [](Strategy strategy, int64_t ranks, std::optional<int64_t> hybrid = {},
                        std::optional<int64_t> part = {}) {
    ShardConfig config;
    config.strategy = strategy;
    config.hybrid_shard_size = hybrid;
    config.reshard_after_forward_size = part;
    const auto mesh = shard::mesh_shape(config, ranks, 4);
    return std::vector<int64_t>{mesh.shard, mesh.replicate, mesh.part};
  };
  CHECK(shape(Strategy::kFullShard, 3) == std::vector<int64_t>{3, 1, 1});
  CHECK(shape(Strategy::kShardGradOp, 3) == std::vector<int64_t>{3, 1, 1});
  CHECK(shape(Strategy::kNoShard, 3) == std::vector<int64_t>{1, 3, 1});
  CHECK(shape(Strategy::kHybridShard, 8) == std::vector<int64_t>{4, 2, 1});
  CHECK(shape(Strategy::kHybridShard, 8, 2) == std::vector<int64_t>{2, 4, 1});
  CHECK(shape(Strategy::kFullShard, 8, {}, 4) == std::vector<int64_t>{8, 1, 4});
  CHECK(shape(Strategy::kFullShard, 8, {}, 8) == std::vector<int64_t>{8, 1, 1});
  CHECK(shape(Strategy::kFullShard, 8, {}, 16) == std::vector<int64_t>{8, 1, 1});
}

TEST_CASE("auto shards as little as the memory needs") {
  const shard::ModelBytes bytes{400, 200, 400, 800};
  CHECK(shard::choose_strategy(bytes, 1, 100) == Strategy::kNoShard);
  CHECK(shard::choose_strategy(bytes, 4, 3200) == Strategy::kNoShard);
  CHECK(shard::choose_strategy(bytes, 4, 3199) == Strategy::kShardGradOp);
  CHECK(shard::choose_strategy(bytes, 4, 1200) == Strategy::kShardGradOp);
  CHECK(shard::choose_strategy(bytes, 4, 1199) == Strategy::kFullShard);
  CHECK(shard::choose_strategy(bytes, 2, 100) == Strategy::kFullShard);
}
