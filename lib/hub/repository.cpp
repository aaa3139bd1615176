#include "hub/repository.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "hub/hub_config.h"
#include "io/json.h"

namespace stft::hub {
namespace {

constexpr int kMostRedirects = 10;
constexpr double kLongestDelay = 60;
constexpr std::size_t kMostRevisionsShown = 8;

std::optional<std::int64_t> whole_number(const std::optional<std::string>& text) {
  std::int64_t number = 0;
  if (!text) {
    return std::nullopt;
  }
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  const bool is_number = error == std::errc() && end == text->data() + text->size() && number >= 0;
  return is_number ? std::optional(number) : std::nullopt;
}

// W/"x" and "x" are x.
std::string bare_etag(std::string etag) {
  etag.erase(0, etag.find_first_not_of("W/"));
  etag.erase(0, etag.find_first_not_of('"'));
  etag.erase(etag.find_last_not_of('"') + 1);
  return etag;
}

bool is_file_name(const std::string& etag) {
  return !etag.empty() && etag.size() <= 200 && etag.front() != '.' &&
         std::all_of(etag.begin(), etag.end(),
                     [](char c) { return is_word_character(c) || c == '-' || c == '.' || c == '+'; });
}

// What the server says about it, one line.
std::string server_words(const HttpResponse& response) {
  std::string words = response.header("x-error-message").value_or("").substr(0, 200);
  std::replace_if(
      words.begin(), words.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  return words.empty() ? "" : " (" + words + ")";
}

std::optional<std::int64_t> size_of(const io::Json& entry) {
  const auto lfs = entry.find("lfs");
  const io::Json& holder = lfs != entry.end() && lfs->is_object() && lfs->contains("size") ? *lfs : entry;
  const auto size = holder.find("size");
  return size != holder.end() && size->is_number_unsigned() ? std::optional(size->get<std::int64_t>()) : std::nullopt;
}

}  // namespace

bool is_passing(int status) {
  static constexpr std::array<int, 6> kPassing = {408, 429, 500, 502, 503, 504};
  return std::find(kPassing.begin(), kPassing.end(), status) != kPassing.end();
}

bool is_passing(HttpTrouble trouble) {
  return trouble == HttpTrouble::kUnreachable || trouble == HttpTrouble::kTimeout || trouble == HttpTrouble::kCut;
}

double delay_before(int attempt, const Settings& settings, const HttpResponse* response) {
  const auto asked = response != nullptr ? whole_number(response->header("retry-after")) : std::nullopt;
  const double own = settings.first_delay_s * std::pow(2.0, attempt - 2);
  return std::min(kLongestDelay, asked ? std::max(static_cast<double>(*asked), own) : own);
}

Repository::Repository(HttpClient& client, const Settings& settings, std::string id)
    : client_(client), settings_(settings), id_(std::move(id)) {
  STFT_CHECK(is_repo_id(id_), id_);
}

HttpRequest Repository::request(HttpMethod method, const std::string& url, double timeout_s) const {
  HttpRequest request;
  request.method = method;
  request.url = url;
  request.timeout_s = timeout_s;
  request.certificate_file = settings_.certificate_file;
  return request;
}

std::string Repository::file_url(const std::string& commit, const std::string& file) const {
  return fmt::format("{}/{}/resolve/{}/{}", settings_.endpoint, id_, url_encoded(commit, Slashes::kEncoded),
                     url_encoded(file, Slashes::kKept));
}

// A HEAD stops where the content is named: what follows is the storage behind the hub, which names it otherwise.
HttpResponse Repository::follow(HttpRequest request, BodySink* sink) {
  const std::string hub = origin_of(settings_.endpoint);
  std::map<std::string, std::string> kept;
  for (int hop = 0; hop <= kMostRedirects; ++hop) {
    request.token = origin_of(request.url) == hub ? settings_.token : std::nullopt;
    HttpResponse response = client_.send(request, sink);
    for (const char* name : {"x-repo-commit", "x-linked-etag", "x-linked-size"}) {
      if (const auto value = response.header(name)) {
        kept.emplace(name, *value);
      }
    }
    const bool is_named =
        request.method == HttpMethod::kHead && kept.contains("x-linked-etag") && kept.contains("x-linked-size");
    if (!response.is_redirect() || is_named) {
      response.headers.merge(kept);
      return response;
    }
    const auto target = redirect_target(request.url, response.headers.at("location"));
    if (!target) {
      throw HttpFailure(HttpTrouble::kRefused, fmt::format("{} redirects to an address that is none of https or http",
                                                           origin_of(request.url)));
    }
    request.url = *target;
  }
  throw HttpFailure(HttpTrouble::kRefused, fmt::format("more than {} redirects", kMostRedirects));
}

HttpResponse Repository::try_again(const HttpRequest& request, int attempts, const std::string& what) {
  for (int attempt = 1;; ++attempt) {
    std::string reason;
    double delay = 0;
    try {
      HttpResponse response = follow(request, nullptr);
      if (!is_passing(response.status)) {
        return response;
      }
      reason = fmt::format("HTTP status {}{}", response.status, server_words(response));
      delay = delay_before(attempt + 1, settings_, &response);
    } catch (const HttpFailure& failure) {
      reason = failure.what();
      if (!is_passing(failure.trouble())) {
        throw SystemError(fmt::format("model '{}': {} from {}: {}", id_, what, settings_.endpoint, reason));
      }
      delay = delay_before(attempt + 1, settings_, nullptr);
    }
    if (attempt >= attempts) {
      throw HubUnreachable(fmt::format("model '{}': {} from {}: {}{}", id_, what, settings_.endpoint, reason,
                                       attempts > 1 ? fmt::format(" (tried {} times)", attempts) : ""));
    }
    client_.wait(delay);
  }
}

Listing Repository::list(const std::string& revision, int attempts) {
  HttpRequest asked = request(HttpMethod::kGet,
                              fmt::format("{}/api/models/{}/revision/{}?blobs=true", settings_.endpoint, id_,
                                          url_encoded(revision, Slashes::kEncoded)),
                              settings_.metadata_timeout_s);
  asked.largest_body_bytes = settings_.largest_listing_bytes;
  asked.whole_timeout_s = 30 * settings_.metadata_timeout_s;
  const std::string what = "listing the files";
  const HttpResponse response = try_again(asked, attempts, what);
  if (response.status == 404 && response.header("x-error-code") == "RevisionNotFound") {
    throw UserError(fmt::format("model '{}': {} has no revision '{}' of it{}", id_, settings_.endpoint, revision,
                                known_revisions()));
  }
  if (response.status != 200) {
    refuse(response, what);
  }
  const io::JsonResult parsed = io::try_parse_json(response.body);
  const auto sha = parsed.value.is_object() ? parsed.value.find("sha") : parsed.value.end();
  const bool has_form = !parsed.failure && parsed.value.is_object() && sha != parsed.value.end() && sha->is_string() &&
                        is_commit_hash(sha->get<std::string>()) && parsed.value.contains("siblings") &&
                        parsed.value["siblings"].is_array();
  if (!has_form) {
    throw SystemError(fmt::format("model '{}': {} from {}: the answer is no listing of a model (is HF_ENDPOINT a hub?)",
                                  id_, what, settings_.endpoint));
  }
  Listing listing;
  listing.commit = sha->get<std::string>();
  for (const io::Json& entry : parsed.value["siblings"]) {
    const auto name = entry.is_object() ? entry.find("rfilename") : entry.end();
    if (entry.is_object() && name != entry.end() && name->is_string() && is_relative_path(name->get<std::string>())) {
      listing.files.emplace(name->get<std::string>(), size_of(entry));
    }
  }
  return listing;
}

FileMetadata Repository::look_up(const std::string& commit, const std::string& file) {
  HttpRequest asked = request(HttpMethod::kHead, file_url(commit, file), settings_.metadata_timeout_s);
  asked.whole_timeout_s = 6 * settings_.metadata_timeout_s;
  const std::string what = "looking up '" + file + "'";
  const HttpResponse response = try_again(asked, settings_.attempts, what);
  if (response.status == 404) {
    throw UserError(fmt::format("model '{}': {} has no file '{}' at {}", id_, settings_.endpoint, file, commit));
  }
  if (response.status != 200 && !response.is_redirect()) {
    refuse(response, what);
  }
  const auto fail = [&](const std::string& reason) {
    throw SystemError(fmt::format("model '{}': {} from {}: {} (is HF_ENDPOINT a hub, and no proxy in between?)", id_,
                                  what, settings_.endpoint, reason));
  };
  const auto served = response.header("x-repo-commit");
  if (!served) {
    fail("the answer has no X-Repo-Commit");
  } else if (*served != commit) {
    fail(fmt::format("the answer is about commit '{}', asked was {}", served->substr(0, 60), commit));
  }
  const auto linked = response.header("x-linked-etag");
  const std::string etag = bare_etag(linked ? *linked : response.header("etag").value_or(""));
  if (!is_file_name(etag)) {
    fail(etag.empty() ? "the answer has no ETag" : "the answer has an ETag that is no name of a content");
  }
  const auto linked_size = whole_number(response.header("x-linked-size"));
  const auto size =
      linked_size || response.is_redirect() ? linked_size : whole_number(response.header("content-length"));
  if (!size) {
    fail("the answer does not tell the file's size");
  }
  return {etag, *size};
}

HttpResponse Repository::get_file(const std::string& commit, const std::string& file, std::int64_t first_byte,
                                  BodySink& sink) {
  HttpRequest asked = request(HttpMethod::kGet, file_url(commit, file), settings_.download_timeout_s);
  asked.first_byte = first_byte;
  return follow(asked, &sink);
}

// ": it has main, v1, ..." for a message; empty when the hub does not tell.
std::string Repository::known_revisions() {
  try {
    HttpRequest asked = request(HttpMethod::kGet, fmt::format("{}/api/models/{}/refs", settings_.endpoint, id_),
                                settings_.metadata_timeout_s);
    asked.whole_timeout_s = settings_.metadata_timeout_s;
    const HttpResponse response = follow(asked, nullptr);
    const io::JsonResult parsed = io::try_parse_json(response.body);
    std::vector<std::string> names;
    for (const char* kind : {"branches", "tags"}) {
      if (response.status != 200 || parsed.failure || !parsed.value.is_object() || !parsed.value.contains(kind)) {
        continue;
      }
      for (const io::Json& entry : parsed.value[kind]) {
        const auto name = entry.is_object() ? entry.find("name") : entry.end();
        if (entry.is_object() && name != entry.end() && name->is_string() && is_revision(name->get<std::string>())) {
          names.push_back(name->get<std::string>());
        }
      }
    }
    if (names.empty()) {
      return {};
    }
    const std::size_t shown = std::min(names.size(), kMostRevisionsShown);
    return fmt::format("; it has {}{}",
                       fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
                       names.size() > shown ? fmt::format(" and {} more", names.size() - shown) : "");
  } catch (const HttpFailure&) {
    return {};
  }
}

void Repository::refuse_access(const HttpResponse& response) const {
  const std::string code = response.header("x-error-code").value_or("");
  const std::string who = settings_.token ? "the token of " + settings_.token_origin : "";
  if (code == "GatedRepo" || (response.status == 403 && code.empty())) {
    throw AccessRefused(fmt::format(
        "model '{}': {} gives it only to those who were granted access{}: ask for it at {}/{}, then {}", id_,
        settings_.endpoint, server_words(response), settings_.endpoint, id_,
        settings_.token ? "use a token that may read it (" + who + " may not)"
                        : "set HF_TOKEN to a token that may read it (or write it to '" + settings_.token_file + "')"));
  }
  // A hub says 401 also for models that do not exist.
  throw AccessRefused(fmt::format(
      "model '{}': there is no directory of this name, and {} has no such model{}: the id is misspelt, or the model is "
      "private{}{}",
      id_, settings_.endpoint, server_words(response),
      settings_.token
          ? " and " + who + " may not read it"
          : "; then set HF_TOKEN to a token that may read it (or write it to '" + settings_.token_file + "')",
      response.status == 404 ? "" : fmt::format(" (HTTP status {})", response.status)));
}

void Repository::refuse(const HttpResponse& response, const std::string& what) const {
  if (response.status == 401 || response.status == 403 || response.status == 404) {
    refuse_access(response);
  }
  throw SystemError(fmt::format("model '{}': {} from {}: HTTP status {}{}", id_, what, settings_.endpoint,
                                response.status, server_words(response)));
}

}  // namespace stft::hub
