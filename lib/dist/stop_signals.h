// Signals that ask a run to stop after saving its state: SIGTERM, SIGUSR1, SIGINT.
#pragma once

#include <sys/types.h>

#include <array>
#include <csignal>
#include <optional>

namespace stft::dist {

inline constexpr std::array<int, 3> kStopSignals = {SIGTERM, SIGUSR1, SIGINT};

// The signals above, for a mask.
sigset_t stop_signal_set();

// From now on the signals above only set what stop_requested() reports, whichever thread takes them; a second SIGINT
// ends the process by that signal, and so does end_after_failure() of the parent. Call it once, before any thread is
// started and before join_launcher(): ranks of our launcher start with these signals blocked, so that one which came
// earlier is seen here and not lost. Throws SystemError when the system refuses.
void catch_stop_signals();

// For a launcher, before it reads anything: a signal above that comes from now on stays pending until launch() passes
// it on to the ranks, which save. Throws SystemError when the system refuses.
void hold_stop_signals();

// Lets this process receive the signals above again, with whatever action is set for them.
void unblock_stop_signals();

// Has a stop signal come to this process? Local to it: the ranks must agree before they act on it. Never goes back to
// false.
bool stop_requested();

// The first of them that came.
std::optional<int> stop_signal();

// "SIGTERM", "SIGUSR1" or "SIGINT".
const char* stop_signal_name(int signal_number);

// For the parent of a rank: a SIGTERM that is no request to save anything: another rank has failed. A process that
// catches stop signals dies of it at once, as one that does not.
void end_after_failure(pid_t child);

}  // namespace stft::dist
