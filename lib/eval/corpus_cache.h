// Document vectors that several evaluators of one evaluation share.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>

namespace stft::eval {

// Lives for one evaluation (one state of the model). Holds this rank's blocks of the corpora that are announced more
// than once; others are computed and forgotten, so a corpus that one evaluator uses costs no memory.
class CorpusCache {
 public:
  // An evaluator will ask for the blocks of corpus `key` (texts, order, block size and prompt are equal for equal
  // keys).
  void announce(const std::string& key);

  // The vectors of block `block`, from the cache or from `compute`.
  at::Tensor block(const std::string& key, int64_t block, const std::function<at::Tensor()>& compute);

 private:
  struct Corpus {
    int64_t users = 0;
    std::map<int64_t, at::Tensor> blocks;
  };
  std::map<std::string, Corpus> corpora_;
};

}  // namespace stft::eval
