// A small model on a hub of the test, and a cache to download it to.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "hub/hub_server.h"
#include "hub/snapshot.h"
#include "io/temporary_directory.h"

namespace stft::test {

// Bytes that do not repeat early.
inline std::string noise(std::size_t size) {
  std::string bytes;
  std::uint64_t state = 1;
  while (bytes.size() < size) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    bytes += static_cast<char>(state >> 33);
  }
  return bytes;
}

class HubFixture {
 public:
  HubFixture() {
    settings.cache_directory = directory.path("hub");
    settings.endpoint = server.url();
    settings.metadata_timeout_s = 1;
    settings.download_timeout_s = 1;
    settings.attempts = 3;
    settings.first_delay_s = 0.01;
    server.add("config.json", "{\"model_type\": \"bert\"}");
    server.add("modules.json",
               R"([{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
      {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}])");
    server.add("1_Pooling/config.json", "{\"pooling_mode_mean_tokens\": true}");
    server.add("tokenizer.json", "{\"model\": {}}");
    server.add("tokenizer_config.json", "{}");
    server.add("sentence_bert_config.json", "{}");
    server.add("model.safetensors", weights, Storage::kLfs);
    server.add("README.md", "read me");
    server.add("pytorch_model.bin", "a pickle", Storage::kLfs);
    server.add("onnx/model.onnx", "another format", Storage::kLfs);
  }

  hub::Snapshot fetch(const std::string& revision = "main", hub::Wanted wanted = hub::Wanted::kModel) {
    hub::Observer observer;
    observer.on_progress = [this](const hub::Progress& progress) { reports.push_back(progress); };
    observer.on_warning = [this](const std::string& message) { warnings.push_back(message); };
    observer.should_stop = should_stop;
    return hub::fetch_model({HubServer::kId, revision, wanted}, settings, observer);
  }

  std::string cached(const std::string& relative) const {
    return (std::filesystem::path(settings.cache_directory) / "models--some-org--tiny.model" / relative).string();
  }
  std::string snapshot_path(const std::string& file) const {
    return cached(std::string("snapshots/") + HubServer::kCommit + "/" + file);
  }
  static std::string content(const std::string& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  // Below the model's folder.
  std::vector<std::string> files(const std::string& below) const {
    std::vector<std::string> names;
    std::error_code error;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(cached(below), error)) {
      if (!entry.is_directory()) {
        names.push_back(entry.path().lexically_relative(cached(below)).string());
      }
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  TemporaryDirectory directory;
  HubServer server;
  hub::Settings settings;
  std::string weights = noise(300000);
  std::vector<hub::Progress> reports;
  std::vector<std::string> warnings;
  std::function<bool()> should_stop;
};

}  // namespace stft::test
