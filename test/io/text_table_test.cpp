#include "io/text_table.h"

#include <catch2/catch.hpp>

#include "base/error.h"
#include "io/temporary_directory.h"

namespace stft::io {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
using test::message_of;

// All records as "line:json".
std::vector<std::string> records(const std::string& path) {
  std::vector<std::string> all;
  TextTable table(path);
  while (const auto record = table.next()) all.push_back(std::to_string(record->line) + ":" + record->values.dump());
  return all;
}

using Lines = std::vector<std::string>;

struct Fixture {
  test::TemporaryDirectory directory;

  Lines read(const std::string& name, std::string_view content) { return records(directory.write(name, content)); }

  // The message without the path.
  std::string refusal(const std::string& name, std::string_view content) {
    const std::string path = directory.write(name, content);
    const std::string message = message_of<UserError>([&] { records(path); });
    REQUIRE_THAT(message, StartsWith(path + ":"));
    return message.substr(path.size() + 1);
  }
};

TEST_CASE_METHOD(Fixture, "jsonl records") {
  CHECK(read("a.jsonl", "{\"a\":\"x\"}\n{\"a\":[\"y\",1]}\n") == Lines{"1:{\"a\":\"x\"}", "2:{\"a\":[\"y\",1]}"});
  CHECK(read("a.jsonl", "\xEF\xBB\xBF{\"a\":1}\r\n\r\n \t\n{\"a\":2}") == Lines{"1:{\"a\":1}", "4:{\"a\":2}"});
  CHECK(read("a.ndjson", "{}\n\n\n") == Lines{"1:{}"});
  CHECK(read("a.jsonl", "").empty());
}

TEST_CASE_METHOD(Fixture, "jsonl lines that are not objects") {
  CHECK_THAT(refusal("a.jsonl", "{\"a\":1}\n{\"a\":\n"), StartsWith("2: not a JSON object: "));
  CHECK(refusal("a.jsonl", "{\"a\":1}\n\n[1]\n") == "3: not a JSON object: a list");
  CHECK(refusal("a.jsonl", "\"text\"") == "1: not a JSON object: a string");
  CHECK_THAT(refusal("a.jsonl", "{\"a\":1}{\"a\":2}"), StartsWith("1: not a JSON object: "));
  CHECK(refusal("a.jsonl", "{\"a\":1}\n{\"a\":\"\xC3\"}") == "2: not a JSON object: not valid UTF-8 (column 7)");
  CHECK_THAT(refusal("a.jsonl", "{\"a\":1,\"a\":2}"), Contains("key 'a' is given twice"));
  CHECK_THAT(refusal("a.jsonl", std::string("{\"a\":1}\n") + std::string(1'000'000, '[')), StartsWith("2: "));
}

TEST_CASE_METHOD(Fixture, "csv records") {
  SECTION("quotes, commas and line breaks") {
    CHECK(read("a.csv", "x,y\n\"a,\"\"b\"\"\nc\",d\n e ,\n") ==
          Lines{R"(2:{"x":"a,\"b\"\nc","y":"d"})", R"(4:{"x":" e ","y":""})"});
  }
  SECTION("CR LF, byte order mark, empty lines and no line end at the end") {
    CHECK(read("a.csv", "\xEF\xBB\xBFx,\"y\"\r\n1,\"2\"\r\n\r\n3,4\r") ==
          Lines{R"(2:{"x":"1","y":"2"})", R"(4:{"x":"3","y":"4"})"});
  }
  SECTION("a quote inside an unquoted field is text") {
    CHECK(read("a.csv", "x\n5\" disk\n\"\"\n") == Lines{R"(2:{"x":"5\" disk"})", R"(3:{"x":""})"});
  }
  SECTION("line breaks in quotes keep CR") {
    CHECK(read("a.csv", "x\n\"a\r\nb\"") == Lines{R"(2:{"x":"a\r\nb"})"});
  }
  SECTION("a field of blanks is a text") {
    CHECK(read("a.csv", "x\n  \n") == Lines{R"(2:{"x":"  "})"});
  }
  SECTION("header only") {
    CHECK(read("a.csv", "x,y\n").empty());
  }
}

TEST_CASE_METHOD(Fixture, "malformed csv") {
  CHECK(refusal("a.csv", "") == "1: the header row is missing");
  CHECK(refusal("a.csv", "x,y\n1,2\n\"1\n2\"\n") == "3: 1 fields, the header has 2");
  CHECK(refusal("a.csv", "x,y\n1,2,3\n") == "2: 3 fields, the header has 2");
  CHECK(refusal("a.csv", "x,y,x\n") == "1: the header names column 'x' twice");
  CHECK(refusal("a.csv", "x\n\"a\nb") == "2: a quoted field does not end");
  CHECK(refusal("a.csv", "x\n\"a\nb\"c\n") == "3: text after the closing quote of a field");
  CHECK(refusal("a.csv", "x,y\n1,\"a\n\xFF\"\n") == "3: not valid UTF-8");
}

TEST_CASE_METHOD(Fixture, "tsv records") {
  CHECK(read("a.tsv", "x\ty\r\n\"a\t,b\"\r\n\n\t\n") == Lines{R"(2:{"x":"\"a","y":",b\""})", R"(4:{"x":"","y":""})"});
  CHECK(refusal("a.tsv", "x\ty\n1\n") == "2: 1 fields, the header has 2");
  CHECK(refusal("a.tsv", "x\ty\n1\t\xFF\n") == "2: not valid UTF-8");
  CHECK(refusal("a.tsv", "\n\n") == "1: the header row is missing");
}

TEST_CASE_METHOD(Fixture, "other files") {
  CHECK_THAT(refusal("a.parquet", "x"), Contains(".parquet are not available yet"));
  CHECK_THAT(refusal("a.jsonl.gz", "x"), Contains(".gz are not available yet"));
  CHECK_THAT(refusal("a.txt", "x"), Contains("must end in .jsonl, .csv or .tsv"));
  CHECK_THAT(message_of<UserError>([&] { TextTable{directory.path("no.jsonl")}; }), Contains("No such file"));
}

TEST_CASE("cells") {
  const Record record{7, Json::parse(R"({"a": "x", "n": null, "i": 3, "e": ""})")};
  CHECK(text_cell(record, "a", "f.jsonl") == "x");
  CHECK(text_cell(record, "e", "f.jsonl").empty());
  CHECK(cell(record, "n", "f.jsonl").is_null());
  CHECK(message_of<UserError>([&] { text_cell(record, "n", "f.jsonl"); }) == "f.jsonl:7: column 'n' is null");
  CHECK(message_of<UserError>([&] { text_cell(record, "i", "f.jsonl"); }) ==
        "f.jsonl:7: column 'i' is an integer, it must be a string");
  CHECK(message_of<UserError>([&] { text_cell(record, "positive", "f.jsonl"); }) ==
        "f.jsonl:7: column 'positive' is missing; the columns are: a, e, i, n");
}

}  // namespace
}  // namespace stft::io
