#include "hub/hub_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>

#include "hub/digest.h"

namespace stft::test {
namespace {

using Json = nlohmann::json;

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

std::optional<HubRequest> parse(const std::string& head) {
  HubRequest request;
  const std::size_t first = head.find(' ');
  const std::size_t second = head.find(' ', first + 1);
  if (first == std::string::npos || second == std::string::npos) {
    return std::nullopt;
  }
  request.method = head.substr(0, first);
  request.path = head.substr(first + 1, second - first - 1);
  for (std::size_t begin = head.find("\r\n") + 2; begin < head.size();) {
    const std::size_t end = head.find("\r\n", begin);
    const std::string line = head.substr(begin, end - begin);
    if (const std::size_t colon = line.find(": "); colon != std::string::npos) {
      request.headers[lower(line.substr(0, colon))] = line.substr(colon + 2);
    }
    begin = end + 2;
  }
  return request;
}

void send_all(int connection, const std::string& bytes) {
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t n = ::send(connection, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (n <= 0) {
      return;
    }
    done += static_cast<std::size_t>(n);
  }
}

void send_reply(int connection, const HubRequest& request, const HubReply& reply) {
  std::string head = fmt::format("HTTP/1.1 {} X\r\n", reply.status);
  for (const auto& [name, value] : reply.headers) {
    head += name + ": " + value + "\r\n";
  }
  head += fmt::format("Content-Length: {}\r\nConnection: close\r\n\r\n",
                      reply.announced_length.value_or(reply.body.size()));
  send_all(connection, head);
  if (request.method != "HEAD") {
    send_all(connection, reply.body.substr(0, reply.cut_after.value_or(reply.body.size())));
  }
}

HubReply failure(int status, const std::string& code) {
  return {status, {{"X-Error-Code", code}}, "{\"error\": \"refused\"}"};
}

}  // namespace

HubServer::HubServer() : revisions_({{"main", kCommit}, {"v1", kCommit}, {kCommit, kCommit}}) {
  ::setenv("no_proxy", "127.0.0.1", 1);  // a user's proxy is not ours
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  if (::bind(listener_, reinterpret_cast<sockaddr*>(&address), length) != 0 || ::listen(listener_, 64) != 0 ||
      ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    throw std::system_error(errno, std::generic_category(), "listen");
  }
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { accept_connections(); });
}

HubServer::~HubServer() {
  is_ending_ = true;
  ::shutdown(listener_, SHUT_RDWR);
  acceptor_.join();
  for (std::thread& connection : connections_) {
    connection.join();
  }
  ::close(listener_);
}

std::string HubServer::url() const {
  return fmt::format("http://127.0.0.1:{}", port_);
}

void HubServer::add(const std::string& file, const std::string& content, Storage storage) {
  const std::string digits = storage == Storage::kLfs ? std::string(64, '0') : std::string(40, '0');
  auto hash = *hub::hash_for_etag(digits, static_cast<std::int64_t>(content.size()));
  hash.update(content);
  const std::scoped_lock lock(mutex_);
  files_[file] = {content, hash.hex(), storage};
}

void HubServer::add_directory(const std::string& directory) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file()) {
      std::ifstream stream(entry.path(), std::ios::binary);
      const std::string content{std::istreambuf_iterator<char>(stream), {}};
      add(entry.path().lexically_relative(directory).string(), content,
          entry.path().extension() == ".safetensors" ? Storage::kLfs : Storage::kGit);
    }
  }
}

void HubServer::move_main(const std::string& commit) {
  const std::scoped_lock lock(mutex_);
  revisions_["main"] = commit;
  revisions_[commit] = commit;
}

void HubServer::use_storage_at(const std::string& url) {
  const std::scoped_lock lock(mutex_);
  storage_url_ = url;
}

void HubServer::misbehave(Mischief mischief) {
  const std::scoped_lock lock(mutex_);
  mischief_ = std::move(mischief);
}

std::vector<HubRequest> HubServer::requests() const {
  const std::scoped_lock lock(mutex_);
  return requests_;
}

int HubServer::count(const std::string& method, const std::string& part) const {
  const auto all = requests();
  return static_cast<int>(std::count_if(all.begin(), all.end(), [&](const HubRequest& request) {
    return request.method == method && request.path.find(part) != std::string::npos;
  }));
}

void HubServer::accept_connections() {
  while (!is_ending_) {
    const int connection = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection >= 0) {
      connections_.emplace_back([this, connection] { serve(connection); });
    }
  }
}

void HubServer::serve(int connection) {
  std::string head;
  char buffer[4096];
  while (head.find("\r\n\r\n") == std::string::npos) {
    const ssize_t n = ::recv(connection, buffer, sizeof(buffer), 0);
    if (n <= 0) {
      ::close(connection);
      return;
    }
    head.append(buffer, static_cast<std::size_t>(n));
  }
  if (const auto request = parse(head)) {
    Mischief mischief;
    {
      const std::scoped_lock lock(mutex_);
      requests_.push_back(*request);
      mischief = mischief_;
    }
    std::optional<HubReply> reply = mischief ? mischief(*request) : std::nullopt;
    if (!reply) {
      reply = proper_reply(*request);
    }
    if (reply->never_comes) {
      // Until the other side gives up.
      pollfd waited{connection, POLLIN, 0};
      while (!is_ending_ && ::poll(&waited, 1, 50) == 0) {
      }
    } else {
      send_reply(connection, *request, *reply);
    }
  }
  ::shutdown(connection, SHUT_RDWR);
  ::close(connection);
}

HubReply HubServer::listing(const std::string& revision) const {
  const auto commit = revisions_.find(revision);
  if (commit == revisions_.end()) {
    return failure(404, "RevisionNotFound");
  }
  Json siblings = Json::array();
  for (const auto& [name, file] : files_) {
    Json entry = {{"rfilename", name}, {"size", file.content.size()}, {"blobId", std::string(40, 'b')}};
    if (file.storage == Storage::kLfs) {
      entry["lfs"] = {{"sha256", file.etag}, {"size", file.content.size()}, {"pointerSize", 130}};
    }
    siblings.push_back(entry);
  }
  const Json answer = {{"id", kId}, {"modelId", kId}, {"sha", commit->second}, {"siblings", siblings}};
  return {200, {{"Content-Type", "application/json"}}, answer.dump()};
}

// What newer versions of huggingface_hub ask for.
HubReply HubServer::tree(const std::string& revision) const {
  if (!revisions_.contains(revision)) {
    return failure(404, revision.find('/') == std::string::npos ? "RevisionNotFound" : "EntryNotFound");
  }
  Json entries = Json::array();
  for (const auto& [name, file] : files_) {
    Json entry = {{"type", "file"}, {"path", name}, {"size", file.content.size()}, {"oid", std::string(40, 'b')}};
    if (file.storage == Storage::kLfs) {
      entry["lfs"] = {{"oid", file.etag}, {"size", file.content.size()}, {"pointerSize", 130}};
    }
    entries.push_back(entry);
  }
  return {200, {{"Content-Type", "application/json"}}, entries.dump()};
}

HubReply HubServer::file_reply(const HubRequest& request, const std::string& name) const {
  const File& file = files_.at(name);
  HubReply reply{200, {{"ETag", "\"" + file.etag + "\""}}, file.content};
  const std::string range = request.header("range");
  if (range.starts_with("bytes=")) {
    const std::size_t begin = std::stoull(range.substr(6));
    if (begin >= file.content.size()) {
      return failure(416, "");
    }
    reply.status = 206;
    reply.headers["Content-Range"] = fmt::format("bytes {}-{}/{}", begin, file.content.size() - 1, file.content.size());
    reply.body = file.content.substr(begin);
  }
  return reply;
}

HubReply HubServer::proper_reply(const HubRequest& request) {
  const std::scoped_lock lock(mutex_);
  const std::string id(kId);
  const std::string path = request.path.substr(0, request.path.find('?'));
  const std::string api = "/api/models/" + id;
  if (path == api + "/refs") {
    return {200, {}, R"({"branches": [{"name": "main"}], "tags": [{"name": "v1"}], "converts": []})"};
  }
  if (path.starts_with(api + "/revision/")) {
    return listing(path.substr(api.size() + 10));
  }
  if (path.starts_with(api + "/tree/")) {
    return tree(path.substr(api.size() + 6));
  }
  if (path == api) {
    return listing("main");
  }
  if (path.starts_with("/storage/")) {
    for (const auto& [name, file] : files_) {
      if (path == "/storage/" + file.etag) {
        return file_reply(request, name);
      }
    }
    return failure(404, "");
  }
  const std::string resolve = "/" + id + "/resolve/";
  if (!path.starts_with(resolve)) {
    return failure(401, "RepoNotFound");
  }
  const std::size_t slash = path.find('/', resolve.size());
  const auto commit = revisions_.find(path.substr(resolve.size(), slash - resolve.size()));
  if (commit == revisions_.end()) {
    return failure(404, "RevisionNotFound");
  }
  const std::string name = path.substr(slash + 1);
  if (!files_.contains(name)) {
    HubReply reply = failure(404, "EntryNotFound");
    reply.headers["X-Repo-Commit"] = commit->second;
    return reply;
  }
  const File& file = files_.at(name);
  HubReply reply = file_reply(request, name);
  if (file.storage == Storage::kLfs) {
    const std::string to = (storage_url_.empty() ? url() : storage_url_) + "/storage/" + file.etag;
    reply = {302,
             {{"Location", to},
              {"X-Linked-Etag", "\"" + file.etag + "\""},
              {"X-Linked-Size", std::to_string(file.content.size())}},
             "Found"};
  }
  reply.headers["X-Repo-Commit"] = commit->second;
  return reply;
}

}  // namespace stft::test
