// Private to lib/dist: the environment variables by which our launcher speaks to its ranks.
#pragma once

namespace stft::dist {

inline constexpr const char* kLaunchedKey = "STFT_LAUNCHED";   // the launcher's process id
inline constexpr const char* kListenFdKey = "STFT_LISTEN_FD";  // rank 0: the socket of the rendezvous
inline constexpr const char* kTerminalKey = "STFT_TERMINAL";   // set: the launcher writes to a terminal

}  // namespace stft::dist
