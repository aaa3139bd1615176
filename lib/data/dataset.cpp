#include "data/dataset.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <optional>
#include <set>
#include <span>

#include "base/error.h"
#include "io/checksum.h"
#include "io/file.h"
#include "io/text_table.h"

namespace stft::data {

std::array<std::string, 2> text_roles(const ColumnMap& columns) {
  return columns.text_1.empty() && columns.text_2.empty() ? std::array<std::string, 2>{"anchor", "positive"}
                                                          : std::array<std::string, 2>{"text_1", "text_2"};
}

namespace {

std::string where(const DatasetConfig& config) {
  const std::string prefix = config.source.empty() ? "" : config.source + ": ";
  return prefix + (config.name.empty() ? "data set" : fmt::format("data set '{}'", config.name));
}

// The columns of those roles.
std::array<std::string, 2> text_columns(const ColumnMap& columns) {
  return text_roles(columns).front() == "text_1" ? std::array{columns.text_1, columns.text_2}
                                                 : std::array{columns.anchor, columns.positive};
}

void check_config(const DatasetConfig& config) {
  const ColumnMap& columns = config.columns;
  const bool is_pair = text_roles(columns).front() == "text_1";
  const bool has_negatives = !columns.negative.empty() || !columns.numbered_negatives.empty();
  if (is_pair && (!columns.anchor.empty() || !columns.positive.empty() || has_negatives)) {
    throw UserError(where(config) + ": columns maps both text_1, text_2 and anchor, positive, negatives; one or other");
  }
  const auto [first, second] = text_columns(columns);
  if (first.empty()) throw UserError(fmt::format("{}: columns maps no '{}'", where(config), text_roles(columns)[0]));
  if (second.empty()) throw UserError(fmt::format("{}: columns maps no '{}'", where(config), text_roles(columns)[1]));
  if (!columns.label.empty()) {
    throw UserError(fmt::format("{}: the role of column '{}' is not available yet", where(config), columns.label));
  }
  if (config.streaming) throw UserError(where(config) + ": streaming is not available yet");
}

[[noreturn]] void refuse_score(const io::Record& record, const std::string& column, const std::string& path,
                               const std::string& problem) {
  throw UserError(fmt::format("{}:{}: column '{}' {}", path, record.line, column, problem));
}

// Blanks around the number and a sign before it are let pass.
std::optional<double> parse_number(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return std::nullopt;
  text = text.substr(first, text.find_last_not_of(" \t") + 1 - first);
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc::result_out_of_range) return std::numeric_limits<double>::infinity();
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

float score_cell(const io::Record& record, const std::string& column, const std::string& path) {
  const io::Json& value = io::cell(record, column, path);
  if (value.is_null()) refuse_score(record, column, path, "is null, it must be a number");
  if (!value.is_number() && !value.is_string()) {
    refuse_score(record, column, path, fmt::format("is {}, it must be a number", io::json_type_name(value)));
  }
  const auto number =
      value.is_number() ? std::optional(value.get<double>()) : parse_number(value.get_ref<const std::string&>());
  const std::string shown = value.dump().substr(0, 80);
  if (!number) refuse_score(record, column, path, fmt::format("holds {}, it must be a number", shown));
  if (!(std::fabs(*number) <= std::numeric_limits<float>::max())) {
    refuse_score(record, column, path, fmt::format("holds {}, it must be a finite number of 32 bits", shown));
  }
  return static_cast<float>(*number);
}

}  // namespace

// Fills a Dataset row by row.
class DatasetReader {
 public:
  explicit DatasetReader(const DatasetConfig& config)
      : config_(config), columns_(config.columns), text_columns_(text_columns(config.columns)) {
    mapped_.insert(text_columns_.begin(), text_columns_.end());
    if (!columns_.score.empty()) mapped_.insert(columns_.score);
    if (!columns_.negative.empty()) mapped_.insert(columns_.negative);
    mapped_.insert(columns_.numbered_negatives.begin(), columns_.numbered_negatives.end());
  }

  Dataset read() {
    const std::vector<std::string> paths = io::expand_paths(config_.paths);
    for (const std::string& path : paths) {
      if (is_full()) break;
      read_file(path);
    }
    if (dataset_.size() == 0) {
      throw UserError(fmt::format("{}: no rows in {}", where(config_), fmt::join(config_.paths, ", ")));
    }
    dataset_.name_ = config_.name.empty() ? std::filesystem::path(paths.front()).stem().string() : config_.name;
    dataset_.ignored_columns_.assign(ignored_.begin(), ignored_.end());
    return std::move(dataset_);
  }

 private:
  bool is_full() const { return config_.limit && dataset_.size() >= *config_.limit; }

  void read_file(const std::string& path) {
    io::TextTable table(path);
    while (!is_full()) {
      const auto record = table.next();
      if (!record) return;
      add_row(*record, path);
    }
  }

  void add_row(const io::Record& record, const std::string& path) {
    for (const std::string& column : text_columns_) add_cell(io::text_cell(record, column, path));
    if (!columns_.score.empty()) dataset_.scores_.push_back(score_cell(record, columns_.score, path));
    if (!columns_.negative.empty()) add_negative(record, path);
    for (std::size_t i = 0; i < columns_.numbered_negatives.size(); ++i) {
      const std::string& column = columns_.numbered_negatives[i];
      if (!io::cell(record, column, path).is_null()) {
        add_cell(io::text_cell(record, column, path));
        dataset_.negative_column_.push_back(static_cast<std::uint16_t>(i));
      }
    }
    dataset_.first_cell_.push_back(dataset_.cell_begin_.size() - 1);
    dataset_.max_negatives_ = std::max(dataset_.max_negatives_, dataset_.negatives(dataset_.size() - 1));
    for (const auto& [column, value] : record.values.get_ref<const io::Json::object_t&>()) {
      if (!mapped_.contains(column)) ignored_.insert(column);
    }
  }

  void add_negative(const io::Record& record, const std::string& path) {
    const io::Json& value = io::cell(record, columns_.negative, path);
    if (!value.is_array()) {
      if (!value.is_null() && !value.is_string()) {
        throw UserError(fmt::format("{}:{}: column '{}' is {}, it must be a string or a list of strings", path,
                                    record.line, columns_.negative, io::json_type_name(value)));
      }
      add_cell(io::text_cell(record, columns_.negative, path));
      return;
    }
    for (std::size_t i = 0; i < value.size(); ++i) {
      if (!value[i].is_string()) {
        throw UserError(fmt::format("{}:{}: column '{}' element {} is {}, it must be a string", path, record.line,
                                    columns_.negative, i, io::json_type_name(value[i])));
      }
      add_cell(value[i].get_ref<const std::string&>());
    }
  }

  void add_cell(std::string_view text) {
    dataset_.arena_ += text;
    dataset_.cell_begin_.push_back(dataset_.arena_.size());
  }

  const DatasetConfig& config_;
  const ColumnMap& columns_;
  const std::array<std::string, 2> text_columns_;
  std::set<std::string, std::less<>> mapped_;
  std::set<std::string, std::less<>> ignored_;
  Dataset dataset_;
};

Dataset Dataset::load(const DatasetConfig& config) {
  check_config(config);
  return DatasetReader(config).read();
}

std::int64_t Dataset::negative_column(std::int64_t row, std::int64_t i) const {
  if (negative_column_.empty()) return i;
  // Cells before this one, less those of a row that are no negatives.
  const auto cell = static_cast<std::int64_t>(first_cell_[static_cast<std::size_t>(row)]) + kColumns + i;
  return negative_column_.at(static_cast<std::size_t>(cell - kColumns * (row + 1)));
}

std::string Dataset::fingerprint() const {
  io::Checksum checksum;
  const auto add = [&](const auto& values) { checksum.update(std::as_bytes(std::span(values.data(), values.size()))); };
  add(arena_);
  add(cell_begin_);
  add(first_cell_);
  add(negative_column_);
  add(scores_);
  return checksum.text();
}

std::int64_t Dataset::texts(std::int64_t row) const {
  STFT_CHECK(row >= 0 && row < size(), "no such row");
  const auto at = static_cast<std::size_t>(row);
  return static_cast<std::int64_t>(first_cell_[at + 1] - first_cell_[at]);
}

std::string_view Dataset::text(std::int64_t row, std::int64_t column) const {
  STFT_CHECK(column >= 0 && column < texts(row), "no such text");
  const std::size_t at = first_cell_[static_cast<std::size_t>(row)] + static_cast<std::size_t>(column);
  return std::string_view(arena_).substr(cell_begin_[at], cell_begin_[at + 1] - cell_begin_[at]);
}

}  // namespace stft::data
