// The ranks' parts of tensors put together, and compared with goldens.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "shard/shard_engine.h"

namespace stft::test {

// Parameter name -> whole tensor, flat. Every rank adds its parts.
struct WholeTensors {
  std::map<std::string, at::Tensor> by_name;
  std::mutex mutex;

  void add(const shard::LocalParameter& local, const at::Tensor& part) {
    const std::scoped_lock lock(mutex);
    auto& whole = by_name.try_emplace(local.parameter->name, at::zeros({local.parameter->numel()})).first->second;
    whole.narrow(0, local.layout.first_row * local.layout.row_numel, local.layout.own_numel()).copy_(part);
  }

  void add_gradients(const shard::ShardEngine& engine) {
    for (const auto& local : engine.local_parameters()) {
      add(local, local.gradient);
    }
  }
};

// `golden` gives the peer's gradient of a parameter, flat.
inline void check_golden_gradients(const std::map<std::string, at::Tensor>& found, double total_norm,
                                   const std::function<at::Tensor(const std::string& name)>& golden) {
  for (const auto& [name, gradient] : found) {
    const auto expected = golden(name);
    const double error = (gradient - expected).norm().item<double>();
    const double norm = expected.norm().item<double>();
    INFO(name << " error " << error << " norm " << norm);
    // Below a share of the whole, the peer's own float32 rounding is larger than 1e-5 of a parameter's norm.
    CHECK(error <= 1e-5 * std::max(norm, 0.05 * total_norm));
  }
}

}  // namespace stft::test
