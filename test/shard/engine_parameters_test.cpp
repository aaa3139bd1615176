// Parameters of every kind: frozen, in another dtype, tied, whole, padded.
#include "chain_run.h"

#include "base/error.h"
#include "shard/unit_plan.h"

using namespace stft;
using namespace stft::test;

TEST_CASE("a frozen group is gathered but never reduced; below it nothing is prefetched") {  // T9
  Setup setup = with_strategy(Strategy::kFullShard, 2);
  SECTION("in the middle") {
    setup.shape.frozen_blocks = {2};
    const auto found = run(setup, one_pass);
    check_gradients(found.gradients, plain_one(setup.shape), 1e-6);
    CHECK(found.counts.reduce_scatters == 3);
    CHECK(found.counts.all_gathers == 6);
  }
  SECTION("the table and the first two layers: the backward ends above them") {
    setup.shape.frozen_blocks = {0, 1, 2};
    const auto found = run(setup, one_pass);
    check_gradients(found.gradients, plain_one(setup.shape), 1e-6);
    CHECK(found.counts.reduce_scatters == 1);
    CHECK(found.counts.all_gathers == 4);  // each once, in the forward
    CHECK(found.measured.gradients == found.planned.gradients);
    CHECK(found.planned.gradients == (3 * 6 + 3 + 1) * 4);  // half of [6, 6], [6] and [1] (a row on each)
  }
}

TEST_CASE("frozen and trainable parameters in one group: only the trainable are reduced") {  // A20
  for (const auto strategy : {Strategy::kFullShard, Strategy::kNoShard}) {
    for (const int64_t ranks : {2, 3}) {
      Setup setup = with_strategy(strategy, ranks);
      setup.shape.frozen_parameters = {"weight.1", "bias.0", "scale.2"};
      const auto found = run(setup, one_pass);
      check_gradients(found.gradients, plain_one(setup.shape), 1e-6);
      const auto all = run(with_strategy(strategy, ranks), one_pass);
      const auto chunk = [&](int64_t rows) {
        return strategy == Strategy::kNoShard ? rows : (rows + ranks - 1) / ranks;
      };
      CHECK(all.planned.gradients - found.planned.gradients == 4 * (chunk(6) * 6 + chunk(6) + chunk(1)));
      CHECK(found.measured.gradients == found.planned.gradients);
    }
  }
}

TEST_CASE("padding is zero and stays zero, and no norm sees it") {  // T2, T3
  std::mutex mutex;
  std::vector<at::Tensor> squares(3);
  run_ranks(3, [&](std::unique_ptr<dist::ProcessGroup> world) {
    const auto single = dist::ProcessGroup::single();
    ChainModel model({});
    ShardEngine engine({model.parameters, model.blocks}, {*world, *single}, by_block());
    engine.fill(ChainModel::source());
    const auto padding_is_zero = [&] {
      const ShardEngine::KeepUnsharded keep(engine);
      bool is_zero = true;
      for (const auto& parameter : model.parameters) {
        const auto* values = static_cast<const float*>(parameter.leaf.storage().data());
        const auto stored = static_cast<int64_t>(parameter.leaf.storage().nbytes() / sizeof(float));
        for (int64_t i = parameter.numel(); i < stored; ++i) {
          is_zero = is_zero && values[i] == 0.0F;
        }
      }
      return is_zero;
    };
    const bool is_zero_before = padding_is_zero();
    double norm = 0;
    for (int step = 0; step < 2; ++step) {
      one_pass(model, engine, own_ids(world->rank(), 3));
      engine.finish_gradients();
      norm = 0;
      for (const auto& local : engine.local_parameters()) {
        at::Tensor value = local.value;
        value.sub_(local.gradient, 0.01);
        norm += local.gradient.square().sum().item<double>();
      }
      engine.clear_gradients();
    }
    const bool is_zero_after = padding_is_zero();
    const auto total = at::full({1}, norm, at::kDouble);
    world->all_reduce_sum(total).wait();
    const std::scoped_lock lock(mutex);
    CHECK(is_zero_before);
    CHECK(is_zero_after);
    squares[static_cast<size_t>(world->rank())] = total;
  });
  // The same two steps without an engine.
  ChainModel model({});
  model.fill_plain();
  double norm = 0;
  for (int step = 0; step < 2; ++step) {
    torch::autograd::backward({chain_loss(model.forward(chain_ids(kRows, 11), nullptr))}, {});
    const at::NoGradGuard no_grad;
    norm = 0;
    for (auto& parameter : model.parameters) {
      norm += parameter.leaf.grad().square().sum().item<double>();
      parameter.leaf.sub_(parameter.leaf.grad(), 0.01);
      parameter.leaf.mutable_grad() = at::Tensor();
    }
  }
  for (const auto& total : squares) {
    CHECK(total.item<double>() == Approx(norm).epsilon(1e-5));
  }
}

TEST_CASE("frozen parameters stay in the dtype they were loaded in") {
  std::mutex mutex;
  run_ranks(2, [&](std::unique_ptr<dist::ProcessGroup> world) {
    const auto single = dist::ProcessGroup::single();
    ChainShape shape;
    shape.frozen_blocks = {1};
    ChainModel model(shape);
    for (size_t i = 1; i < 4; ++i) {
      model.parameters[i].stored_dtype = at::kBFloat16;
    }
    ShardEngine engine({model.parameters, model.blocks}, {*world, *single}, by_block());
    engine.fill(ChainModel::source());
    const auto before = engine.counts().bytes;
    const auto output = model.forward(own_ids(world->rank(), 2), &engine);
    const auto gathered = engine.counts().bytes - before;
    torch::autograd::backward({chain_loss(output)}, {});
    engine.finish_gradients();
    ChainModel reference(shape);
    reference.fill_plain();
    for (size_t i = 1; i < 4; ++i) {
      reference.parameters[i].leaf = reference.parameters[i].leaf.to(at::kBFloat16).to(at::kFloat);
    }
    const auto expected = reference.forward(own_ids(world->rank(), 2), nullptr);
    const auto weight = engine.gather(1);
    const std::scoped_lock lock(mutex);
    CHECK((output - expected).abs().max().item<double>() < 1e-6);
    CHECK(weight.scalar_type() == at::kBFloat16);
    // Table [11, 6] as 12 rows; two layers in fp32, one in bf16 whose members are padded to 4 bytes; scales have 1 row.
    CHECK(gathered == 12 * 6 * 4 + 2 * 2 * (18 + 3 + 1) * 4 + 2 * (18 * 2 + 8 + 4));
    CHECK_FALSE(engine.local_parameters()[1].gradient.defined());
  });
}

TEST_CASE("parameters that every rank keeps whole have their gradients all-reduced") {  // T10
  Setup setup = with_strategy(Strategy::kFullShard, 3);
  setup.config.whole_parameters = {"weight.1", "bias.1"};
  const auto found = run(setup, one_pass);
  check_gradients(found.gradients, plain_one(), 1e-6);
  CHECK(found.counts.all_reduces == 1);
  CHECK(found.counts.reduce_scatters == 4);

  // They are the same on all ranks, and count once where ranks are summed.
  std::mutex mutex;
  std::vector<at::Tensor> of_ranks;
  std::vector<double> norms;
  run_ranks(3, [&](std::unique_ptr<dist::ProcessGroup> world) {
    const auto single = dist::ProcessGroup::single();
    ChainModel model({});
    ShardEngine engine({model.parameters, model.blocks}, {*world, *single}, setup.config);
    engine.fill(ChainModel::source());
    one_pass(model, engine, own_ids(world->rank(), 3));
    engine.finish_gradients();
    const auto locals = engine.local_parameters();
    const auto total = at::zeros({1}, at::kDouble);
    for (const auto& local : locals) {
      if (local.copy == 0) {
        total.add_(local.gradient.square().sum().to(at::kDouble));
      }
    }
    world->all_reduce_sum(total).wait();
    const uint64_t checksum = engine.parameters_checksum();
    const std::scoped_lock lock(mutex);
    CHECK(locals[4].copies == 3);  // weight.1
    of_ranks.push_back(locals[4].gradient.clone());
    norms.push_back(total.item<double>());
    CHECK(checksum == checksum_of_plain());
  });
  double norm = 0;
  for (const auto& gradient : plain_one()) {
    norm += gradient.square().sum().item<double>();
  }
  for (size_t rank = 0; rank < 3; ++rank) {
    CHECK(at::equal(of_ranks[rank], of_ranks[0]));
    CHECK(norms[rank] == Approx(norm).epsilon(1e-6));
  }

  // With what they are computed in, or where a part of the ranks keeps the rest, they are their own business.
  setup.ranks = 4;
  setup.shard = 4;
  setup.part = 2;
  check_gradients(run(setup, one_pass).gradients, plain_one(), 1e-6);
  setup.config.cpu_offload = true;
  check_gradients(run(setup, one_pass).gradients, plain_one(), 1e-6);
}

TEST_CASE("a tied parameter sums the gradients of its uses; it cannot be wrapped apart") {  // T16
  ChainShape shape;
  shape.has_tied_head = true;
  Setup setup = with_strategy(Strategy::kFullShard, 2);
  setup.shape = shape;
  setup.config.wrap = shard::WrapKind::kAuto;
  for (const int64_t own_group_bytes : {int64_t{1} << 30, int64_t{1}}) {
    setup.config.own_group_bytes = own_group_bytes;
    check_gradients(run(setup, one_pass).gradients, plain_one(shape), 1e-6);
  }
  const ChainModel model(shape);
  const auto problem = shard::wrap_problem(model.parameters, model.blocks, by_block());
  REQUIRE(problem.has_value());
  CHECK_THAT(*problem, Catch::Contains("embeddings and head share table"));
  setup.config.wrap = shard::WrapKind::kBlock;
  CHECK_THROWS_AS(run(setup, one_pass), InternalError);
}
