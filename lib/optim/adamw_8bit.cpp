#include "optim/adamw_8bit.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>

#include "base/error.h"
#include "optim/adamw.h"
#include "quant/bnb_adam8bit.h"

namespace stft::optim {
namespace {

constexpr int64_t kMinNumel = 4096;  // bitsandbytes' min_8bit_size
constexpr int64_t kGrain = 1 << 14;  // elements that are worth a thread

template <class T>
std::span<T> elements(const at::Tensor& flat, int64_t first, int64_t count) {
  return {flat.mutable_data_ptr<T>() + first, static_cast<size_t>(count)};
}

// Codes and magnitudes of one moment.
struct ByteMoment {
  at::Tensor codes, absmax;

  ByteMoment() = default;
  ByteMoment(int64_t rows, int64_t row_numel)
      : codes(at::zeros({rows * row_numel}, at::kByte)),
        absmax(at::zeros({rows * quant::byte_blocks(row_numel)}, at::kFloat)) {}

  quant::ByteBlocks rows(int64_t first, int64_t count, int64_t row_numel) const {
    const int64_t blocks = quant::byte_blocks(row_numel);
    return {elements<uint8_t>(codes, first * row_numel, count * row_numel),
            elements<float>(absmax, first * blocks, count * blocks)};
  }
};

struct ByteMoments {
  ByteMoment first, second;
};

class AdamW8bit final : public Optimizer {
 public:
  explicit AdamW8bit(const OptimConfig& config) : config_(config), whole_(make_adamw(config)) {}

  void step(const std::vector<Update>& updates, double rate_factor, double gradient_scale) override {
    const at::NoGradGuard no_grad;
    make_moments(updates);
    whole_->step(whole_updates(updates), rate_factor, gradient_scale);
    for (size_t i = 0; i < updates.size(); ++i) {
      if (has_8bit_moments(updates[i].facts)) {
        step_rows(updates[i], moments_[i], {updates[i].learning_rate * rate_factor, gradient_scale});
      }
    }
  }

  std::vector<std::vector<StateTensor>> state(const std::vector<Update>& updates) override {
    make_moments(updates);
    const auto whole = whole_->state(whole_updates(updates));
    auto next_whole = whole.begin();
    std::vector<std::vector<StateTensor>> state;
    for (size_t i = 0; i < updates.size(); ++i) {
      if (!has_8bit_moments(updates[i].facts)) {
        state.push_back(*next_whole++);
        continue;
      }
      const int64_t row_numel = updates[i].facts.row_numel;
      const int64_t blocks = quant::byte_blocks(row_numel);
      const ByteMoments& moments = moments_[i];
      state.push_back({{"state1", moments.first.codes, row_numel},
                       {"state2", moments.second.codes, row_numel},
                       {"absmax1", moments.first.absmax, blocks},
                       {"absmax2", moments.second.absmax, blocks}});
    }
    return state;
  }
  int64_t state_bytes() const override {
    int64_t sum = whole_->state_bytes();
    for (const ByteMoments& moments : moments_) {
      for (const ByteMoment& moment : {moments.first, moments.second}) {
        sum += moment.codes.defined() ? static_cast<int64_t>(moment.codes.nbytes() + moment.absmax.nbytes()) : 0;
      }
    }
    return sum;
  }
  int64_t steps() const override { return whole_->steps(); }
  void set_steps(int64_t steps) override { whole_->set_steps(steps); }

 private:
  struct Scales {
    double learning_rate;
    double gradient_scale;
  };

  static std::vector<Update> whole_updates(const std::vector<Update>& updates) {
    std::vector<Update> whole;
    std::copy_if(updates.begin(), updates.end(), std::back_inserter(whole),
                 [](const Update& update) { return !has_8bit_moments(update.facts); });
    return whole;
  }

  void make_moments(const std::vector<Update>& updates) {
    if (moments_.empty()) {
      for (const Update& update : updates) {
        const int64_t row_numel = update.facts.row_numel;
        STFT_CHECK(update.value.numel() % row_numel == 0, "an update is whole rows");
        const int64_t rows = update.value.numel() / row_numel;
        moments_.push_back(has_8bit_moments(update.facts) ? ByteMoments{{rows, row_numel}, {rows, row_numel}}
                                                          : ByteMoments{});
      }
    }
    STFT_CHECK(moments_.size() == updates.size(), "the optimizer's tensors changed");
  }

  void step_rows(const Update& update, const ByteMoments& moments, const Scales& scales) const {
    STFT_CHECK(update.value.device().is_cpu() && update.gradient.device().is_cpu(), "8-bit moments are on the CPU");
    quant::Adam8bitOptions options;
    options.learning_rate = scales.learning_rate;
    options.gradient_scale = scales.gradient_scale;
    options.beta1 = config_.adam_beta1;
    options.beta2 = config_.adam_beta2;
    options.eps = config_.adam_epsilon;
    options.weight_decay = update.has_weight_decay ? config_.weight_decay : 0.0;
    options.step = steps();
    const int64_t row_numel = update.facts.row_numel;
    std::atomic<bool> is_finite = true;
    at::parallel_for(
        0, update.value.numel() / row_numel, std::max<int64_t>(1, kGrain / row_numel), [&](int64_t begin, int64_t end) {
          const int64_t first = begin * row_numel;
          const int64_t count = (end - begin) * row_numel;
          const quant::Adam8bitState state{moments.first.rows(begin, end - begin, row_numel),
                                           moments.second.rows(begin, end - begin, row_numel), row_numel};
          const std::span<const float> gradient(update.gradient.const_data_ptr<float>() + first,
                                                static_cast<size_t>(count));
          if (!quant::adam8bit_step(options, state, elements<float>(update.value, first, count), gradient)) {
            is_finite = false;
          }
        });
    STFT_CHECK(is_finite, "gradients are finite");
  }

  OptimConfig config_;
  std::unique_ptr<Optimizer> whole_;  // of what has no 8-bit moments; counts the steps
  std::vector<ByteMoments> moments_;  // of each update; undefined tensors: none
};

}  // namespace

bool has_8bit_moments(const TensorFacts& facts) {
  return facts.full_numel >= kMinNumel && facts.row_numel > 1 && !facts.is_table;
}

std::unique_ptr<Optimizer> make_adamw_8bit(const OptimConfig& config) {
  return std::make_unique<AdamW8bit>(config);
}

}  // namespace stft::optim
