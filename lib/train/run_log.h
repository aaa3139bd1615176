// log.jsonl and the evaluators' CSV files of a run. Written by rank 0.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "eval/evaluator.h"

namespace stft::train {

// A number (9 significant digits; null when not finite), an integer, a text, or one object of metrics or of lists.
using Metrics = eval::NamedValues;
using IntegerLists = std::vector<std::pair<std::string, std::vector<int64_t>>>;
using LogValue = std::variant<double, int64_t, std::string, Metrics, IntegerLists>;
using LogFields = std::vector<std::pair<std::string, LogValue>>;

class RunLog {
 public:
  enum class Start { kAnew, kAppend };

  // `output_dir`/log.jsonl. SystemError when it cannot be written.
  RunLog(std::string output_dir, Start start);

  // One line {"event": event, ...}, handed to the system when the call returns.
  void write(const std::string& event, const LogFields& fields);

 private:
  std::string output_dir_;
  std::ofstream file_;
};

// Where a log is cut.
struct LogCut {
  int64_t step = 0;
  bool keeps_evaluation = true;  // the one at this step; false: it will be done again
};

// Drops what came after the cut from log.jsonl and eval/*.csv below `output_dir`, and what a run writes at its end.
// SystemError when that fails.
void cut_log(const std::string& output_dir, const LogCut& cut);

// Appends a row to eval/`row.file` below `output_dir`, with a header when the file is new.
void write_evaluation_csv(const std::string& output_dir, const eval::CsvRow& row, double epoch, int64_t step);

// One JSON object on one line, keys in the given order.
std::string to_json_line(const LogFields& fields);

}  // namespace stft::train
