// The recipe's `data:` block.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace stft::data {

// Which of a row's columns plays which part. A column that is not mapped is ignored (named once in the log).
struct ColumnMap {
  std::string anchor, positive;                 // empty: not mapped
  std::string negative;                         // a string column or a list column
  std::vector<std::string> numbered_negatives;  // negative_1, negative_2, ... in order
  std::string text_1, text_2;
  std::string label, score;
};

struct DatasetConfig {
  std::string name;                // default: the file's stem
  std::vector<std::string> paths;  // files or globs
  ColumnMap columns;
  std::map<std::string, std::string> prompts;  // role -> name in model.prompts or a literal
  double weight = 1.0;
  std::optional<int64_t> limit;
  bool streaming = false;
  int64_t shuffle_buffer = 10000;
  bool has_own_loss = false;
  std::string source;    // "file:line" of the recipe, for messages
  std::string key_path;  // "data.train.0", for messages
};

struct DataConfig {
  std::vector<DatasetConfig> train;
  std::vector<DatasetConfig> eval;
};

}  // namespace stft::data
