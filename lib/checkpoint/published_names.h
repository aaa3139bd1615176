// The tensors of a file that a family's authors published under other names than the encoder's, as if they had the
// encoder's names.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "model/encoder.h"

namespace stft::checkpoint {

// `tensors` itself when it has none of those names. A tensor is renamed only to names in `parameters`, with or without
// the family's prefix, that the file does not have by themselves; one that holds several of them must have rows that
// can be divided among them. Otherwise it keeps its name, and what is missing is named by who looks for it.
std::unique_ptr<TensorSource> with_our_names(std::unique_ptr<TensorSource> tensors, const model::Encoder& encoder,
                                             const std::set<std::string>& parameters);

}  // namespace stft::checkpoint
