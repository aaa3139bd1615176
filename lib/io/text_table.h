// Records of .jsonl, .csv and .tsv files, one after another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/file.h"
#include "io/json.h"

namespace stft::io {

struct Record {
  std::int64_t line = 0;  // from 1: where the record starts
  Json values;            // an object: column -> value; in csv and tsv every value is a string
};

// Reads a mapped file record by record. By the extension:
// - .jsonl (also .ndjson): a JSON object a line;
// - .csv: RFC 4180 with a header row; quoted fields may hold commas, quotes and line breaks;
// - .tsv: a header row, fields between tabs, no quoting.
// Empty lines (in .jsonl also lines of blanks) are skipped, CR LF counts as one line end, a byte order mark at the
// start is skipped.
class TextTable {
 public:
  // UserError: the file cannot be opened, has another extension, or its header row is missing, malformed or names a
  // column twice.
  explicit TextTable(const std::string& path);

  // The next record, nothing at the end. UserError "path:line: ..." for a line that is not a JSON object, not UTF-8, or
  // has another number of fields than the header.
  std::optional<Record> next();

  const std::string& path() const { return path_; }

 private:
  enum class Format { kJsonLines, kCsv, kTsv };

  [[noreturn]] void fail(std::int64_t line, std::string_view problem) const;
  void read_header();
  std::optional<std::string_view> next_line();
  std::optional<std::vector<std::string>> next_row();
  std::vector<std::string> csv_row();
  std::string quoted_field(std::int64_t first_line);
  void check_utf8(std::string_view text) const;

  std::string path_;
  MappedFile file_;
  Format format_ = Format::kJsonLines;
  std::vector<std::string> columns_;
  std::size_t position_ = 0;      // of the next unread byte
  std::int64_t line_ = 1;         // its line
  std::int64_t record_line_ = 1;  // where the last record started
};

// The text in a column of a record. UserError "path:line: column 'c' is missing", "... is null" or "... is an integer,
// it must be a string". The view lives as long as the record.
std::string_view text_cell(const Record& record, const std::string& column, const std::string& path);

// The value in a column; only a missing key is an error.
const Json& cell(const Record& record, const std::string& column, const std::string& path);

}  // namespace stft::io
