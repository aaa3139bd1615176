#include "io/text_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "io/utf8.h"

namespace stft::io {
namespace {

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

std::vector<std::string> split_at_tabs(std::string_view line) {
  std::vector<std::string> fields;
  while (true) {
    const std::size_t tab = line.find('\t');
    fields.emplace_back(line.substr(0, tab));
    if (tab == std::string_view::npos) return fields;
    line.remove_prefix(tab + 1);
  }
}

[[noreturn]] void throw_cell(const Record& record, const std::string& column, const std::string& path,
                             std::string_view problem) {
  throw UserError(fmt::format("{}:{}: column '{}' is {}", path, record.line, column, problem));
}

}  // namespace

TextTable::TextTable(const std::string& path) : path_(path), file_(path) {
  const std::size_t dot = path.find_last_of("./");
  const std::string extension = dot == std::string::npos || path[dot] == '/' ? "" : path.substr(dot);
  if (extension == ".csv") {
    format_ = Format::kCsv;
  } else if (extension == ".tsv") {
    format_ = Format::kTsv;
  } else if (extension == ".json" || extension == ".parquet" || extension == ".gz") {
    throw UserError(
        fmt::format("{}: files ending in {} are not available yet; .jsonl, .csv and .tsv are", path, extension));
  } else if (extension != ".jsonl" && extension != ".ndjson") {
    throw UserError(fmt::format("{}: unknown kind of file; it must end in .jsonl, .csv or .tsv", path));
  }
  if (file_.text().starts_with("\xEF\xBB\xBF")) position_ = 3;
  if (format_ != Format::kJsonLines) read_header();
}

void TextTable::fail(std::int64_t line, std::string_view problem) const {
  throw UserError(fmt::format("{}:{}: {}", path_, line, problem));
}

void TextTable::check_utf8(std::string_view text) const {
  const auto offset = first_invalid_utf8(text);
  if (!offset) return;
  const auto newlines = std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(*offset), '\n');
  fail(record_line_ + newlines, "not valid UTF-8");
}

void TextTable::read_header() {
  auto columns = next_row();
  if (!columns) fail(1, "the header row is missing");
  columns_ = std::move(*columns);
  std::vector<std::string> sorted = columns_;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) fail(record_line_, fmt::format("the header names column '{}' twice", *twice));
}

// The line at position_ without its end; sets record_line_.
std::optional<std::string_view> TextTable::next_line() {
  std::string_view rest = file_.text();
  rest.remove_prefix(position_);
  if (rest.empty()) return std::nullopt;
  const std::size_t length = std::min(rest.find('\n'), rest.size());
  position_ += std::min(length + 1, rest.size());
  record_line_ = line_++;
  std::string_view line = rest.substr(0, length);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

// The fields of the next row that is not empty.
std::optional<std::vector<std::string>> TextTable::next_row() {
  while (true) {
    const std::size_t start = position_;
    const std::int64_t start_line = line_;
    const auto line = next_line();
    if (!line) return std::nullopt;
    if (line->empty()) continue;
    if (format_ == Format::kTsv) {
      check_utf8(*line);
      return split_at_tabs(*line);
    }
    position_ = start;
    line_ = start_line;
    std::vector<std::string> fields = csv_row();
    check_utf8(file_.text().substr(start, position_ - start));
    return fields;
  }
}

// One row of RFC 4180 from position_ on, its line end included.
std::vector<std::string> TextTable::csv_row() {
  const std::string_view text = file_.text();
  const std::int64_t first_line = line_;
  std::vector<std::string> fields;
  while (true) {
    std::string field;
    if (position_ < text.size() && text[position_] == '"') {
      field = quoted_field(first_line);
    } else {
      const std::size_t end = std::min(text.find_first_of(",\n", position_), text.size());
      field = text.substr(position_, end - position_);
      position_ = end;
      if (field.ends_with('\r') && (end == text.size() || text[end] == '\n')) field.pop_back();
    }
    fields.push_back(std::move(field));
    if (position_ < text.size() && text[position_] == '\r' &&
        (position_ + 1 == text.size() || text[position_ + 1] == '\n')) {
      ++position_;
    }
    if (position_ == text.size()) break;
    const char separator = text[position_++];
    if (separator == '\n') {
      ++line_;
      break;
    }
    if (separator != ',') fail(line_, "text after the closing quote of a field");
  }
  record_line_ = first_line;
  return fields;
}

// The content of the quoted field at position_, which moves past the closing quote.
std::string TextTable::quoted_field(std::int64_t first_line) {
  const std::string_view text = file_.text();
  std::string field;
  ++position_;
  while (true) {
    const std::size_t quote = text.find('"', position_);
    if (quote == std::string_view::npos) fail(first_line, "a quoted field does not end");
    const std::string_view piece = text.substr(position_, quote - position_);
    line_ += std::count(piece.begin(), piece.end(), '\n');
    field += piece;
    position_ = quote + 1;
    if (position_ == text.size() || text[position_] != '"') return field;
    field += '"';
    ++position_;
  }
}

std::optional<Record> TextTable::next() {
  if (format_ == Format::kJsonLines) {
    while (const auto line = next_line()) {
      if (is_blank(*line)) continue;
      JsonResult result = try_parse_json(*line);
      if (result.failure) {
        fail(record_line_,
             fmt::format("not a JSON object: {} (column {})", result.failure->reason, result.failure->offset + 1));
      }
      if (!result.value.is_object()) {
        fail(record_line_, fmt::format("not a JSON object: {}", json_type_name(result.value)));
      }
      return Record{record_line_, std::move(result.value)};
    }
    return std::nullopt;
  }
  auto fields = next_row();
  if (!fields) return std::nullopt;
  if (fields->size() != columns_.size()) {
    fail(record_line_, fmt::format("{} fields, the header has {}", fields->size(), columns_.size()));
  }
  Record record{record_line_, Json(Json::value_t::object)};
  for (std::size_t i = 0; i < columns_.size(); ++i) record.values.emplace(columns_[i], std::move((*fields)[i]));
  return record;
}

const Json& cell(const Record& record, const std::string& column, const std::string& path) {
  const auto found = record.values.find(column);
  if (found != record.values.end()) return *found;
  std::string present;
  for (const auto& [key, value] : record.values.items()) {
    if (present.size() > 200) break;
    present += (present.empty() ? "" : ", ") + key;
  }
  throw_cell(record, column, path, fmt::format("missing; the columns are: {}", present));
}

std::string_view text_cell(const Record& record, const std::string& column, const std::string& path) {
  const Json& value = cell(record, column, path);
  if (value.is_null()) throw_cell(record, column, path, "null");
  if (!value.is_string()) throw_cell(record, column, path, json_type_name(value) + ", it must be a string");
  return value.get_ref<const std::string&>();
}

}  // namespace stft::io
