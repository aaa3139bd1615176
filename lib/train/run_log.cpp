#include "train/run_log.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "io/directory.h"
#include "io/file.h"

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

std::string lists_object(const IntegerLists& lists) {
  std::string text = "{";
  for (const auto& [key, values] : lists) {
    text += fmt::format("{}{}: [{}]", text.size() > 1 ? ", " : "", quoted(key), fmt::join(values, ", "));
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
  if (const auto* lists = std::get_if<IntegerLists>(&value)) {
    return lists_object(*lists);
  }
  return metrics_object(std::get<Metrics>(value));
}

// Rewrites a text file with the lines that `is_kept`; a last line without its end is what a killed process left.
void keep_lines(const fs::path& path, const std::function<bool(const std::string&)>& is_kept) {
  const std::string text = io::read_text_file(path.string());
  std::string kept;
  size_t begin = 0;
  for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
    const std::string line = text.substr(begin, end - begin);
    kept += is_kept(line) ? line + "\n" : "";
    begin = end + 1;
  }
  if (kept != text) {
    io::write_file(path.string(), kept);
  }
}

bool is_log_line_kept(const std::string& line, const LogCut& cut) {
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || json.contains("reloaded") || json.value("event", "") == "end") {
    return false;
  }
  const auto found = json.find("step");
  if (found == json.end() || !found->is_number_integer()) {
    return true;
  }
  const bool is_kept_step = json.value("event", "") != "eval" || cut.keeps_evaluation;
  const auto step = found->get<int64_t>();
  return step < cut.step || (step == cut.step && is_kept_step);
}

// "epoch,steps,...": a header or a row.
bool is_csv_line_kept(const std::string& line, const LogCut& cut) {
  const size_t comma = line.find(',');
  if (comma == std::string::npos) {
    return false;
  }
  int64_t of_line = 0;
  const char* end = line.data() + line.size();
  const auto [stop, error] = std::from_chars(line.data() + comma + 1, end, of_line);
  return error != std::errc() || of_line < cut.step || (of_line == cut.step && cut.keeps_evaluation);
}

}  // namespace

std::string to_json_line(const LogFields& fields) {
  std::string text = "{";
  for (const auto& [key, value] : fields) {
    text += (text.size() > 1 ? ", " : "") + quoted(key) + ": " + to_json(value);
  }
  return text + "}\n";
}

RunLog::RunLog(std::string output_dir, Start start) : output_dir_(std::move(output_dir)) {
  const std::string path = (fs::path(output_dir_) / "log.jsonl").string();
  file_.open(path, std::ios::out | (start == Start::kAnew ? std::ios::trunc : std::ios::app));
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

void cut_log(const std::string& output_dir, const LogCut& cut) {
  const fs::path log = fs::path(output_dir) / "log.jsonl";
  std::error_code error;
  fs::remove(log.string() + ".tmp", error);  // of a process that was killed here; in nobody's way
  if (fs::exists(log)) {
    keep_lines(log, [&](const std::string& line) { return is_log_line_kept(line, cut); });
  }
  const fs::path folder = fs::path(output_dir) / "eval";
  for (const std::string& name : io::directory_entries(folder.string())) {
    if (name.ends_with(".csv")) {
      keep_lines(folder / name, [&](const std::string& line) { return is_csv_line_kept(line, cut); });
    }
  }
}

void write_evaluation_csv(const std::string& output_dir, const eval::CsvRow& row, double epoch, int64_t step) {
  const fs::path folder = fs::path(output_dir) / "eval";
  io::make_directories(folder.string());
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
