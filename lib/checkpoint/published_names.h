// The tensors of a file that a family's authors published under other names than the encoder's, as if they had the
// encoder's names.
#pragma once

#include <memory>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "model/encoder.h"

namespace stft::checkpoint {

// `tensors` itself when it has none of those names. A tensor that holds several of the encoder's is seen as those when
// its rows can be divided among them; otherwise it keeps its name, and what is missing is named by who looks for it.
std::unique_ptr<TensorSource> with_our_names(std::unique_ptr<TensorSource> tensors,
                                             const std::vector<model::PublishedName>& names);

}  // namespace stft::checkpoint
