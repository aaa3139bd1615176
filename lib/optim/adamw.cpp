#include "optim/adamw.h"

#include <ATen/ATen.h>

#include <map>
#include <utility>

#include "base/error.h"

namespace stft::optim {
namespace {

class AdamW final : public Optimizer {
 public:
  explicit AdamW(const OptimConfig& config) : config_(config) {}

  void step(const std::vector<Update>& updates, double rate_factor, double gradient_scale) override {
    const at::NoGradGuard no_grad;
    make_moments(updates);
    steps_.fill_(static_cast<double>(++step_count_));
    for (const auto& [group, members] : groups_of(updates)) {
      update_group(updates, members, {group.first * rate_factor, group.second, gradient_scale});
    }
  }

  std::vector<std::vector<StateTensor>> state(const std::vector<Update>& updates) override {
    make_moments(updates);
    std::vector<std::vector<StateTensor>> state;
    for (size_t i = 0; i < updates.size(); ++i) {
      const int64_t row_numel = updates[i].facts.row_numel;
      state.push_back({{"exp_avg", moments_[i].first, row_numel}, {"exp_avg_sq", moments_[i].second, row_numel}});
    }
    return state;
  }
  int64_t state_bytes() const override {
    int64_t sum = 0;
    for (const Moments& moments : moments_) {
      sum += static_cast<int64_t>(moments.first.nbytes() + moments.second.nbytes());
    }
    return sum;
  }
  int64_t steps() const override { return step_count_; }
  void set_steps(int64_t steps) override { step_count_ = steps; }

 private:
  struct Moments {
    at::Tensor first, second;
  };
  struct Group {
    double learning_rate = 0;  // of this step
    bool has_weight_decay = true;
    double gradient_scale = 1;
  };

  void make_moments(const std::vector<Update>& updates) {
    if (moments_.empty()) {
      for (const Update& update : updates) {
        moments_.push_back({at::zeros_like(update.value), at::zeros_like(update.value)});
      }
    }
    STFT_CHECK(moments_.size() == updates.size(), "the optimizer's tensors changed");
  }

  // (rate, with weight decay) -> indices of the updates that are not empty.
  static std::map<std::pair<double, bool>, std::vector<size_t>> groups_of(const std::vector<Update>& updates) {
    std::map<std::pair<double, bool>, std::vector<size_t>> groups;
    for (size_t i = 0; i < updates.size(); ++i) {
      if (updates[i].value.numel() > 0) {
        groups[{updates[i].learning_rate, updates[i].has_weight_decay}].push_back(i);
      }
    }
    return groups;
  }

  void update_group(const std::vector<Update>& updates, const std::vector<size_t>& members, const Group& group) {
    std::vector<at::Tensor> values, gradients, first, second, steps;
    for (const size_t i : members) {
      values.push_back(updates[i].value);
      gradients.push_back(updates[i].gradient);
      first.push_back(moments_[i].first);
      second.push_back(moments_[i].second);
      steps.push_back(steps_);
    }
    // The kernel divides the gradients by grad_scale in the same pass.
    std::optional<at::Tensor> divisor;
    if (group.gradient_scale != 1.0) {
      divisor = at::full({}, 1.0 / group.gradient_scale, at::kFloat);
    }
    at::_fused_adamw_(values, gradients, first, second, {}, steps, group.learning_rate, config_.adam_beta1,
                      config_.adam_beta2, group.has_weight_decay ? config_.weight_decay : 0.0, config_.adam_epsilon,
                      false, false, divisor, {});
  }

  OptimConfig config_;
  std::vector<Moments> moments_;
  at::Tensor steps_ = at::zeros({}, at::kFloat);
  int64_t step_count_ = 0;
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw(const OptimConfig& config) {
  return std::make_unique<AdamW>(config);
}

}  // namespace stft::optim
