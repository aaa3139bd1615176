#include "model/run_block.h"

#include <algorithm>
#include <utility>

namespace stft::model {

bool has_trainable(const EncoderParts& parts, int64_t index) {
  const auto& parameters = parts.blocks[static_cast<size_t>(index)].parameters;
  return std::any_of(parameters.begin(), parameters.end(), [&](int64_t parameter) {
    return parts.parameters[static_cast<size_t>(parameter)].leaf.requires_grad();
  });
}

at::Tensor run_block(const ForwardContext& context, const BlockRef& block, at::Tensor input, BlockBody body) {
  if (context.observer != nullptr) {
    input = context.observer->before_block(block.index, std::move(input));
  }
  const bool recomputes = context.recomputes && block.is_worth_recomputing;
  at::Tensor output = recomputes ? recomputed_in_backward(std::move(body), input, block.has_trainable) : body(input);
  return context.observer != nullptr ? context.observer->after_block(block.index, std::move(output)) : output;
}

at::Tensor run_layers(const ForwardContext& context, const EncoderParts& parts, LayerBlocks blocks,
                      at::Tensor hidden_TD,
                      const std::function<at::Tensor(size_t number, const at::Tensor& input_TD)>& layer) {
  for (size_t i = 0; i < blocks.count; ++i) {
    const int64_t block = blocks.first + static_cast<int64_t>(i);
    hidden_TD = run_block(context, {block, has_trainable(parts, block), true}, std::move(hidden_TD),
                          [layer, i](const at::Tensor& input_TD) { return layer(i, input_TD); });
  }
  return hidden_TD;
}

}  // namespace stft::model
