// Commands that find their model on a hub of the test, and keep it in a cache of the test.
#pragma once

#include <string>
#include <vector>

#include "e2e/process.h"
#include "e2e/run_files.h"
#include "hub/hub_server.h"

namespace stft::test {

// What is inherited holds none of a user's own settings of hubs, but perhaps a proxy.
inline std::vector<std::string> hub_environment(const HubServer& server, const std::string& home) {
  return {"HF_ENDPOINT=" + server.url(), "HF_HOME=" + home, "HF_HUB_DOWNLOAD_TIMEOUT=20", "no_proxy=127.0.0.1",
          "NO_PROXY=127.0.0.1"};
}

// The golden model with two layers, as the hub's model.
inline void serve_tiny_bert(HubServer& server) {
  server.add_directory(source_path("test/golden/tiny_bert"));
}

inline Json hub_recipe(const TemporaryDirectory& directory) {
  Json recipe = small_recipe(directory);
  recipe["model"]["name_or_path"] = HubServer::kId;
  return recipe;
}

}  // namespace stft::test
