// Where the hub is, where its files are kept, and how patient a download is: huggingface_hub's environment variables.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

namespace stft::hub {

struct Settings {
  std::string cache_directory;  // holds models--org--name
  std::string endpoint = "https://huggingface.co";
  std::optional<std::string> token;
  std::string token_origin;        // "HF_TOKEN", "the file '...'"; for messages, which never show the token
  std::string token_file;          // where one is looked for when no variable gives it
  std::string offline_variable;    // the one that forbids the network; empty: none does
  bool uses_links = true;          // snapshots are links to blobs; else copies
  std::string certificate_file;    // of certificate authorities; empty: the system's
  double metadata_timeout_s = 10;  // without a byte, for what is small
  double download_timeout_s = 10;  // without a byte, for files
  int attempts = 5;                // of a request that fails for a passing reason
  double first_delay_s = 1;        // before the second attempt; doubled for each further one
  std::size_t largest_listing_bytes = std::size_t{64} << 20;

  bool is_offline() const { return !offline_variable.empty(); }
};

// The value of a variable; null when it is not set.
using Environment = std::function<const char*(const char*)>;

// HF_HOME, HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, SENTENCE_TRANSFORMERS_HOME, XDG_CACHE_HOME; HF_ENDPOINT; HF_TOKEN,
// HUGGING_FACE_HUB_TOKEN, HF_TOKEN_PATH, HF_HUB_DISABLE_IMPLICIT_TOKEN; HF_HUB_OFFLINE, TRANSFORMERS_OFFLINE;
// HF_HUB_ETAG_TIMEOUT, HF_HUB_DOWNLOAD_TIMEOUT; HF_HUB_DISABLE_SYMLINKS; SSL_CERT_FILE, REQUESTS_CA_BUNDLE,
// CURL_CA_BUNDLE. (The variables of proxies are libcurl's affair.) UserError naming the variable whose value cannot be.
Settings read_settings(const Environment& environment);

// Of this process's environment.
Settings settings_from_environment();

}  // namespace stft::hub
