// Texts of a file: lines or a column.
#include "data/text_list.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "io/temporary_directory.h"

namespace stft::data {
namespace {

using Catch::Matchers::Contains;

std::vector<std::string> texts_of(const std::string& path, const std::optional<std::string>& column = {}) {
  TextList first = TextList::load(path, column);
  const TextList list = std::move(first);  // views hold when the list moves
  return {list.texts().begin(), list.texts().end()};
}

std::string refusal(const std::string& path, const std::optional<std::string>& column = {}) {
  return test::message_of<UserError>([&] { TextList::load(path, column); });
}

}  // namespace

TEST_CASE("lines are exactly the bytes between newlines", "[text_list]") {
  const test::TemporaryDirectory directory;
  const auto lines = [&](const std::string& content) { return texts_of(directory.write("t.txt", content)); };
  using Texts = std::vector<std::string>;
  CHECK(lines("") == Texts{});
  CHECK(lines("\n") == Texts{""});
  CHECK(lines("a") == Texts{"a"});
  CHECK(lines("a\n") == Texts{"a"});
  CHECK(lines("a\n\n b \n\n") == Texts{"a", "", " b ", ""});
  CHECK(lines("a\r\nb\r") == Texts{"a\r", "b\r"});
  CHECK(lines("\xEF\xBB\xBFz\n") == Texts{"\xEF\xBB\xBFz"});
  CHECK(lines(std::string("n\0l\n", 4)) == Texts{std::string("n\0l", 3)});
}

TEST_CASE("cells of a column are the texts of a table", "[text_list]") {
  const test::TemporaryDirectory directory;
  using Texts = std::vector<std::string>;
  const std::string rows = "{\"t\": \"a\\nb\", \"u\": 1}\n{\"t\": \"\"}\n{\"u\": 2, \"t\": \"\\u00e9\"}";
  CHECK(texts_of(directory.write("t.jsonl", rows), "t") == Texts{"a\nb", "", "\xC3\xA9"});
  CHECK(texts_of(directory.write("short.jsonl", "{\"t\": \"a\"}\n"), "t") == Texts{"a"});
  CHECK(texts_of(directory.write("empty.jsonl", ""), "t") == Texts{});
  CHECK(texts_of(directory.write("t.csv", "u,t\n1,\"a, b\"\n2,c\n"), "t") == Texts{"a, b", "c"});
  CHECK(texts_of(directory.write("t.tsv", "u\tt\n1\ta, b\n"), "t") == Texts{"a, b"});
}

TEST_CASE("faults of a text file name the line", "[text_list]") {
  const test::TemporaryDirectory directory;
  CHECK_THAT(refusal(directory.write("bad.txt", "a\nb\n\xFF\n")), Contains("bad.txt:3: not valid UTF-8"));
  CHECK_THAT(refusal(directory.path("missing.txt")), Contains("missing.txt"));
  CHECK_THAT(refusal(directory.write("t.txt", "a\n"), "t"), Contains("t.txt: unknown kind of file"));
  const std::string rows = directory.write("t.jsonl", "{\"t\": \"a\"}\n{\"t\": 3}\n");
  CHECK_THAT(refusal(rows, "t"), Contains("t.jsonl:2: column 't' is an integer"));
  CHECK_THAT(refusal(rows, "u"), Contains("t.jsonl:1: column 'u' is missing"));
  CHECK_THAT(refusal(rows), Contains("needs --column"));
}

}  // namespace stft::data
