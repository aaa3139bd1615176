// What an adapter's tensors begin with.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "model/parameter.h"
#include "peft/lora.h"

namespace stft::peft {

// Rows [first_row, first_row + rows) of dimension 0.
struct InitialRows {
  int64_t first_row = 0;
  int64_t rows = 0;
};

struct AdapterStart {
  AdapterTensorKind kind = AdapterTensorKind::kDown;
  LoraInit init = LoraInit::kTrue;
  uint64_t seed = 0;
};

// Fills the flat fp32 `destination` with rows of an adapter's tensor as PEFT initialises it: A uniform in +-1/sqrt(in)
// (He et al., 2015, with a = sqrt(5)) or normal with deviation 1/r, B and its bias zero; of a table of embeddings A
// zero and B normal with deviation 1. A value depends on `seed`, the tensor's name and full shape, and its position
// only. A magnitude is not filled here: it is the norm of the base's row.
void initialise_rows(const model::Parameter& parameter, AdapterStart start, InitialRows rows, at::Tensor destination);

}  // namespace stft::peft
