// Elapsed time.
#pragma once

namespace stft {

// Seconds on a clock that never goes back; only differences mean anything.
double monotonic_seconds();

// Seconds that the calling thread has computed; only differences mean anything.
double thread_cpu_seconds();

}  // namespace stft
