// A hub on the loopback device, in threads of the test, that serves one model and misbehaves as it is told.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace stft::test {

struct HubRequest {
  std::string method;
  std::string path;  // with the query
  std::map<std::string, std::string> headers;

  std::string header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
};

struct HubReply {
  int status = 200;
  std::map<std::string, std::string> headers;
  std::string body;
  std::optional<std::size_t> cut_after = {};         // bytes of the body; then the connection ends
  std::optional<std::size_t> announced_length = {};  // instead of the body's own
  bool never_comes = false;                          // the connection stays open, and silent
};

enum class Storage { kGit, kLfs };

class HubServer {
 public:
  static constexpr const char* kId = "some-org/tiny.model";
  static constexpr const char* kCommit = "0123456789abcdef0123456789abcdef01234567";

  HubServer();
  ~HubServer();
  HubServer(const HubServer&) = delete;
  HubServer& operator=(const HubServer&) = delete;

  std::string url() const;

  void add(const std::string& file, const std::string& content, Storage storage = Storage::kGit);
  void add_directory(const std::string& directory);  // .safetensors by LFS
  // From now on `main` is another commit.
  void move_main(const std::string& commit);
  // Large files are redirected to this address instead of this server's own.
  void use_storage_at(const std::string& url);

  // Asked before a request is answered as it should be; may answer in its place.
  using Mischief = std::function<std::optional<HubReply>(const HubRequest&)>;
  void misbehave(Mischief mischief);

  HubReply proper_reply(const HubRequest& request);

  std::vector<HubRequest> requests() const;
  // Requests of this method whose path holds `part`.
  int count(const std::string& method, const std::string& part) const;

 private:
  struct File {
    std::string content;
    std::string etag;
    Storage storage;
  };

  void accept_connections();
  void serve(int connection);
  HubReply listing(const std::string& revision) const;
  HubReply tree(const std::string& revision) const;
  HubReply file_reply(const HubRequest& request, const std::string& name) const;

  int listener_ = -1;
  std::uint16_t port_ = 0;
  std::atomic<bool> is_ending_ = false;
  mutable std::mutex mutex_;
  std::map<std::string, File> files_;
  std::map<std::string, std::string> revisions_;
  std::string storage_url_;
  Mischief mischief_;
  std::vector<HubRequest> requests_;
  std::list<std::thread> connections_;
  std::thread acceptor_;
};

}  // namespace stft::test
