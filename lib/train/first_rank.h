// Work that one rank does for all.
#pragma once

#include <functional>
#include <string>

#include "dist/process_group.h"

namespace stft::train {

// Collective: rank 0 calls `work` on a thread of its own; every rank returns its text, or throws its UserError or
// SystemError (any other exception is rank 0's alone; the others then throw SystemError). The work may take longer than
// a collective's timeout: the ranks meet every `seconds_between_meetings`.
std::string on_first_rank(dist::ProcessGroup& world, const std::function<std::string()>& work,
                          double seconds_between_meetings = 2);

}  // namespace stft::train
