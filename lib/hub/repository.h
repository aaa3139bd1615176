// A model on the hub: its files and what is known of them. Passing troubles are tried again, with growing pauses.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "hub/http.h"
#include "hub/settings.h"

namespace stft::hub {

// The hub cannot be reached, or goes on failing.
class HubUnreachable : public SystemError {
 public:
  using SystemError::SystemError;
};

// The hub shows this model to nobody, or not to us.
class AccessRefused : public UserError {
 public:
  using UserError::UserError;
};

struct Listing {
  std::string commit;
  std::map<std::string, std::optional<std::int64_t>> files;  // path -> bytes, where the hub tells them
};

struct FileMetadata {
  std::string etag;  // names the content; fit for a file name
  std::int64_t size_bytes = 0;
};

class Repository {
 public:
  // `id` as is_repo_id judges it. Borrows both.
  Repository(HttpClient& client, const Settings& settings, std::string id);

  // The files at a branch, tag or commit. `attempts`: 1 where a cached copy would do. AccessRefused, HubUnreachable,
  // UserError for a revision that the hub does not have, SystemError for an answer that is none.
  Listing list(const std::string& revision, int attempts);

  // Errors as list(); UserError for a file that the commit does not have.
  FileMetadata look_up(const std::string& commit, const std::string& file);

  // GET of a file from `first_byte` on, redirects followed; the token goes to the hub alone. The body goes to `sink`
  // when the status is 200 or 206. One attempt: HttpFailure, and any status.
  HttpResponse get_file(const std::string& commit, const std::string& file, std::int64_t first_byte, BodySink& sink);

  // UserError or SystemError for a status that is none of success. `what` reads on after the model's name.
  [[noreturn]] void refuse(const HttpResponse& response, const std::string& what) const;

  const std::string& id() const { return id_; }
  HttpClient& client() { return client_; }
  const Settings& settings() const { return settings_; }

 private:
  HttpResponse follow(HttpRequest request, BodySink* sink);
  HttpResponse try_again(const HttpRequest& request, int attempts, const std::string& what);
  HttpRequest request(HttpMethod method, const std::string& url, double timeout_s) const;
  std::string file_url(const std::string& commit, const std::string& file) const;
  std::string known_revisions();
  [[noreturn]] void refuse_access(const HttpResponse& response) const;

  HttpClient& client_;
  const Settings& settings_;
  std::string id_;
};

// Whether the same request may succeed a moment later.
bool is_passing(int status);
bool is_passing(HttpTrouble trouble);

// How long to wait before attempt `attempt` (2, 3, ...): the server's Retry-After, else first_delay_s doubled each
// time; a minute at most.
double delay_before(int attempt, const Settings& settings, const HttpResponse* response);

}  // namespace stft::hub
