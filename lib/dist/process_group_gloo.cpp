#include <chrono>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "dist/process_group_impl.h"

namespace stft::dist {

BackendPointer make_gloo_backend(const c10::intrusive_ptr<c10d::Store>& store, const ProcessGroup::Options& options) {
  const auto timeout = std::chrono::milliseconds(static_cast<int64_t>(options.timeout_s * 1000));
  auto gloo_options = c10d::ProcessGroupGloo::Options::create(timeout);
  gloo_options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(options.host));
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, static_cast<int>(options.rank),
                                                     static_cast<int>(options.world_size), gloo_options);
}

}  // namespace stft::dist
