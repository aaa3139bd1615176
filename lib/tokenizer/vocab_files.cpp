#include "tokenizer/vocab_files.h"

#include <fmt/format.h>

#include <optional>
#include <string_view>

#include "base/error.h"
#include "io/file.h"
#include "tokenizer/unicode.h"

namespace stft::tokenizer {
namespace {

using io::Json;

constexpr std::size_t kMaxLineBytes = std::size_t{64} << 10;

// The lines of a file, without "\n" or "\r\n".
class Lines {
 public:
  explicit Lines(const std::string& path) : path_(path), file_(path), rest_(file_.text()) {}

  std::optional<std::string_view> next() {
    if (rest_.empty()) {
      return std::nullopt;
    }
    ++number_;
    const std::size_t newline = rest_.find('\n');
    std::string_view line = rest_.substr(0, newline);
    rest_.remove_prefix(newline == std::string_view::npos ? rest_.size() : newline + 1);
    if (line.ends_with('\r')) {
      line.remove_suffix(1);
    }
    if (line.size() > kMaxLineBytes) {
      fail(fmt::format("a line of {} bytes is no token (limit {})", line.size(), kMaxLineBytes));
    }
    if (replace_invalid_utf8(line)) {
      fail("not valid UTF-8");
    }
    return line;
  }

  std::size_t number() const { return number_; }

  [[noreturn]] void fail(const std::string& what) const {
    throw UserError(fmt::format("{}:{}: {}", path_, number_, what));
  }

 private:
  const std::string& path_;
  io::MappedFile file_;
  std::string_view rest_;
  std::size_t number_ = 0;
};

std::string_view without_trailing_blanks(std::string_view line) {
  while (!line.empty()) {
    const char32_t last = decode_char_before(line, line.size());
    if (!has_flag(last, kWhiteSpace)) {
      break;
    }
    line.remove_suffix(utf8_length(last));
  }
  return line;
}

}  // namespace

Json read_vocab_txt(const std::string& path) {
  Json vocabulary = Json::object();
  Lines lines(path);
  while (const auto line = lines.next()) {
    const std::size_t id = lines.number() - 1;
    const std::string token(without_trailing_blanks(*line));
    const auto [entry, is_new] = vocabulary.emplace(token, id);
    if (!is_new && !token.empty()) {
      lines.fail(fmt::format("the token '{}' stands in line {} already", token, entry->get<std::size_t>() + 1));
    }
    *entry = id;
  }
  if (vocabulary.empty()) {
    throw UserError(path + ": holds no token");
  }
  return vocabulary;
}

Json read_vocab_json(const std::string& path) {
  Json vocabulary = io::read_json_file(path);
  if (!vocabulary.is_object() || vocabulary.empty()) {
    throw UserError(fmt::format("{}: {} instead of an object of tokens and ids", path,
                                vocabulary.is_object() ? "an empty object" : io::json_type_name(vocabulary)));
  }
  return vocabulary;
}

Json read_merges_txt(const std::string& path, const Json& vocabulary) {
  Json merges = Json::array();
  Lines lines(path);
  const auto check = [&](const std::string& token, const char* what) {
    if (!vocabulary.contains(token)) {
      lines.fail(fmt::format("the merge {} '{}', which the vocabulary lacks", what, token));
    }
  };
  while (const auto line = lines.next()) {
    if (line->starts_with("#version")) {
      continue;
    }
    const std::size_t blank = line->find(' ');
    if (blank == std::string_view::npos || line->find(' ', blank + 1) != std::string_view::npos) {
      lines.fail(fmt::format("'{}' is not two tokens parted by one blank", line->substr(0, 80)));
    }
    const std::string left(line->substr(0, blank));
    const std::string right(line->substr(blank + 1));
    check(left, "names");
    check(right, "names");
    check(left + right, "makes");
    merges.push_back({left, right});
  }
  return merges;
}

}  // namespace stft::tokenizer
