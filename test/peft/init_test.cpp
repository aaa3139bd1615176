#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <cmath>

#include "peft/adapter_init.h"

using namespace stft;
using peft::AdapterTensorKind;
using peft::LoraInit;

namespace {

model::Parameter parameter_of(std::vector<int64_t> shape, const std::string& name = "a.lora_A.default.weight") {
  model::Parameter parameter;
  parameter.name = name;
  parameter.shape = std::move(shape);
  return parameter;
}

at::Tensor rows(const model::Parameter& parameter, peft::InitialRows range, LoraInit init = LoraInit::kTrue,
                uint64_t seed = 42) {
  auto values = at::empty({range.rows * parameter.shape[1]}, at::kFloat);
  peft::initialise_rows(parameter, {AdapterTensorKind::kDown, init, seed}, range, values);
  return values;
}

}  // namespace

TEST_CASE("A is uniform or normal as PEFT has it, B is zero") {
  const auto parameter = parameter_of({16, 400});
  const auto uniform = rows(parameter, {0, 16});
  CHECK(uniform.abs().max().item<double>() <= 1 / std::sqrt(400.0));
  CHECK(uniform.abs().max().item<double>() > 0.049);
  CHECK(uniform.std().item<double>() == Approx(0.05 / std::sqrt(3.0)).epsilon(0.03));
  const auto normal = rows(parameter, {0, 16}, LoraInit::kGaussian);
  CHECK(normal.std().item<double>() == Approx(1.0 / 16).epsilon(0.03));
  CHECK(std::fabs(normal.mean().item<double>()) < 0.003);
  auto b = at::ones({32}, at::kFloat);
  peft::initialise_rows(parameter_of({8, 4}), {AdapterTensorKind::kUp, LoraInit::kTrue, 42}, {0, 8}, b);
  CHECK(b.abs().max().item<double>() == 0);
}

TEST_CASE("a row is the same whoever fills it, and depends on seed, name and shape") {
  const auto parameter = parameter_of({6, 10});
  const auto whole = rows(parameter, {0, 6});
  CHECK(at::equal(rows(parameter, {2, 3}), whole.narrow(0, 20, 30)));
  CHECK_FALSE(at::equal(rows(parameter, {0, 6}, LoraInit::kTrue, 43), whole));
  CHECK_FALSE(at::equal(rows(parameter_of({6, 10}, "b.lora_A.default.weight"), {0, 6}), whole));
  CHECK_FALSE(at::equal(rows(parameter_of({7, 10}), {0, 6}), whole));
}
