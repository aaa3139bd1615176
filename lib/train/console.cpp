#include "train/console.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/log.h"

namespace stft::train {
namespace {

bool has_equal_columns(const eval::NamedValues& a, const eval::NamedValues& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const auto& left, const auto& right) { return left.first == right.first; });
}

// Columns padded to their widest cell; the first to the left, the others to the right.
std::string render(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows.front().size(), 0);
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string text;
  for (const auto& row : rows) {
    text += fmt::format("{}  {:<{}}", text.empty() ? "" : "\n", row.front(), widths.front());
    for (size_t i = 1; i < row.size(); ++i) {
      text += fmt::format("  {:>{}}", row[i], widths[i]);
    }
  }
  return text;
}

}  // namespace

std::string format_duration(double seconds) {
  const auto whole = static_cast<int64_t>(std::lround(std::max(0.0, seconds)));
  if (whole >= 3600) {
    return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  }
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

std::string format_count(int64_t count) {
  const std::string digits = std::to_string(count);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) {
      text += ',';
    }
    text += digits[i];
  }
  return text;
}

void show_progress(const Progress& progress, bool is_milestone) {
  const std::string text =
      fmt::format("step {}/{}  loss {:.4f}  lr {:.2e}  {:.1f} samples/s  ETA {}", progress.step, progress.total_steps,
                  progress.loss, progress.learning_rate, progress.samples_per_s, format_duration(progress.eta_s));
  if (log::settings().is_terminal) {
    log::live(text);
  } else if (is_milestone) {
    log::info(text);
  }
}

std::string evaluation_table(const std::vector<eval::EvaluationResult>& results) {
  std::string text;
  for (size_t first = 0; first < results.size();) {
    std::vector<std::vector<std::string>> rows = {{"evaluator"}};
    for (const auto& [label, value] : results[first].shown) {
      rows.front().push_back(label);
    }
    rows.front().emplace_back("rows");
    size_t i = first;
    for (; i < results.size() && has_equal_columns(results[i].shown, results[first].shown); ++i) {
      std::vector<std::string> row = {results[i].name.empty() ? "-" : results[i].name};
      for (const auto& [label, value] : results[i].shown) {
        row.push_back(fmt::format("{:.4f}", value));
      }
      row.push_back(format_count(results[i].rows));
      rows.push_back(std::move(row));
    }
    text += (text.empty() ? "" : "\n") + render(rows);
    first = i;
  }
  return text;
}

std::string comparison_table(const std::vector<Comparison>& comparisons) {
  std::vector<std::vector<std::string>> rows = {
      {"metric", "before", "after", "change", "95% interval (paired bootstrap)"}};
  for (const Comparison& comparison : comparisons) {
    const auto& difference = comparison.difference;
    rows.push_back({comparison.metric, fmt::format("{:.4f}", comparison.before),
                    fmt::format("{:.4f}", comparison.after),
                    fmt::format("{:+.4f}", comparison.after - comparison.before),
                    difference ? fmt::format("[{:+.4f}, {:+.4f}]", difference->low, difference->high) : "-"});
  }
  return render(rows);
}

}  // namespace stft::train
