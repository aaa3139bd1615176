// Is a checkpoint what its manifest says?
#pragma once

#include <string>
#include <vector>

namespace stft::checkpoint {

struct Verification {
  std::vector<std::string> faults;  // one line each, with file names; empty: the checkpoint is whole
  std::string summary;              // "FULL_STATE_DICT of step 50 by 2 ranks, 12 files, 271,234,567 bytes, 101 tensors"
};

// Reads every byte: the manifest's files with sizes and checksums, the coverage of every tensor, the archives of
// SHARDED directories, an adapter's pairs of matrices. UserError when `directory` is none.
Verification verify_checkpoint(const std::string& directory);

}  // namespace stft::checkpoint
