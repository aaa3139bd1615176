// Where the ranks of a job meet: a c10d key-value store.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace stft::dist {

// Copies share the same store.
class Rendezvous {
 public:
  struct TcpOptions {
    std::string host = "127.0.0.1";
    uint16_t port = 0;
    bool is_server = false;
    int64_t world_size = 1;
    double timeout_s = 1800;
    std::optional<int> listen_fd;  // a bound, listening socket that the server takes over
  };
  // Throws SystemError naming host and port when the server cannot be started or reached in time.
  static Rendezvous tcp(const TcpOptions& options);

  // Ranks that are threads of this process.
  static Rendezvous in_process();

  // Collective: every rank tells how many ranks it was started for. UserError when that differs, on those that can
  // know: the group would wait for ranks that never come.
  void agree_on_size(int64_t rank, int64_t world_size) const;

  struct Impl;  // defined for lib/dist only
  const Impl& impl() const { return *impl_; }

 private:
  explicit Rendezvous(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace stft::dist
