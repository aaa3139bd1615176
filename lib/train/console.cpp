#include "train/console.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/log.h"

namespace stft::train {
namespace {

constexpr std::array<const char*, 5> kShown = {"ndcg@10", "accuracy@1", "recall@10", "mrr@10", "map@100"};

std::string value_of(const eval::EvaluationResult& result, const std::string& metric) {
  const std::string prefix = result.primary.substr(0, result.primary.rfind('_') + 1);
  for (const auto& [name, value] : result.values) {
    if (name == prefix + metric) {
      return fmt::format("{:.4f}", value);
    }
  }
  return "-";
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
  std::vector<std::vector<std::string>> rows = {{"evaluator"}};
  rows.front().insert(rows.front().end(), kShown.begin(), kShown.end());
  rows.front().emplace_back("queries");
  for (const auto& result : results) {
    std::vector<std::string> row = {result.name.empty() ? "-" : result.name};
    for (const char* metric : kShown) {
      row.push_back(value_of(result, metric));
    }
    row.push_back(format_count(result.queries));
    rows.push_back(std::move(row));
  }
  return render(rows);
}

std::string comparison_table(const std::vector<Comparison>& comparisons) {
  std::vector<std::vector<std::string>> rows = {
      {"metric", "before", "after", "change", "95% interval (paired bootstrap)"}};
  for (const Comparison& comparison : comparisons) {
    rows.push_back({comparison.metric, fmt::format("{:.4f}", comparison.before),
                    fmt::format("{:.4f}", comparison.after),
                    fmt::format("{:+.4f}", comparison.difference.mean_difference),
                    fmt::format("[{:+.4f}, {:+.4f}]", comparison.difference.low, comparison.difference.high)});
  }
  return render(rows);
}

}  // namespace stft::train
