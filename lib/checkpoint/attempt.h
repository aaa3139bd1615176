// Work that can fail on one rank alone, between points where all ranks agree on how it went.
#pragma once

#include <exception>
#include <functional>
#include <string>

#include "dist/process_group.h"

namespace stft::checkpoint {

// A rank whose work failed keeps taking part in the collectives in between, so the others never wait for it in vain.
class Attempt {
 public:
  // `what` is attempted, for messages: "saving checkpoint-50". `temporary`: a directory that is of no use after a
  // failure.
  Attempt(dist::ProcessGroup& world, std::string what, std::string temporary = {})
      : world_(world), what_(std::move(what)), temporary_(std::move(temporary)) {}

  // Runs `work` unless something failed on this rank before; keeps what it throws.
  void run(const std::function<void()>& work);
  bool has_failed() const { return failure_ != nullptr; }

  // Collective: throws this rank's failure; CollectiveError naming the ranks that failed when only others did. Before
  // any rank throws, rank 0 has removed the temporary directory.
  void agree();

 private:
  void clean_up();

  dist::ProcessGroup& world_;
  std::string what_;
  std::string temporary_;
  std::exception_ptr failure_;
};

}  // namespace stft::checkpoint
