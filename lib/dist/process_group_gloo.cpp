#include <chrono>
#include <csignal>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "dist/process_group_impl.h"

namespace stft::dist {
namespace {

// Gloo's device writes to its sockets from a thread of its own, without MSG_NOSIGNAL: a peer that died would end this
// rank by SIGPIPE before its collective can fail with a message. (Python's interpreter ignores the signal.)
void ignore_broken_pipes() {
  struct sigaction action {};
  if (::sigaction(SIGPIPE, nullptr, &action) == 0 && (action.sa_flags & SA_SIGINFO) == 0 &&
      action.sa_handler == SIG_DFL) {
    std::signal(SIGPIPE, SIG_IGN);
  }
}

}  // namespace

BackendPointer make_gloo_backend(const c10::intrusive_ptr<c10d::Store>& store, const ProcessGroup::Options& options) {
  ignore_broken_pipes();
  const auto timeout = std::chrono::milliseconds(static_cast<int64_t>(options.timeout_s * 1000));
  auto gloo_options = c10d::ProcessGroupGloo::Options::create(timeout);
  gloo_options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(options.host));
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, static_cast<int>(options.rank),
                                                     static_cast<int>(options.world_size), gloo_options);
}

}  // namespace stft::dist
