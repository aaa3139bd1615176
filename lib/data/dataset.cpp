#include "data/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "io/file.h"
#include "io/text_table.h"

namespace stft::data {
namespace {

std::string where(const DatasetConfig& config) {
  const std::string prefix = config.source.empty() ? "" : config.source + ": ";
  return prefix + (config.name.empty() ? "data set" : fmt::format("data set '{}'", config.name));
}

void check_config(const DatasetConfig& config) {
  const ColumnMap& columns = config.columns;
  if (columns.anchor.empty()) throw UserError(where(config) + ": columns maps no 'anchor'");
  if (columns.positive.empty()) throw UserError(where(config) + ": columns maps no 'positive'");
  for (const std::string* column : {&columns.text_1, &columns.text_2, &columns.label, &columns.score}) {
    if (!column->empty()) {
      throw UserError(
          fmt::format("{}: the role of column '{}' is not available yet; anchor, positive and negatives are",
                      where(config), *column));
    }
  }
  if (config.streaming) throw UserError(where(config) + ": streaming is not available yet");
}

}  // namespace

// Fills a Dataset row by row.
class DatasetReader {
 public:
  explicit DatasetReader(const DatasetConfig& config) : config_(config), columns_(config.columns) {
    mapped_.insert({columns_.anchor, columns_.positive});
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
    add_cell(io::text_cell(record, columns_.anchor, path));
    add_cell(io::text_cell(record, columns_.positive, path));
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
  // Cells before this one, less two a row for anchor and positive.
  const auto cell = static_cast<std::int64_t>(first_cell_[static_cast<std::size_t>(row)]) + 2 + i;
  return negative_column_.at(static_cast<std::size_t>(cell - 2 * (row + 1)));
}

std::string_view Dataset::negative(std::int64_t row, std::int64_t i) const {
  STFT_CHECK(i >= 0, "a negative's number is not negative");
  return cell(row, i + 2);
}

std::int64_t Dataset::cells(std::int64_t row) const {
  STFT_CHECK(row >= 0 && row < size(), "no such row");
  const auto at = static_cast<std::size_t>(row);
  return static_cast<std::int64_t>(first_cell_[at + 1] - first_cell_[at]);
}

std::string_view Dataset::cell(std::int64_t row, std::int64_t i) const {
  STFT_CHECK(i < cells(row), "no such cell");
  const std::size_t at = first_cell_[static_cast<std::size_t>(row)] + static_cast<std::size_t>(i);
  return std::string_view(arena_).substr(cell_begin_[at], cell_begin_[at + 1] - cell_begin_[at]);
}

}  // namespace stft::data
