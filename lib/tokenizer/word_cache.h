// The ids of words met before.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/model.h"

namespace stft::tokenizer {

// Remembers short words for each thread in a table of fixed size (3 MiB a thread, shared by all caches; a newer
// word takes the place of an older one). Safe on any number of threads.
class WordCache {
 public:
  // A cache for one model.
  WordCache();

  // What model.append_ids does. Always called with the same model.
  void append_ids(const Model& model, std::string_view word, std::vector<std::int32_t>& ids) const;

 private:
  std::uint64_t serial_;  // differs between caches
};

}  // namespace stft::tokenizer
