#include "train/run_log.h"

#include <fmt/format.h>

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

void write_evaluation_csv(const std::string& output_dir, const eval::CsvRow& row, double epoch, int64_t step) {
  const fs::path folder = fs::path(output_dir) / "eval";
  make_output_dir(folder.string());
  const fs::path path = folder / row.file;
  const bool is_new = !fs::exists(path);
  std::ofstream file(path, std::ios::app);
  if (is_new) {
    file << "epoch,steps";
    for (const auto& [column, value] : row.cells) {
      file << "," << column;
    }
    file << "\n";
  }
  file << fmt::format("{:.9g},{}", epoch, step);
  for (const auto& [column, value] : row.cells) {
    file << fmt::format(",{:.9g}", value);
  }
  file << "\n" << std::flush;
  if (!file) {
    throw_errno("writing", path.string(), errno);
  }
}

}  // namespace stft::train
