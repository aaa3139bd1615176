#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <string_view>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "hub/http.h"
#include "hub/hub_config.h"

namespace stft::hub {
namespace {

constexpr std::size_t kMostHeaders = 1000;
constexpr long kSlowestBytesPerSecond = 64;

void initialize_curl() {
  static const CURLcode result = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (result != CURLE_OK) {
    throw SystemError(std::string("starting libcurl: ") + curl_easy_strerror(result));
  }
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return result;
}

std::string trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  return begin == std::string_view::npos
             ? ""
             : std::string(text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin));
}

HttpTrouble trouble_of(CURLcode code) {
  switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
      return HttpTrouble::kUnreachable;
    case CURLE_OPERATION_TIMEDOUT:
      return HttpTrouble::kTimeout;
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
      return HttpTrouble::kCut;
    default:
      return HttpTrouble::kRefused;
  }
}

// Owns a parsed address.
class Url {
 public:
  Url() : handle_(curl_url()) {}
  ~Url() { curl_url_cleanup(handle_); }
  Url(const Url&) = delete;
  Url& operator=(const Url&) = delete;

  bool set(const std::string& url) { return curl_url_set(handle_, CURLUPART_URL, url.c_str(), 0) == CURLUE_OK; }
  std::string part(CURLUPart part, unsigned flags = 0) const {
    char* text = nullptr;
    if (curl_url_get(handle_, part, &text, flags) != CURLUE_OK) {
      return {};
    }
    std::string result(text);
    curl_free(text);
    return result;
  }

 private:
  CURLU* handle_;
};

struct ListRelease {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

}  // namespace

// One request under way. libcurl's callbacks must not throw: what happens in them is kept and told afterwards.
struct HttpClient::Exchange {
  const HttpRequest& request;
  BodySink* sink;
  const std::function<bool()>& should_stop;
  CURL* handle;
  HttpResponse response;
  bool has_begun = false;
  bool is_too_big = false;
  bool is_stopped = false;
  std::exception_ptr failure;
  std::unique_ptr<curl_slist, ListRelease> headers;

  bool goes_to_sink() const { return sink != nullptr && (response.status == 200 || response.status == 206); }

  static std::size_t on_header(char* data, std::size_t size, std::size_t count, void* self) {
    auto& exchange = *static_cast<Exchange*>(self);
    const std::string_view line(data, size * count);
    if (line.starts_with("HTTP/")) {
      exchange.response.headers.clear();
      long status = 0;
      curl_easy_getinfo(exchange.handle, CURLINFO_RESPONSE_CODE, &status);
      exchange.response.status = static_cast<int>(status);
    } else if (const std::size_t colon = line.find(':'); colon != std::string_view::npos) {
      if (exchange.response.headers.size() >= kMostHeaders) {
        exchange.is_too_big = true;
        return 0;
      }
      exchange.response.headers[lower(line.substr(0, colon))] = trimmed(line.substr(colon + 1));
    }
    return line.size();
  }

  static std::size_t on_body(char* data, std::size_t size, std::size_t count, void* self) {
    auto& exchange = *static_cast<Exchange*>(self);
    try {
      exchange.take({reinterpret_cast<const std::byte*>(data), size * count});
      return exchange.is_too_big ? 0 : size * count;
    } catch (...) {
      exchange.failure = std::current_exception();
      return 0;
    }
  }

  void take(std::span<const std::byte> bytes) {
    if (goes_to_sink()) {
      if (!has_begun) {
        sink->begin(response);
        has_begun = true;
      }
      sink->write(bytes);
    } else if (response.body.size() + bytes.size() <= request.largest_body_bytes) {
      response.body.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    } else {
      is_too_big = true;
    }
  }

  static int on_progress(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    auto& exchange = *static_cast<Exchange*>(self);
    try {
      exchange.is_stopped = exchange.should_stop && exchange.should_stop();
    } catch (...) {
      exchange.failure = std::current_exception();
    }
    return exchange.is_stopped || exchange.failure ? 1 : 0;
  }
};

std::optional<std::string> HttpResponse::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() || found->second.empty() ? std::nullopt : std::optional(found->second);
}

HttpClient::HttpClient(std::function<bool()> should_stop) : should_stop_(std::move(should_stop)) {
  initialize_curl();
  handle_ = curl_easy_init();
  if (handle_ == nullptr) {
    throw SystemError("starting libcurl: out of memory");
  }
}

HttpClient::~HttpClient() {
  curl_easy_cleanup(static_cast<CURL*>(handle_));
}

void HttpClient::set_options(Exchange& exchange) {
  CURL* curl = exchange.handle;
  const HttpRequest& request = exchange.request;
  curl_easy_reset(curl);
  curl_easy_setopt(curl, CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "stft");
  curl_easy_setopt(curl, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  curl_easy_setopt(curl, CURLOPT_NOBODY, request.method == HttpMethod::kHead ? 1L : 0L);
  if (request.first_byte > 0) {
    curl_easy_setopt(curl, CURLOPT_RANGE, fmt::format("{}-", request.first_byte).c_str());
  }
  if (request.token) {
    exchange.headers.reset(curl_slist_append(nullptr, ("Authorization: Bearer " + *request.token).c_str()));
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, exchange.headers.get());
  }
  if (!request.certificate_file.empty()) {
    curl_easy_setopt(curl, CURLOPT_CAINFO, request.certificate_file.c_str());
  }
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(request.timeout_s * 1000));
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, kSlowestBytesPerSecond);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, std::max(1L, std::lround(std::ceil(request.timeout_s))));
  curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, static_cast<long>(request.whole_timeout_s * 1000));
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, &Exchange::on_header);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, &exchange);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, &Exchange::on_body);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &exchange);
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, &Exchange::on_progress);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &exchange);
}

HttpResponse HttpClient::send(const HttpRequest& request, BodySink* sink) {
  Exchange exchange{request, sink, should_stop_, static_cast<CURL*>(handle_), {}, false, false, false, {}, {}};
  set_options(exchange);
  std::array<char, CURL_ERROR_SIZE> detail{};
  curl_easy_setopt(exchange.handle, CURLOPT_ERRORBUFFER, detail.data());
  const CURLcode code = curl_easy_perform(exchange.handle);
  curl_easy_setopt(exchange.handle, CURLOPT_ERRORBUFFER, nullptr);
  if (exchange.failure) {
    std::rethrow_exception(exchange.failure);
  }
  if (exchange.is_stopped) {
    throw Stopped("downloading was stopped; run again to go on");
  }
  if (exchange.is_too_big) {
    throw HttpFailure(HttpTrouble::kTooBig, "the answer is longer than it may be");
  }
  if (code != CURLE_OK) {
    throw HttpFailure(trouble_of(code), detail[0] != '\0' ? detail.data() : curl_easy_strerror(code));
  }
  return std::move(exchange.response);
}

void HttpClient::wait(double seconds) const {
  const double end = monotonic_seconds() + seconds;
  while (true) {
    if (should_stop_ && should_stop_()) {
      throw Stopped("downloading was stopped; run again to go on");
    }
    const double left = end - monotonic_seconds();
    if (left <= 0) {
      return;
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(std::min(left, 0.1)));
  }
}

std::optional<std::string> redirect_target(const std::string& base, const std::string& location) {
  Url url;
  if (!url.set(base) || !url.set(location)) {  // the second is taken as relative to the first
    return std::nullopt;
  }
  const std::string scheme = url.part(CURLUPART_SCHEME);
  return scheme == "http" || scheme == "https" ? std::optional(url.part(CURLUPART_URL)) : std::nullopt;
}

std::string origin_of(const std::string& url) {
  Url parsed;
  if (!parsed.set(url)) {
    return {};
  }
  return lower(parsed.part(CURLUPART_SCHEME)) + "://" + lower(parsed.part(CURLUPART_HOST)) + ":" +
         parsed.part(CURLUPART_PORT, CURLU_DEFAULT_PORT);
}

std::string url_encoded(const std::string& text, Slashes slashes) {
  std::string result;
  for (const char c : text) {
    const bool is_plain =
        is_word_character(c) || c == '-' || c == '.' || c == '~' || (c == '/' && slashes == Slashes::kKept);
    result += is_plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return result;
}

}  // namespace stft::hub
