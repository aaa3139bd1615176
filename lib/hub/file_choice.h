// Which files of a model's repository stft reads: configuration, modules, tokenizer and weights. Nothing else is
// downloaded, and never a pickle.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hub/cache.h"

namespace stft::hub {

// What the model is wanted for.
enum class Wanted { kModel, kTokenizer };

// The files of one commit, as the hub lists them or as the cache holds them.
class FileSource {
 public:
  virtual ~FileSource() = default;
  virtual Presence presence(const std::string& file) = 0;
  // A path to read a small file from that is not absent; none when it cannot be had. May download it.
  virtual std::optional<std::string> open(const std::string& file) = 0;
};

struct FileChoice {
  std::vector<std::string> needed;   // files that are there, cached or not
  std::vector<std::string> absent;   // files that would be needed and that the commit does not have
  std::vector<std::string> unknown;  // files that would be needed if the commit has them
  std::vector<std::string> lacking;  // what a model cannot do without; for messages: "weights (model.safetensors)"
  std::vector<std::string> pickles;  // weights that only a pickle holds
};

// UserError for a modules.json or an index of weights that is malformed or names what lies outside the repository.
FileChoice choose_files(FileSource& source, Wanted wanted);

}  // namespace stft::hub
