#include "model/parameter.h"

#include "base/error.h"

namespace stft::model {

int64_t Parameter::numel() const {
  int64_t count = 1;
  for (const int64_t size : shape) {
    count *= size;
  }
  return count;
}

const at::Tensor& value(const Parameter& parameter) {
  STFT_CHECK(parameter.leaf.defined() && parameter.leaf.storage().nbytes() > 0,
             "parameter " + parameter.name + " is used while it is not filled");
  return parameter.leaf;
}

}  // namespace stft::model
