// Model directories under the names that a family's authors gave the tensors.
#pragma once

#include <string>
#include <vector>

#include "io/safetensors.h"
#include "support/family_cases.h"
#include "support/family_model.h"

namespace stft::test {

struct PublishedChange {
  std::string without_a_row;        // this tensor is cut
  std::vector<NamedTensor> beside;  // tensors of no parameter
};

// The golden's published tensors in a model directory.
inline void write_published(const std::string& directory, const FamilyGolden& golden, const io::Json& config,
                            const PublishedChange& change = {}) {
  write_model_directory(directory, config);
  const auto file = io::SafetensorsFile::open(golden.tensors);
  std::vector<NamedTensor> tensors = change.beside;
  for (const auto& info : file.tensors()) {
    if (info.name.starts_with("published/")) {
      const std::string name = info.name.substr(std::string("published/").size());
      const auto value = read_tensor(golden.tensors, info.name);
      tensors.push_back({name, name == change.without_a_row ? value.narrow(0, 1, value.size(0) - 1) : value});
    }
  }
  write_weights(directory, tensors);
}

}  // namespace stft::test
