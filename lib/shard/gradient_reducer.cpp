#include "shard/gradient_reducer.h"

#include <ATen/ATen.h>

#include <utility>

#include "base/error.h"

namespace stft::shard {

GradientReducer::GradientReducer(std::vector<Parameter> parameters, const GroupContext& context, bool is_whole,
                                 bool stays_on_leaf)
    : parameters_(std::move(parameters)),
      context_(context),
      ranks_(is_whole ? 1 : context.shard.size()),
      stays_on_leaf_(stays_on_leaf) {
  for (const Parameter& parameter : parameters_) {
    offsets_.push_back(numel_);
    numel_ += parameter.layout.chunk_numel();
  }
}

int64_t GradientReducer::whole_bytes() const {
  int64_t sum = 0;
  for (const Parameter& parameter : parameters_) {
    sum += parameter.parameter->numel() * 4;
  }
  return sum;
}

int64_t GradientReducer::held_bytes() const {
  int64_t sum = sum_.defined() ? static_cast<int64_t>(sum_.storage().nbytes()) : 0;
  for (const Parameter& parameter : parameters_) {
    const at::Tensor& gradient = parameter.parameter->leaf.grad();
    sum += gradient.defined() ? static_cast<int64_t>(gradient.nbytes()) : 0;
  }
  return sum;
}

std::vector<at::Tensor> GradientReducer::take_leaf_gradients() {
  std::vector<at::Tensor> gradients;
  for (const Parameter& parameter : parameters_) {
    at::Tensor& leaf = parameter.parameter->leaf;
    auto gradient = std::exchange(leaf.mutable_grad(), at::Tensor());
    gradients.push_back(gradient.defined() ? gradient
                                           : at::zeros(parameter.parameter->shape, leaf.options().dtype(at::kFloat)));
  }
  return gradients;
}

// The gradients as [ranks, numel_], rank r's rows of every parameter side by side in row r.
at::Tensor GradientReducer::pack() {
  const auto gradients = take_leaf_gradients();
  const at::Tensor& first = gradients.front();
  const bool is_even = gradients.size() == 1 && first.numel() == ranks_ * numel_;
  if (is_even && first.scalar_type() == context_.reduce) {
    return first.contiguous();  // the ranks' parts stand one after the other already
  }
  auto packed = at::empty({ranks_, numel_}, first.options().dtype(context_.reduce));
  if (first.scalar_type() == context_.reduce) {
    at::_chunk_cat_out(packed, gradients, 0, ranks_);
    return packed;
  }
  for (size_t i = 0; i < gradients.size(); ++i) {
    const int64_t chunk = parameters_[i].layout.chunk_numel();
    auto place = packed.narrow(1, offsets_[i], chunk);
    place.copy_(at::_chunk_cat({gradients[i]}, 0, ranks_).view({ranks_, chunk}));
  }
  return packed;
}

void GradientReducer::start() {
  if (parameters_.empty() || stays_on_leaf_) {
    return;
  }
  finish();
  const at::NoGradGuard no_grad;
  const auto packed = pack();
  if (context_.shard.size() == 1) {
    output_ = packed.view({-1});
  } else if (ranks_ == 1) {
    output_ = packed.view({-1});
    counts_.all_reduces += 1;
    counts_.bytes += static_cast<int64_t>(output_.nbytes());
    pending_ = context_.shard.all_reduce_sum(output_);
  } else {
    output_ = at::empty({numel_}, packed.options());
    counts_.reduce_scatters += 1;
    counts_.bytes += static_cast<int64_t>(packed.nbytes());
    pending_ = context_.shard.reduce_scatter_sum(output_, packed);
  }
  stage_ = Stage::kShard;
  if (context_.shard.size() == 1) {
    advance();
  }
}

void GradientReducer::advance() {
  if (stage_ != Stage::kShard) {
    return;
  }
  pending_.wait();
  if (context_.replicate.size() > 1) {
    counts_.all_reduces += 1;
    counts_.bytes += static_cast<int64_t>(output_.nbytes());
    pending_ = context_.replicate.all_reduce_sum(output_);
  }
  stage_ = Stage::kReplicate;
}

void GradientReducer::finish() {
  advance();
  if (stage_ != Stage::kReplicate) {
    return;
  }
  pending_.wait();
  stage_ = Stage::kIdle;
  const at::NoGradGuard no_grad;
  const auto reduced = std::exchange(output_, at::Tensor());
  const auto options = reduced.options().dtype(at::kFloat).device(context_.home());
  if (sum_.defined()) {
    sum_.add_(reduced.to(options));
  } else {
    sum_ = reduced.to(options);
  }
}

at::Tensor GradientReducer::own_rows(int64_t index) const {
  STFT_CHECK(!is_under_way(), "gradients are read while their reduction is under way");
  const auto i = static_cast<size_t>(index);
  const int64_t own = parameters_[i].layout.own_numel();
  if (sum_.defined()) {
    return sum_.narrow(0, offsets_[i], own);
  }
  const at::Tensor& gradient = parameters_[i].parameter->leaf.grad();
  return stays_on_leaf_ && gradient.defined() ? gradient.contiguous().view({-1}) : at::Tensor();
}

void GradientReducer::clear() {
  finish();
  sum_ = at::Tensor();
  for (const Parameter& parameter : parameters_) {
    parameter.parameter->leaf.mutable_grad() = at::Tensor();
  }
}

void GradientReducer::abandon() {
  try {
    pending_.wait();  // the memory that it writes to is freed next
  } catch (const CollectiveError&) {
    pending_ = dist::PendingCollective();
  }
  output_ = at::Tensor();
  stage_ = Stage::kIdle;
  clear();
}

}  // namespace stft::shard
