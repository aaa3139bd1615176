// Parameters that are kept as rows of bytes: an int8 for each element, ten in a row, in steps of 1/64.
#include "chain_run.h"

using namespace stft;
using namespace stft::test;

namespace {

constexpr int64_t kElements = 10;  // of a row; the 36 of a weight end within its fourth
constexpr int64_t kRowBytes = 12;

at::Tensor rounded(const model::Parameter& parameter) {
  return (ChainModel::initial(parameter) * 64).round() / 64;
}

at::Tensor packed_rows(const model::Parameter& parameter) {
  const auto codes = (ChainModel::initial(parameter) * 64).round().to(at::kChar).view({-1});
  auto rows = at::zeros({4, kRowBytes}, at::kChar);
  for (int64_t row = 0; row < 4; ++row) {
    const int64_t count = std::min(kElements, codes.numel() - row * kElements);
    rows[row].narrow(0, 0, count).copy_(codes.narrow(0, row * kElements, count));
  }
  return rows.view(at::kByte);
}

shard::PackedForms pack_weights(ChainModel& model) {
  shard::PackedForms forms;
  for (model::Parameter& parameter : model.parameters) {
    if (parameter.name.starts_with("weight.")) {
      parameter.is_trainable = false;
      parameter.stored_dtype = at::kByte;
      forms[&parameter] = {4, kRowBytes, kElements, [](const at::Tensor& rows, const at::Tensor& to) {
                             const auto codes = rows.view(at::kChar).narrow(1, 0, kElements).reshape({-1});
                             to.copy_(codes.narrow(0, 0, to.numel()).to(at::kFloat) / 64);
                           }};
    }
  }
  return forms;
}

shard::RowSource source(const shard::PackedForms& forms) {
  return [&forms](const model::Parameter& parameter, const shard::ShardLayout& layout, at::Tensor destination) {
    if (!forms.contains(&parameter)) {
      ChainModel::source()(parameter, layout, destination);
      return;
    }
    CHECK(layout.rows == 4);
    CHECK(destination.scalar_type() == at::kByte);
    destination.copy_(packed_rows(parameter).narrow(0, layout.first_row, layout.own_rows).reshape({-1}));
  };
}

struct Found {
  std::vector<at::Tensor> gradients;
  at::Tensor bytes;
  uint64_t checksum = 0, packed = 0;
  shard::MemoryUse planned, measured;
};

Found run_packed(const Setup& setup) {
  Found found;
  std::mutex mutex;
  run_ranks(setup.ranks, [&](std::unique_ptr<dist::ProcessGroup> world) {
    const int64_t rank = world->rank();
    const auto single = dist::ProcessGroup::single();
    const auto part = world->subgroup("part" + std::to_string(rank / setup.part), [&] {
      std::vector<int64_t> members;
      for (int64_t i = 0; i < setup.part; ++i) {
        members.push_back(rank / setup.part * setup.part + i);
      }
      return members;
    }());
    ChainModel model(setup.shape);
    const auto forms = pack_weights(model);
    const bool copies = setup.config.strategy == Strategy::kNoShard;
    ShardEngine engine({model.parameters, model.blocks, &forms},
                       {copies ? *single : *world, copies ? *world : *single, setup.part > 1 ? part.get() : nullptr},
                       setup.config);
    engine.fill(source(forms));
    one_pass(model, engine, own_ids(rank, setup.ranks));
    engine.finish_gradients();
    CHECK(is_freed(model, 1, 2));
    const auto gradients = whole_gradients(engine, copies ? *single : *world, copies ? setup.ranks : 1);
    const auto bytes = engine.gather(1);
    const auto checksum = engine.parameters_checksum();
    const auto packed = engine.packed_checksum();
    const std::scoped_lock lock(mutex);
    if (rank == 0) {
      found = {gradients, bytes, checksum, packed, engine.planned_memory(false), engine.measured_memory()};
    }
  });
  return found;
}

std::vector<at::Tensor> expected_gradients() {
  return plain({}, [](ChainModel& model) {
    for (model::Parameter& parameter : model.parameters) {
      if (parameter.name.starts_with("weight.")) {
        parameter.leaf = rounded(parameter);
      }
    }
    return chain_loss(model.forward(chain_ids(kRows, 11), nullptr));
  });
}

}  // namespace

TEST_CASE("packed parameters are gathered as bytes, unpacked for their block, and freed behind it") {
  const auto expected = expected_gradients();
  const Found one = run_packed(with_strategy(Strategy::kFullShard, 1));
  check_gradients(one.gradients, expected, 1e-6);
  CHECK(one.checksum != one.packed);
  for (const auto strategy : {Strategy::kFullShard, Strategy::kShardGradOp, Strategy::kNoShard}) {
    for (const int64_t ranks : {1, 2, 3, 5}) {  // of 5 ranks the last has no row
      INFO("ranks " << ranks << " strategy " << static_cast<int>(strategy));
      const Found found = run_packed(with_strategy(strategy, ranks));
      check_gradients(found.gradients, expected, 1e-6);
      CHECK(at::equal(found.bytes, one.bytes));
      CHECK(found.checksum == one.checksum);
      CHECK(found.packed == one.packed);
      CHECK(found.measured.gathers == found.planned.gathers);
    }
  }
}

TEST_CASE("packed parameters stay right when parts are kept, and with one unit of everything") {
  Setup setup = with_strategy(Strategy::kFullShard, 4);
  SECTION("parts") {
    setup.part = 2;
  }
  SECTION("a group of its own for every weight") {
    setup.config.own_group_bytes = 100;
  }
  SECTION("one unit") {
    setup.config.wrap = shard::WrapKind::kAuto;
  }
  SECTION("offload") {
    setup.config.cpu_offload = true;
  }
  check_gradients(run_packed(setup).gradients, expected_gradients(), 1e-6);
}

TEST_CASE("a rank keeps its rows of the bytes and nothing else of a packed parameter") {
  const Found plain_four = run_packed(with_strategy(Strategy::kFullShard, 4));
  // One row of each weight; of the table [11, 6] three rows, of a bias two values, of a scale one.
  CHECK(plain_four.measured.parameters == 3 * kRowBytes + (3 * 6 + 3 * 2 + 3 * 1) * 4);
}

TEST_CASE("an evaluation keeps packed parameters as bytes but for the unit that computes, and communicates no more") {
  for (const int64_t ranks : {1, 3}) {
    run_ranks(ranks, [&](std::unique_ptr<dist::ProcessGroup> world) {
      const auto single = dist::ProcessGroup::single();
      ChainModel model({});
      const auto forms = pack_weights(model);
      ShardEngine engine({model.parameters, model.blocks, &forms}, {*world, *single}, by_block());
      engine.fill(source(forms));
      const auto ids = own_ids(0, 2);
      ChainModel whole({});
      pack_weights(whole);
      for (model::Parameter& parameter : whole.parameters) {
        parameter.leaf = parameter.is_trainable ? ChainModel::initial(parameter) : rounded(parameter);
      }
      const at::NoGradGuard no_grad;
      const auto expected = whole.forward(ids, nullptr);
      {
        const ShardEngine::KeepUnsharded keep(engine, ShardEngine::KeepUnsharded::Gather::kPacked);
        const auto before = engine.counts();
        for (int64_t pass = 0; pass <= world->rank(); ++pass) {  // the ranks run different numbers of them
          CHECK(at::allclose(model.forward(ids, &engine), expected));
          CHECK(is_freed(model, 1, 2));
          CHECK_FALSE(is_freed(model, 2, 3));
        }
        CHECK((engine.counts() - before).all_gathers == 0);
      }
      CHECK(is_freed(model, ranks == 1 ? 1 : 0, 2));  // one rank's table is its shard
      CHECK(engine.measured_memory().gathers == 0);
      CHECK(at::allclose(model.forward(ids, &engine), expected));  // as ever afterwards
    });
  }
}
