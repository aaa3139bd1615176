#include "train/run_log.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace stft::train {
namespace {

namespace fs = std::filesystem;

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string number(double value) {
  return std::isfinite(value) ? fmt::format("{:.9g}", value) : "null";
}

std::string metrics_object(const Metrics& metrics) {
  std::string text = "{";
  for (const auto& [name, value] : metrics) {
    text += (text.size() > 1 ? ", " : "") + quoted(name) + ": " + number(value);
  }
  return text + "}";
}

std::string to_json(const LogValue& value) {
  if (const auto* real = std::get_if<double>(&value)) {
    return number(*real);
  }
  if (const auto* integer = std::get_if<int64_t>(&value)) {
    return std::to_string(*integer);
  }
  if (const auto* text = std::get_if<std::string>(&value)) {
    return quoted(*text);
  }
  return metrics_object(std::get<Metrics>(value));
}

// "x_cosine_accuracy@1" -> "cosine-Accuracy@1", the column names of the peer.
std::string csv_column(const std::string& metric, const std::string& evaluator) {
  std::string name = evaluator.empty() ? metric : metric.substr(evaluator.size() + 1);
  const size_t split = name.find('_');
  std::string kind = name.substr(split + 1);
  if (kind.starts_with("ndcg") || kind.starts_with("mrr") || kind.starts_with("map")) {
    for (char& c : kind) {
      c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    }
  } else {
    kind[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(kind[0])));
  }
  return name.substr(0, split) + "-" + kind;
}

// The peer's column order within one similarity: precision and recall in turn, then mrr, ndcg, map.
constexpr std::array<size_t, eval::kIrMetricCount> kCsvOrder = {0, 1, 2, 3, 4, 8, 5, 9, 6, 10, 7, 11, 13, 12, 14};

Metrics in_csv_order(const Metrics& values) {
  Metrics ordered;
  for (size_t first = 0; first + kCsvOrder.size() <= values.size(); first += kCsvOrder.size()) {
    for (const size_t place : kCsvOrder) {
      ordered.push_back(values[first + place]);
    }
  }
  return ordered;
}

}  // namespace

std::string to_json_line(const LogFields& fields) {
  std::string text = "{";
  for (const auto& [key, value] : fields) {
    text += (text.size() > 1 ? ", " : "") + quoted(key) + ": " + to_json(value);
  }
  return text + "}\n";
}

RunLog::RunLog(std::string output_dir) : output_dir_(std::move(output_dir)) {
  const std::string path = (fs::path(output_dir_) / "log.jsonl").string();
  file_.open(path, std::ios::out | std::ios::trunc);
  if (!file_) {
    throw_errno("opening", path, errno);
  }
}

void RunLog::write(const std::string& event, const LogFields& fields) {
  LogFields all = {{"event", event}};
  all.insert(all.end(), fields.begin(), fields.end());
  file_ << to_json_line(all) << std::flush;
  if (!file_) {
    throw_errno("writing", output_dir_ + "/log.jsonl", errno);
  }
}

void make_output_dir(const std::string& output_dir) {
  std::error_code error;
  fs::create_directories(output_dir, error);
  if (error) {
    throw SystemError("creating directory '" + output_dir + "': " + error.message());
  }
}

void write_evaluation_csv(const std::string& output_dir, const eval::EvaluationResult& result, double epoch,
                          int64_t step) {
  const fs::path folder = fs::path(output_dir) / "eval";
  make_output_dir(folder.string());
  const std::string suffix = result.name.empty() ? "" : "_" + result.name;
  const fs::path path = folder / ("Information-Retrieval_evaluation" + suffix + "_results.csv");
  const bool is_new = !fs::exists(path);
  const Metrics values = in_csv_order(result.values);
  std::ofstream file(path, std::ios::app);
  if (is_new) {
    file << "epoch,steps";
    for (const auto& [name, value] : values) {
      file << "," << csv_column(name, result.name);
    }
    file << "\n";
  }
  file << fmt::format("{:.9g},{}", epoch, step);
  for (const auto& [name, value] : values) {
    file << fmt::format(",{:.9g}", value);
  }
  file << "\n" << std::flush;
  if (!file) {
    throw_errno("writing", path.string(), errno);
  }
}

}  // namespace stft::train
