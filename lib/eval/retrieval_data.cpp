#include "eval/retrieval_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "base/error.h"
#include "eval/scored_pairs.h"
#include "io/file.h"
#include "io/text_table.h"
#include "io/utf8.h"

namespace stft::eval {
namespace {

struct Texts {
  std::vector<std::string> ids;
  std::vector<std::string> texts;
  std::unordered_map<std::string, std::int64_t> index;  // id -> position
};

std::string id_column(const io::Record& record, const TextFileConfig& config) {
  if (!config.id_field.empty()) return config.id_field;
  for (const char* usual : {"_id", "id"}) {
    if (record.values.contains(usual)) return usual;
  }
  throw UserError(fmt::format("{}:{}: neither column '_id' nor 'id' is there; name the id column with 'id'",
                              config.path, record.line));
}

std::string id_of(const io::Record& record, const TextFileConfig& config) {
  const std::string column = id_column(record, config);
  const io::Json& value = io::cell(record, column, config.path);
  if (value.is_number()) return value.dump();
  if (value.is_string()) return value.get<std::string>();
  throw UserError(fmt::format("{}:{}: column '{}' is {}, an id must be a string or a number", config.path, record.line,
                              column, io::json_type_name(value)));
}

// "title text"; a null or missing title is an empty one.
std::string text_of(const io::Record& record, const TextFileConfig& config, bool with_title) {
  const std::string column = config.text_field.empty() ? "text" : config.text_field;
  std::string text(io::text_cell(record, column, config.path));
  if (!with_title || !record.values.contains("title") || record.values["title"].is_null()) return text;
  const std::string_view title = io::text_cell(record, "title", config.path);
  return title.empty() ? text : fmt::format("{} {}", title, text);
}

Texts load_texts(const TextFileConfig& config, bool with_title) {
  Texts loaded;
  io::TextTable table(config.path);
  while (const auto record = table.next()) {
    std::string id = id_of(*record, config);
    if (!loaded.index.emplace(id, static_cast<std::int64_t>(loaded.ids.size())).second) {
      throw UserError(fmt::format("{}:{}: id '{}' is given twice", config.path, record->line, id));
    }
    loaded.ids.push_back(std::move(id));
    loaded.texts.push_back(text_of(*record, config, with_title));
  }
  if (loaded.ids.empty()) throw UserError(fmt::format("{}: no rows", config.path));
  return loaded;
}

struct Judgement {
  std::string query_id, document_id;
  double score = 0.0;
};

std::vector<std::string_view> split(std::string_view line, std::string_view separators, bool merge) {
  std::vector<std::string_view> fields;
  while (true) {
    if (merge) line.remove_prefix(std::min(line.find_first_not_of(separators), line.size()));
    if (merge && line.empty()) return fields;
    const std::size_t end = line.find_first_of(separators);
    fields.push_back(line.substr(0, end));
    if (end == std::string_view::npos) return fields;
    line.remove_prefix(end + 1);
  }
}

// Reads a qrels file line by line; its first line that is not blank decides the format.
class QrelsReader {
 public:
  explicit QrelsReader(const std::string& path) : path_(path), content_(io::read_text_file(path)), rest_(content_) {
    if (rest_.starts_with("\xEF\xBB\xBF")) rest_.remove_prefix(3);
  }

  std::optional<Judgement> next() {
    while (!rest_.empty()) {
      const std::string_view line = take_line();
      if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
      if (io::first_invalid_utf8(line)) fail("not valid UTF-8");
      if (!format_) {
        format_ = detect(line);
        if (*format_ == Format::kBeir) continue;
      }
      return *format_ == Format::kBeir ? beir(line) : trec(line);
    }
    return std::nullopt;
  }

  std::int64_t line() const { return line_; }

  [[noreturn]] void fail(std::string_view problem) const {
    throw UserError(fmt::format("{}:{}: {}", path_, line_, problem));
  }

 private:
  enum class Format { kBeir, kTrec };

  std::string_view take_line() {
    const std::size_t length = std::min(rest_.find('\n'), rest_.size());
    std::string_view line = rest_.substr(0, length);
    rest_.remove_prefix(std::min(length + 1, rest_.size()));
    ++line_;
    if (line.ends_with('\r')) line.remove_suffix(1);
    return line;
  }

  Format detect(std::string_view first_line) const {
    const auto beir_fields = split(first_line, "\t", false);
    if (beir_fields.size() == 3) {
      if (parse_score(beir_fields[2])) fail("the header row (query-id, corpus-id, score) is missing");
      return Format::kBeir;
    }
    if (split(first_line, " \t", true).size() == 4) return Format::kTrec;
    fail("neither a BEIR header (3 columns between tabs) nor a TREC row (4 columns between blanks)");
  }

  Judgement beir(std::string_view line) const {
    const auto fields = split(line, "\t", false);
    if (fields.size() != 3) fail(fmt::format("{} columns between tabs, there must be 3", fields.size()));
    return {std::string(fields[0]), std::string(fields[1]), score(fields[2])};
  }

  Judgement trec(std::string_view line) const {
    const auto fields = split(line, " \t", true);
    if (fields.size() != 4) fail(fmt::format("{} columns between blanks, there must be 4", fields.size()));
    return {std::string(fields[0]), std::string(fields[2]), score(fields[3])};
  }

  double score(std::string_view text) const {
    const auto value = parse_score(text);
    if (!value) fail(fmt::format("score '{}' is not a number", text.substr(0, 100)));
    return *value;
  }

  std::string path_;
  std::string content_;
  std::string_view rest_;
  std::int64_t line_ = 0;
  std::optional<Format> format_;
};

// Judgements of one query by document id; scores of 0 and less stay in, to tell contradictions.
using Judged = std::unordered_map<std::string, double>;

std::vector<Judged> load_qrels(const std::string& path, const Texts& queries, RetrievalData& data) {
  std::vector<Judged> judged(queries.ids.size());
  QrelsReader reader(path);
  while (const auto row = reader.next()) {
    const auto query = queries.index.find(row->query_id);
    if (query == queries.index.end()) {
      ++data.unknown_query_rows;
      continue;
    }
    const auto [entry, is_new] = judged[static_cast<std::size_t>(query->second)].emplace(row->document_id, row->score);
    if (!is_new && entry->second != row->score) {
      reader.fail(fmt::format("query '{}' and document '{}' are judged twice, {} and {}", row->query_id,
                              row->document_id, entry->second, row->score));
    }
  }
  return judged;
}

std::vector<RelevantDocument> relevant_documents(const Judged& judged, const Texts& corpus, RetrievalData& data) {
  std::vector<RelevantDocument> relevant;
  for (const auto& [id, score] : judged) {
    const auto document = corpus.index.find(id);
    const bool is_known = document != corpus.index.end();
    if (!is_known) ++data.unknown_document_rows;
    if (score > 0.0) relevant.push_back({is_known ? document->second : kNotInCorpus, score});
  }
  std::sort(relevant.begin(), relevant.end(), [](const RelevantDocument& a, const RelevantDocument& b) {
    return a.corpus_index != b.corpus_index ? a.corpus_index < b.corpus_index : a.relevance > b.relevance;
  });
  return relevant;
}

std::vector<std::int64_t> byte_order(const std::vector<std::string>& ids) {
  std::vector<std::int64_t> sorted(ids.size());
  std::iota(sorted.begin(), sorted.end(), 0);
  std::sort(sorted.begin(), sorted.end(), [&](std::int64_t a, std::int64_t b) {
    return ids[static_cast<std::size_t>(a)] < ids[static_cast<std::size_t>(b)];
  });
  std::vector<std::int64_t> position(ids.size());
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    position[static_cast<std::size_t>(sorted[i])] = static_cast<std::int64_t>(i);
  }
  return position;
}

}  // namespace

RetrievalData load_retrieval_data(const EvaluatorConfig& config) {
  RetrievalData data;
  Texts queries = load_texts(config.queries, false);
  Texts corpus = load_texts(config.corpus, true);
  const std::vector<Judged> judged = load_qrels(config.qrels_path, queries, data);
  bool is_any_known = false;
  for (std::size_t i = 0; i < queries.ids.size(); ++i) {
    std::vector<RelevantDocument> relevant = relevant_documents(judged[i], corpus, data);
    if (relevant.empty()) {
      ++data.dropped_queries;
      continue;
    }
    is_any_known = is_any_known || relevant.back().corpus_index != kNotInCorpus;
    const auto identical = corpus.index.find(queries.ids[i]);
    data.identical_document.push_back(identical == corpus.index.end() ? kNotInCorpus : identical->second);
    data.query_ids.push_back(std::move(queries.ids[i]));
    data.queries.push_back(std::move(queries.texts[i]));
    data.relevant.push_back(std::move(relevant));
  }
  if (!is_any_known) {
    throw UserError(
        fmt::format("{}: no query of '{}' has a relevant document in '{}' ({} rows name unknown queries, "
                    "{} unknown documents)",
                    config.qrels_path, config.queries.path, config.corpus.path, data.unknown_query_rows,
                    data.unknown_document_rows));
  }
  data.id_order = byte_order(corpus.ids);
  data.corpus_ids = std::move(corpus.ids);
  data.corpus = std::move(corpus.texts);
  return data;
}

}  // namespace stft::eval
