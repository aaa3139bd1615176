// Elapsed time.
#pragma once

namespace stft {

// Seconds on a clock that never goes back; only differences mean anything.
double monotonic_seconds();

}  // namespace stft
