// What every command that runs on ranks does in a rank.
#pragma once

#include <c10/util/Exception.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dist/rank_environment.h"
#include "train/handshake.h"

namespace stft::app {

// `given`, else this machine's cores divided among its ranks.
int64_t threads_per_rank(std::optional<int64_t> given, int64_t local_ranks);

// Information comes from rank 0 only; colours and the live line where the launcher's standard error allows them.
void configure_log(const dist::RankInfo& info);

// What the ranks of every command must agree on first: the version of stft, and `command` with the flags that change
// what the ranks do together.
std::vector<train::Fact> opening_facts(const std::string& command);

// LibTorch's own errors: SystemError for a failed allocation, else InternalError, with the first line (the rest is a
// stack).
[[noreturn]] void translate(const c10::Error& error);

}  // namespace stft::app
