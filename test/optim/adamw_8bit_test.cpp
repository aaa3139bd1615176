// AdamW with moments of 8 bits as an optimizer: what has them, and that rows are all that it depends on.
#include "optim/adamw_8bit.h"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>

#include "quant/bnb_adam8bit.h"
#include "quant/nf4_golden.h"
#include "quant/nf4_tables.h"

using namespace stft;
using namespace stft::optim;

namespace {

OptimConfig config_8bit(double weight_decay = 0.0) {
  OptimConfig config;
  config.optim = OptimizerType::kAdamW8bit;
  config.weight_decay = weight_decay;
  return config;
}

TensorFacts facts(int64_t rows, int64_t row_numel, bool is_table = false) {
  return {row_numel, rows * row_numel, is_table};
}

Update update(const at::Tensor& value, const at::Tensor& gradient, const TensorFacts& of) {
  return {value.view({-1}), gradient.view({-1}), true, 1e-2, of};
}

at::Tensor golden(const io::SafetensorsFile& file, const std::string& name) {
  const auto values = test::read_values<float>(file, name);
  return at::tensor(values);
}

at::Tensor golden_codes(const io::SafetensorsFile& file, const std::string& name) {
  const auto values = test::read_values<uint8_t>(file, name);
  return at::tensor(values, at::kByte);
}

double rms(const at::Tensor& tensor) {
  return tensor.to(at::kDouble).square().mean().sqrt().item<double>();
}

const at::Tensor& part(const std::vector<StateTensor>& state, const std::string& name) {
  for (const StateTensor& tensor : state) {
    if (tensor.name == name) {
      return tensor.tensor;
    }
  }
  throw std::runtime_error("no " + name);
}

// What codes of either moment stand for.
at::Tensor moment(const at::Tensor& codes, const at::Tensor& absmax, quant::MapSign sign) {
  const auto map = at::tensor(at::ArrayRef<float>(quant::dynamic_map(sign).data(), 256));
  return map.index_select(0, codes.to(at::kLong)).view({-1, 256}) * absmax.view({-1, 1});
}

}  // namespace

TEST_CASE("a matrix of whole blocks and a small vector go where bitsandbytes' AdamW8bit takes them") {
  const auto file = io::SafetensorsFile::open(test::nf4_golden("adam8bit_rows.safetensors"));
  const auto start = golden(file, "matrix.start");
  auto matrix = start.clone();
  auto vector = golden(file, "vector.start");
  const auto matrix_target = golden(file, "matrix.target");
  const auto vector_target = golden(file, "vector.target");
  const auto optimizer = make_optimizer(config_8bit(0.1));
  for (int step = 1; step <= 30; ++step) {
    const std::vector<Update> updates = {update(matrix, matrix - matrix_target, facts(8, 512)),
                                         update(vector, vector - vector_target, facts(512, 1))};
    optimizer->step(updates, 1.0, 1.0);
    if (step == 1) {  // no state was read yet: fp32 rounding apart
      CHECK(at::allclose(matrix, golden(file, "matrix.1"), 1e-6, 3e-8));
      const auto state = optimizer->state(updates)[0];
      CHECK(at::allclose(part(state, "absmax1"), golden(file, "matrix.absmax1.1"), 1e-6, 0));
      CHECK(at::allclose(part(state, "absmax2"), golden(file, "matrix.absmax2.1"), 1e-6, 0));
      // The peer's vectorised search sometimes takes a neighbour of the nearest.
      CHECK((part(state, "state1").to(at::kInt) - golden_codes(file, "matrix.state1.1").to(at::kInt))
                .abs()
                .max()
                .item<int>() <= 2);
      CHECK((part(state, "state1") == golden_codes(file, "matrix.state1.1")).to(at::kFloat).mean().item<double>() >
            0.98);
    }
  }
  CHECK(at::allclose(vector, golden(file, "vector.30"), 1e-5, 1e-6));
  const double moved = rms(golden(file, "matrix.30") - start);
  INFO("difference " << rms(matrix - golden(file, "matrix.30")) << " of " << moved);
  CHECK(rms(matrix - golden(file, "matrix.30")) < 0.01 * moved);
  const auto state = optimizer->state({update(matrix, matrix, facts(8, 512)), update(vector, vector, facts(512, 1))});
  for (const auto& [number, sign] : {std::pair("1", quant::MapSign::kSigned), {"2", quant::MapSign::kUnsigned}}) {
    const std::string codes = std::string("state") + number;
    const std::string absmax = std::string("absmax") + number;
    const auto ours = moment(part(state[0], codes), part(state[0], absmax), sign);
    const auto theirs =
        moment(golden_codes(file, "matrix." + codes + ".30"), golden(file, "matrix." + absmax + ".30"), sign);
    INFO(codes << " " << rms(ours - theirs) / rms(theirs));
    CHECK(rms(ours - theirs) < 0.02 * rms(theirs));
  }
}

TEST_CASE("rows give the same bits in any parts, with blocks that end with the row") {
  at::manual_seed(20260401);
  constexpr int64_t kRows = 7;
  constexpr int64_t kWidth = 700;
  const auto of = facts(kRows, kWidth);
  auto whole = at::randn({kRows, kWidth});
  auto parts = whole.clone();
  const auto whole_optimizer = make_optimizer(config_8bit(0.01));
  std::vector<std::unique_ptr<Optimizer>> part_optimizers;
  const std::vector<std::pair<int64_t, int64_t>> ranges = {{0, 3}, {3, 3}, {6, 1}, {7, 0}};
  for (size_t i = 0; i < ranges.size(); ++i) {
    part_optimizers.push_back(make_optimizer(config_8bit(0.01)));
  }
  std::vector<at::Tensor> codes, absmax;
  for (int step = 0; step < 6; ++step) {
    const auto gradient = at::randn({kRows, kWidth}) * 0.1;
    whole_optimizer->step({update(whole, gradient, of)}, 0.5, 0.25);
    codes.clear();
    absmax.clear();
    for (size_t i = 0; i < ranges.size(); ++i) {
      const auto rows = update(parts.narrow(0, ranges[i].first, ranges[i].second),
                               gradient.narrow(0, ranges[i].first, ranges[i].second).contiguous(), of);
      part_optimizers[i]->step({rows}, 0.5, 0.25);
      const auto state = part_optimizers[i]->state({rows})[0];
      codes.push_back(part(state, "state1"));
      absmax.push_back(part(state, "absmax2"));
    }
  }
  CHECK(at::equal(whole, parts));
  const auto state = whole_optimizer->state({update(whole, whole, of)})[0];
  CHECK(at::equal(at::cat(codes), part(state, "state1")));
  CHECK(at::equal(at::cat(absmax), part(state, "absmax2")));
  CHECK(part(state, "absmax1").numel() == kRows * 3);
  CHECK(part(state, "absmax1").min().item<float>() > 0);
}

TEST_CASE("tables, tensors below 4096 elements and rows of one element are stepped as AdamW steps them") {
  at::manual_seed(20260402);
  CHECK(has_8bit_moments(facts(64, 64)));
  CHECK(has_8bit_moments(facts(2048, 2)));
  CHECK_FALSE(has_8bit_moments(facts(65, 63)));
  CHECK_FALSE(has_8bit_moments(facts(5000, 1)));
  CHECK_FALSE(has_8bit_moments(facts(500, 32, true)));
  OptimConfig adamw;
  adamw.weight_decay = 0.01;
  const auto exact = make_optimizer(adamw);
  const auto eight = make_optimizer(config_8bit(0.01));
  const std::vector<TensorFacts> all = {facts(64, 64), facts(65, 63), facts(5000, 1), facts(500, 32, true)};
  std::vector<at::Tensor> exact_values, eight_values;
  for (const TensorFacts& of : all) {
    exact_values.push_back(at::randn({of.full_numel}));
    eight_values.push_back(exact_values.back().clone());
  }
  for (int step = 0; step < 3; ++step) {
    std::vector<Update> exact_updates, eight_updates;
    for (size_t i = 0; i < all.size(); ++i) {
      const auto gradient = at::randn({all[i].full_numel});
      exact_updates.push_back(update(exact_values[i], gradient, all[i]));
      eight_updates.push_back(update(eight_values[i], gradient.clone(), all[i]));
    }
    exact->step(exact_updates, 1.0, 0.5);
    eight->step(eight_updates, 1.0, 0.5);
  }
  CHECK_FALSE(at::equal(exact_values[0], eight_values[0]));
  CHECK(rms(exact_values[0] - eight_values[0]) < 1e-3);  // of steps of about 1e-2
  for (size_t i = 1; i < all.size(); ++i) {
    CHECK(at::equal(exact_values[i], eight_values[i]));
  }
}

TEST_CASE("the planned bytes are those that are kept; SGD keeps none") {
  const std::vector<TensorFacts> all = {facts(64, 700), facts(10, 5), facts(5000, 1), facts(500, 32, true),
                                        facts(512, 16)};
  for (const OptimizerType type : {OptimizerType::kAdamW, OptimizerType::kAdamW8bit, OptimizerType::kSgd}) {
    OptimConfig config;
    config.optim = type;
    const auto optimizer = make_optimizer(config);
    std::vector<Update> updates;
    int64_t planned = 0;
    for (const TensorFacts& of : all) {
      const int64_t rows = of.full_numel / of.row_numel / 2;
      updates.push_back(update(at::zeros({rows, of.row_numel}), at::ones({rows, of.row_numel}), of));
      planned += planned_state_bytes(config, of, rows);
    }
    CHECK(optimizer->state_bytes() == 0);
    optimizer->step(updates, 1.0, 1.0);
    CHECK(optimizer->state_bytes() == planned);
  }
  // Two bytes an element and two fp32 a block.
  CHECK(planned_state_bytes(config_8bit(), facts(64, 768), 64) == 64 * (2 * 768 + 2 * 4 * 3));
}

TEST_CASE("a tensor without gradient keeps its zeros") {
  auto value = at::ones({64, 64});
  const auto optimizer = make_optimizer(config_8bit());
  const auto still = update(value, at::zeros({64, 64}), facts(64, 64));
  for (int step = 0; step < 3; ++step) {
    optimizer->step({still}, 1.0, 1.0);
  }
  CHECK(at::equal(value, at::ones({64, 64})));
  CHECK(part(optimizer->state({still})[0], "absmax1").abs().max().item<float>() == 0);
}
