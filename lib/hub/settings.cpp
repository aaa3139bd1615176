#include "hub/settings.h"

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "hub/hub_config.h"
#include "io/file.h"

namespace stft::hub {
namespace {

namespace fs = std::filesystem;

constexpr double kLongestTimeout = 86400;

class Variables {
 public:
  explicit Variables(const Environment& environment) : environment_(environment) {}

  // An empty variable counts as one that is not set.
  std::optional<std::string> text(const char* name) const {
    const char* value = environment_(name);
    return value != nullptr && *value != '\0' ? std::optional<std::string>(value) : std::nullopt;
  }

  bool is_true(const char* name) const {
    std::string value = text(name).value_or("");
    std::transform(value.begin(), value.end(), value.begin(),
                   [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; });
    return value == "1" || value == "ON" || value == "YES" || value == "TRUE";
  }

  double seconds(const char* name, double otherwise) const {
    const auto value = text(name);
    if (!value) {
      return otherwise;
    }
    double number = 0;
    const auto [end, error] = std::from_chars(value->data(), value->data() + value->size(), number);
    if (error != std::errc() || end != value->data() + value->size() || !(number > 0 && number <= kLongestTimeout)) {
      throw UserError(fmt::format("{}: '{}' is not a number of seconds above 0 and up to {}", name, *value,
                                  static_cast<int>(kLongestTimeout)));
    }
    return number;
  }

  std::string home() const {
    if (const auto home = text("HOME")) {
      return *home;
    }
    const passwd* entry = ::getpwuid(::getuid());
    return entry != nullptr && entry->pw_dir != nullptr ? entry->pw_dir : "/";
  }

  // A leading ~ and $NAME, ${NAME} are replaced; a variable that is not set stays as it is written.
  std::string expanded(std::string path) const {
    if (path == "~" || path.starts_with("~/")) {
      path = home() + path.substr(1);
    }
    std::string result;
    for (std::size_t i = 0; i < path.size();) {
      std::size_t end = i + 1;
      if (path[i] == '$') {
        const bool has_brace = end < path.size() && path[end] == '{';
        const std::size_t begin = has_brace ? end + 1 : end;
        end = begin;
        while (end < path.size() && is_word_character(path[end])) {
          ++end;
        }
        const auto value = text(path.substr(begin, end - begin).c_str());
        if (has_brace && end < path.size() && path[end] == '}') {
          ++end;
        }
        result += value && end > begin ? *value : path.substr(i, end - i);
      } else {
        result += path[i];
      }
      i = end;
    }
    return result;
  }

  // The first of them that is set.
  std::optional<std::string> path(std::initializer_list<const char*> names) const {
    for (const char* name : names) {
      if (const auto value = text(name)) {
        return expanded(*value);
      }
    }
    return std::nullopt;
  }

 private:
  const Environment& environment_;
};

// Without what the ends of lines and of a pasted text bring along.
std::string cleaned(std::string token, const std::string& origin) {
  token.erase(std::remove_if(token.begin(), token.end(), [](char c) { return c == '\r' || c == '\n'; }), token.end());
  const std::size_t begin = token.find_first_not_of(" \t");
  token = begin == std::string::npos ? "" : token.substr(begin, token.find_last_not_of(" \t") + 1 - begin);
  for (const char c : token) {
    if (static_cast<unsigned char>(c) <= 0x20 || static_cast<unsigned char>(c) >= 0x7F) {
      throw UserError(origin + ": holds characters that no token has");
    }
  }
  return token;
}

void read_token(const Variables& variables, const std::string& home, Settings& settings) {
  settings.token_file = variables.path({"HF_TOKEN_PATH"}).value_or((fs::path(home) / "token").string());
  if (variables.is_true("HF_HUB_DISABLE_IMPLICIT_TOKEN")) {
    return;
  }
  std::string token;
  for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}) {
    if (const auto value = variables.text(name); value && token.empty()) {
      settings.token_origin = name;
      token = cleaned(*value, name);
    }
  }
  std::error_code error;
  if (token.empty() && fs::is_regular_file(settings.token_file, error)) {
    settings.token_origin = "the file '" + settings.token_file + "'";
    token = cleaned(io::read_text_file(settings.token_file), settings.token_origin);
  }
  if (!token.empty()) {
    settings.token = token;
  }
}

std::string read_endpoint(const Variables& variables, const std::string& otherwise) {
  std::string endpoint = variables.text("HF_ENDPOINT").value_or(otherwise);
  while (endpoint.ends_with('/')) {
    endpoint.pop_back();
  }
  const bool has_space = std::any_of(endpoint.begin(), endpoint.end(),
                                     [](char c) { return static_cast<unsigned char>(c) <= 0x20 || c == 0x7F; });
  if (has_space || (!endpoint.starts_with("https://") && !endpoint.starts_with("http://"))) {
    throw UserError(fmt::format("HF_ENDPOINT: '{}' is not an address that begins with https:// or http://", endpoint));
  }
  return endpoint;
}

}  // namespace

Settings read_settings(const Environment& environment) {
  const Variables variables(environment);
  Settings settings;
  const std::string caches =
      variables.text("XDG_CACHE_HOME").value_or((fs::path(variables.home()) / ".cache").string());
  const std::string home =
      variables.path({"HF_HOME"}).value_or(variables.expanded((fs::path(caches) / "huggingface").string()));
  settings.cache_directory = variables.path({"SENTENCE_TRANSFORMERS_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
                                 .value_or((fs::path(home) / "hub").string());
  settings.endpoint = read_endpoint(variables, settings.endpoint);
  read_token(variables, home, settings);
  // As Python's `or`: the second is looked at only when the first is not set.
  const char* offline = variables.text("HF_HUB_OFFLINE") ? "HF_HUB_OFFLINE" : "TRANSFORMERS_OFFLINE";
  if (variables.is_true(offline)) {
    settings.offline_variable = offline;
  }
  settings.uses_links = !variables.is_true("HF_HUB_DISABLE_SYMLINKS");
  settings.certificate_file = variables.path({"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"}).value_or("");
  settings.metadata_timeout_s = variables.seconds("HF_HUB_ETAG_TIMEOUT", settings.metadata_timeout_s);
  settings.download_timeout_s = variables.seconds("HF_HUB_DOWNLOAD_TIMEOUT", settings.download_timeout_s);
  return settings;
}

Settings settings_from_environment() {
  return read_settings([](const char* name) -> const char* { return std::getenv(name); });
}

}  // namespace stft::hub
