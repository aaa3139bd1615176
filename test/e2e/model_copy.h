// A copy of the small model that a test may damage.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "e2e/process.h"
#include "e2e/run_files.h"

namespace stft::test {

// A safetensors file taken apart.
struct Weights {
  Json header;
  std::string data;
};

// The eight bytes that a safetensors file starts with.
std::string length_bytes(std::uint64_t length);

// Takes a tensor out; the bytes of the others move together.
void remove_tensor(Weights& weights, const std::string& name);

class ModelCopy {
 public:
  explicit ModelCopy(const std::string& model = "test/golden/tiny_bert");

  std::string path(const std::string& file) const { return directory_.path("model/" + file); }
  const TemporaryDirectory& directory() const { return directory_; }
  void write(const std::string& file, const std::string& content) const { directory_.write("model/" + file, content); }
  void damage_weights(const std::function<void(Weights&)>& damage) const;
  void damage_json(const std::string& file, const std::function<void(Json&)>& damage) const;

  // small_recipe() of this model.
  Json recipe() const;
  Outcome train(int ranks) const;

  // Training fails with exit code 2 within seconds, says all of this and writes no model.
  void check_refused(const std::vector<std::string>& expected, int ranks = 1) const;

 private:
  TemporaryDirectory directory_;
};

}  // namespace stft::test
