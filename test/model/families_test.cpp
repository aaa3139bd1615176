// Every family against transformers.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <iostream>

#include "base/error.h"
#include "base/rng.h"
#include "support/family_cases.h"

using namespace stft;
using model::Layout;
using test::FamilyGolden;
using test::PlainEncoder;

namespace {

struct Largest {
  double output = 0;
  double gradient = 0;  // norm of a parameter's difference over the norm of its gradient
};

at::Tensor scalar_of(const at::Tensor& output) {
  return (output * at::arange(output.numel(), at::kFloat).cos().view(output.sizes())).sum();
}

double relative(const at::Tensor& found, const at::Tensor& expected, double floor) {
  return (found - expected).norm().item<double>() / std::max(expected.norm().item<double>(), floor);
}

Largest compare(const FamilyGolden& golden, const io::Json& one, Layout layout, bool recomputes) {
  const std::string name = one.at("name");
  PlainEncoder plain(one.at("config"), golden.tensors);
  const auto output = plain.embed(test::batch_of(golden.texts, layout), {nullptr, std::nullopt, recomputes});
  torch::autograd::backward({scalar_of(output)}, {});
  Largest largest;
  largest.output = test::max_difference(output.detach(), test::read_tensor(golden.tensors, name + "/output"));
  const auto file = io::SafetensorsFile::open(golden.tensors);
  const bool has_all = file.find(name + "/gradients/" + plain.parameters.back().name) != nullptr;
  double total = 0;
  for (const auto& parameter : plain.parameters) {
    total = std::max(total, parameter.leaf.grad().defined() ? parameter.leaf.grad().norm().item<double>() : 0);
  }
  int compared = 0;
  for (const auto& parameter : plain.parameters) {
    INFO(parameter.name);
    const std::string key = name + "/gradients/" + parameter.name;
    if (file.find(key) != nullptr) {
      REQUIRE(parameter.leaf.grad().defined());
      // A gradient that is zero in exact arithmetic (a key's bias) is compared by the size of the others.
      largest.gradient = std::max(
          largest.gradient, relative(parameter.leaf.grad(), test::read_tensor(golden.tensors, key), 1e-2 * total));
      compared += 1;
    } else if (has_all) {
      CHECK((!parameter.leaf.grad().defined() || parameter.leaf.grad().abs().max().item<double>() == 0));
    }
  }
  CHECK(compared >= 2);
  return largest;
}

template <typename Check>
void for_all_cases(const Check& check) {
  const auto names = test::family_names();
  REQUIRE(!names.empty());
  for (const std::string& family : names) {
    const FamilyGolden golden(family);
    for (const io::Json& one : golden.json.at("cases")) {
      INFO(family << " " << one.at("name").get<std::string>());
      check(family, golden, one);
    }
  }
}

}  // namespace

TEST_CASE("token vectors and gradients of every family equal transformers', packed, padded and recomputed") {
  for_all_cases([](const std::string& family, const FamilyGolden& golden, const io::Json& one) {
    Largest all;
    for (const Layout layout : {Layout::kPacked, Layout::kPadded}) {
      for (const bool recomputes : {false, true}) {
        INFO("padded " << (layout == Layout::kPadded) << " recomputed " << recomputes);
        const Largest found = compare(golden, one, layout, recomputes);
        CHECK(found.output < 1e-5);
        CHECK(found.gradient < 1e-4);
        all = {std::max(all.output, found.output), std::max(all.gradient, found.gradient)};
      }
    }
    if (std::getenv("STFT_SHOW_DIFFERENCES") != nullptr) {
      std::cerr << family << " " << one.at("name").get<std::string>() << ": output " << all.output << ", gradient "
                << all.gradient << "\n";
    }
  });
}

TEST_CASE("a text's token vectors do not depend on its batch mates, whatever the family") {
  for_all_cases([](const std::string&, const FamilyGolden& golden, const io::Json& one) {
    const at::NoGradGuard no_grad;
    const PlainEncoder plain(one.at("config"), golden.tensors);
    const auto together = plain.embed(test::batch_of(golden.texts, Layout::kPadded), {});
    int64_t first = 0;
    for (const auto& text : golden.texts) {
      const auto alone = plain.embed(test::batch_of({text}, Layout::kPacked), {});
      CHECK(test::max_difference(alone, together.narrow(0, first, alone.size(0))) < 1e-5);
      first += alone.size(0);
    }
  });
}

TEST_CASE("dropout of every family is the same packed and padded, recomputed or not, and does drop") {
  for_all_cases([](const std::string&, const FamilyGolden& golden, const io::Json& one) {
    PlainEncoder plain(one.at("config"), golden.tensors, 0.2);
    const model::DropoutPlan plan{rng::micro_step_key(7, 3)};
    const auto gradient_of = [&](Layout layout, bool recomputes) {
      plain.clear_gradients();
      const auto output = plain.embed(test::batch_of(golden.texts, layout), {nullptr, plan, recomputes});
      torch::autograd::backward({scalar_of(output)}, {});
      std::vector<at::Tensor> flat{output.detach().view({-1})};
      for (const auto& parameter : plain.parameters) {
        if (parameter.leaf.grad().defined()) {
          flat.push_back(parameter.leaf.grad().reshape({-1}));
        }
      }
      return at::cat(flat);
    };
    const auto packed = gradient_of(Layout::kPacked, false);
    CHECK(relative(gradient_of(Layout::kPadded, false), packed, 1) < 1e-5);
    CHECK(relative(gradient_of(Layout::kPacked, true), packed, 1) < 1e-6);
    const auto dry = plain.embed(test::batch_of(golden.texts, Layout::kPacked), {}).detach().view({-1});
    CHECK(test::max_difference(packed.narrow(0, 0, dry.numel()), dry) > 1e-3);
  });
}

TEST_CASE("every family in bf16 is near its fp32 twin, forward and backward") {
  for_all_cases([](const std::string&, const FamilyGolden& golden, const io::Json& one) {
    const auto flat_of = [&](bool is_reduced) {
      PlainEncoder plain(one.at("config"), golden.tensors);
      for (auto& parameter : plain.parameters) {
        if (is_reduced) {
          parameter.leaf = parameter.leaf.detach().to(at::kBFloat16).set_requires_grad(true);
        }
      }
      const auto output = plain.embed(test::batch_of(golden.texts, Layout::kPacked), {});
      CHECK(output.scalar_type() == plain.parameters.front().leaf.scalar_type());
      torch::autograd::backward({scalar_of(output.to(at::kFloat))}, {});
      std::vector<at::Tensor> gradients;
      for (const auto& parameter : plain.parameters) {
        gradients.push_back(parameter.leaf.grad().reshape({-1}).to(at::kFloat));
      }
      return std::pair(output.detach().to(at::kFloat), at::cat(gradients));
    };
    const auto [output, gradient] = flat_of(false);
    const auto [reduced_output, reduced_gradient] = flat_of(true);
    CHECK(relative(reduced_output, output, 0) < 0.03);
    CHECK(relative(reduced_gradient, gradient, 0) < 0.2);
  });
}
