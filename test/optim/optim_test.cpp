#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <map>
#include <string>

#include "io/json.h"
#include "optim/clip.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"

using namespace stft::optim;

namespace {

OptimConfig with_schedule(ScheduleType type, double warmup) {
  OptimConfig config;
  config.learning_rate = 1.0;
  config.lr_scheduler_type = type;
  config.warmup_steps = warmup;
  return config;
}

}  // namespace

TEST_CASE("AdamW follows the paper's update, with decay only where it is asked for") {
  OptimConfig config;
  config.weight_decay = 0.1;
  const auto optimizer = make_optimizer(config);
  auto decayed = at::full({3}, 2.0);
  auto plain = at::full({3}, 2.0);
  auto empty = at::empty({0});
  const double rate = 0.01;
  double m = 0;
  double v = 0;
  double expected_decayed = 2.0;
  double expected_plain = 2.0;
  for (int step = 1; step <= 4; ++step) {
    const double gradient = 0.5 * step;
    optimizer->step({{decayed, at::full({3}, gradient), true, 2 * rate, {}},
                     {plain, at::full({3}, gradient), false, 2 * rate, {}},
                     {empty, at::empty({0}), true, 2 * rate, {}}},
                    0.5, 0.5);
    const double scaled = gradient * 0.5;
    m = 0.9 * m + 0.1 * scaled;
    v = 0.999 * v + 0.001 * scaled * scaled;
    const double change = rate * (m / (1 - std::pow(0.9, step))) / (std::sqrt(v / (1 - std::pow(0.999, step))) + 1e-8);
    expected_decayed = expected_decayed * (1 - rate * 0.1) - change;
    expected_plain -= change;
    CHECK(decayed[1].item<double>() == Approx(expected_decayed).epsilon(1e-6));
    CHECK(plain[1].item<double>() == Approx(expected_plain).epsilon(1e-6));
  }
}

TEST_CASE("SGD steps against the scaled gradient") {
  OptimConfig config;
  config.optim = OptimizerType::kSgd;
  auto value = at::full({2}, 1.0);
  make_optimizer(config)->step({{value, at::full({2}, 4.0), true, 0.2, {}}}, 0.5, 0.5);
  CHECK(value[0].item<double>() == Approx(0.8));
}

TEST_CASE("schedules give transformers' rates") {
  const Schedule linear(with_schedule(ScheduleType::kLinear, 2), 6);
  const double expected[] = {0, 0.5, 1.0, 0.75, 0.5, 0.25};
  for (int step = 0; step < 6; ++step) {
    CHECK(linear.learning_rate(step) == Approx(expected[step]));
  }
  CHECK(linear.learning_rate(6) == 0);
  const Schedule ratio(with_schedule(ScheduleType::kLinear, 0.1), 25);
  CHECK(ratio.warmup_steps() == 3);
  CHECK(Schedule(with_schedule(ScheduleType::kConstant, 5), 6).learning_rate(0) == 1.0);
  const Schedule warm(with_schedule(ScheduleType::kConstantWithWarmup, 4), 10);
  CHECK(warm.learning_rate(1) == Approx(0.25));
  CHECK(warm.learning_rate(9) == 1.0);
}

TEST_CASE("every schedule gives the rates of transformers' own, warm-up as steps and as a ratio") {
  const auto golden = stft::io::read_json_file(std::string(STFT_SOURCE_DIR) + "/test/golden/schedules.json");
  const auto steps = golden["steps"].get<int64_t>();
  const std::map<std::string, ScheduleType> types = {{"linear", ScheduleType::kLinear},
                                                     {"cosine", ScheduleType::kCosine},
                                                     {"cosine_with_restarts", ScheduleType::kCosineWithRestarts},
                                                     {"constant", ScheduleType::kConstant},
                                                     {"constant_with_warmup", ScheduleType::kConstantWithWarmup},
                                                     {"polynomial", ScheduleType::kPolynomial},
                                                     {"inverse_sqrt", ScheduleType::kInverseSqrt}};
  CHECK(golden["rates"].size() == 3 * types.size());
  for (const auto& entry : golden["rates"]) {
    OptimConfig config = with_schedule(types.at(entry["type"]), entry["warmup_steps"].get<double>());
    config.learning_rate = golden["learning_rate"].get<double>();
    const Schedule schedule(config, steps);
    for (int64_t step = 0; step <= steps; ++step) {
      INFO(entry["type"] << " " << entry["warmup_steps"] << " step " << step);
      const auto expected = entry["rates"][static_cast<size_t>(step)].get<double>();
      CHECK(schedule.learning_rate(step) == Approx(expected).epsilon(1e-12).margin(1e-18));
      CHECK(schedule.factor(step) * config.learning_rate == schedule.learning_rate(step));
    }
  }
}

TEST_CASE("norms are those of all elements, and show what is not finite") {
  const std::vector<at::Tensor> gradients = {at::full({100003}, 0.01), at::full({4}, -2.0), at::empty({0})};
  CHECK(squared_norm(gradients) == Approx(100003 * 0.0001 + 16).epsilon(1e-6));
  CHECK(squared_norm({}) == 0);
  const auto bad = at::full({40}, 1.0);
  bad[17].fill_(std::numeric_limits<double>::quiet_NaN());
  CHECK(std::isnan(squared_norm({bad})));
}

TEST_CASE("clipping scales to the largest allowed norm and never up") {
  CHECK(clip_coefficient(10, 1) == Approx(1.0 / (10 + 1e-6)).epsilon(1e-12));
  CHECK(clip_coefficient(0.5, 1) == 1.0);
  CHECK(clip_coefficient(1000, 0) == 1.0);
}
