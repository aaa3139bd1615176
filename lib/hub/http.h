// HTTP requests, over libcurl: only http_curl.cpp names it. Redirects are not followed here; nothing waits for ever.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>

#include "base/error.h"

namespace stft::hub {

enum class HttpMethod { kGet, kHead };

struct HttpRequest {
  HttpMethod method = HttpMethod::kGet;
  std::string url;
  std::optional<std::string> token;  // sent to that host, whichever it is
  std::int64_t first_byte = 0;       // above 0: asks for the bytes from there on
  double timeout_s = 10;             // to connect, and without a byte
  double whole_timeout_s = 0;        // for all of it; 0: no limit, as long as bytes come
  std::size_t largest_body_bytes = std::size_t{1} << 20;
  std::string certificate_file;
};

struct HttpResponse {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case; the last of equal names
  std::string body;                            // what did not go to a sink

  std::optional<std::string> header(const std::string& name) const;
  bool is_redirect() const { return status >= 300 && status < 400 && headers.contains("location"); }
};

// Takes the body of a response of status 200 or 206.
class BodySink {
 public:
  virtual ~BodySink() = default;
  virtual void begin(const HttpResponse& head) = 0;  // before the first byte; not called for an empty body
  virtual void write(std::span<const std::byte> bytes) = 0;
};

enum class HttpTrouble {
  kUnreachable,  // no address, no connection
  kTimeout,
  kCut,     // the connection ended before the response did
  kTooBig,  // beyond largest_body_bytes
  kRefused  // what trying again does not change: certificates, protocols, addresses
};

// No response, or a part of one.
class HttpFailure : public std::runtime_error {
 public:
  HttpFailure(HttpTrouble trouble, const std::string& reason) : std::runtime_error(reason), trouble_(trouble) {}
  HttpTrouble trouble() const { return trouble_; }

 private:
  HttpTrouble trouble_;
};

// Somebody wants this process to end.
class Stopped : public SystemError {
 public:
  using SystemError::SystemError;
};

// Connections are kept for the next request. Proxies come from the environment as libcurl reads it.
class HttpClient {
 public:
  // `should_stop` is asked about once a second; null: never.
  explicit HttpClient(std::function<bool()> should_stop);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // HttpFailure when there is no whole response; Stopped; whatever the sink throws.
  HttpResponse send(const HttpRequest& request, BodySink* sink = nullptr);

  // Returns after that long; Stopped.
  void wait(double seconds) const;

 private:
  struct Exchange;
  void set_options(Exchange& exchange);

  std::function<bool()> should_stop_;
  void* handle_;
};

// `location` as a redirect of `base` means it; none when it is no address of http or https.
std::optional<std::string> redirect_target(const std::string& base, const std::string& location);

// Scheme, host and port, whole: "http://127.0.0.1:8080". Empty when `url` is no address.
std::string origin_of(const std::string& url);

// Percent-encoded for a part of an address; slashes too, unless they are kept.
enum class Slashes { kEncoded, kKept };
std::string url_encoded(const std::string& text, Slashes slashes);

}  // namespace stft::hub
