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
  // `what` is attempted, for messages: "saving checkpoint-50".
  Attempt(dist::ProcessGroup& world, std::string what) : world_(world), what_(std::move(what)) {}

  // Runs `work` unless something failed on this rank before; keeps what it throws.
  void run(const std::function<void()>& work);
  bool has_failed() const { return failure_ != nullptr; }

  // Collective: throws this rank's failure; CollectiveError naming the ranks that failed when only others did.
  void agree();

 private:
  dist::ProcessGroup& world_;
  std::string what_;
  std::exception_ptr failure_;
};

}  // namespace stft::checkpoint
