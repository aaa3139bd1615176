#include "io/file.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "io/temporary_directory.h"
#include "io/utf8.h"

namespace stft::io {
namespace {

using Catch::Matchers::Contains;
using test::message_of;

TEST_CASE("read_text_file gives every byte") {
  const test::TemporaryDirectory directory;
  const std::string content("a\0\xFF\r\n", 5);
  CHECK(read_text_file(directory.write("f", content)) == content);
  CHECK(read_text_file(directory.write("empty", "")).empty());
  const std::string large(100'000, 'x');
  CHECK(read_text_file(directory.write("large", large)) == large);
}

TEST_CASE("files that cannot be opened are the user's errors") {
  const test::TemporaryDirectory directory;
  const std::string missing = directory.path("missing");
  CHECK(message_of<UserError>([&] { read_text_file(missing); }) ==
        "cannot open '" + missing + "': No such file or directory");
  CHECK_THAT(message_of<UserError>([&] { read_text_file(directory.path("")); }), Contains("directory"));
  CHECK_THAT(message_of<UserError>([&] { MappedFile{missing}; }), Contains("No such file"));
  const std::string pipe = directory.path("pipe");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK_THAT(message_of<UserError>([&] { read_text_file(pipe); }), Contains("not a regular file"));
  CHECK_THAT(message_of<UserError>([&] { MappedFile{pipe}; }), Contains("not a regular file"));
  CHECK_THAT(message_of<UserError>([&] { read_text_file(std::string("a\0b", 3)); }), Contains("NUL"));
}

TEST_CASE("MappedFile shows the bytes and moves") {
  const test::TemporaryDirectory directory;
  MappedFile file(directory.write("f", "hello"));
  const std::byte* address = file.data();
  MappedFile moved(std::move(file));
  CHECK(moved.data() == address);
  CHECK(moved.text() == "hello");
  MappedFile empty(directory.write("empty", ""));
  CHECK(empty.size() == 0);
  CHECK(empty.data() == nullptr);
  empty = std::move(moved);
  CHECK(empty.text() == "hello");
}

TEST_CASE("write_file replaces the whole file and leaves nothing else") {
  const test::TemporaryDirectory directory;
  const std::string path = directory.write("f", "old and longer");
  write_file(path, "new");
  CHECK(read_text_file(path) == "new");
  CHECK(directory.file_count() == 1);
  CHECK_THAT(message_of<SystemError>([&] { write_file(directory.path("no/such/f"), "x"); }), Contains("no/such/f"));
}

TEST_CASE("a pending file that is not committed leaves the old one") {
  const test::TemporaryDirectory directory;
  const std::string path = directory.write("f", "old");
  {
    PendingFile file(path);
    file.write(std::as_bytes(std::span("new", 3)));
  }
  CHECK(read_text_file(path) == "old");
  CHECK(directory.file_count() == 1);
}

TEST_CASE("expand_paths") {
  const test::TemporaryDirectory directory;
  const std::string b = directory.write("b.jsonl", "");
  const std::string a = directory.write("a.jsonl", "");
  const std::string upper = directory.write("C.jsonl", "");
  const std::string literal = directory.write("x[1].jsonl", "");
  std::filesystem::create_directory(directory.path("d.jsonl"));
  SECTION("a glob is sorted by bytes and skips directories") {
    CHECK(expand_paths({directory.path("?.jsonl")}) == std::vector<std::string>{upper, a, b});
  }
  SECTION("entries keep their order, nothing comes twice") {
    CHECK(expand_paths({b, directory.path("[ab].jsonl")}) == std::vector<std::string>{b, a});
  }
  SECTION("a literal name wins over its reading as a glob") {
    CHECK(expand_paths({literal}) == std::vector<std::string>{literal});
  }
  SECTION("nothing found") {
    const std::string glob = directory.path("*.csv");
    CHECK(message_of<UserError>([&] { expand_paths({glob}); }) == "no file matches '" + glob + "'");
    CHECK_THAT(message_of<UserError>([&] { expand_paths({directory.path("no.jsonl")}); }), Contains("does not exist"));
  }
}

TEST_CASE("first_invalid_utf8") {
  const auto bad_at = [](std::string_view text) { return first_invalid_utf8(text); };
  CHECK_FALSE(bad_at(""));
  CHECK_FALSE(bad_at("plain ascii text, longer than a word"));
  CHECK_FALSE(bad_at("\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80 \xF4\x8F\xBF\xBF \xED\x9F\xBF \xEE\x80\x80"));
  CHECK(bad_at("abcdefgh\xFF") == 8U);
  CHECK(bad_at("\x80") == 0U);
  CHECK(bad_at("a\xC0\x80") == 1U);         // overlong
  CHECK(bad_at("a\xE0\x9F\xBF") == 1U);     // overlong
  CHECK(bad_at("\xED\xA0\x80") == 0U);      // surrogate
  CHECK(bad_at("\xF4\x90\x80\x80") == 0U);  // above U+10FFFF
  CHECK(bad_at("ab\xE2\x82") == 2U);        // cut off
  CHECK(bad_at("ab\xF0\x9F\x98(") == 2U);
}

TEST_CASE("a path lies in a directory as a whole name, through links, existing or not") {
  const test::TemporaryDirectory directory;
  std::filesystem::create_directories(directory.path("run/final"));
  std::filesystem::create_directory_symlink(directory.path("run"), directory.path("link"));
  CHECK(lies_in(directory.path("run"), directory.path("run")));
  CHECK(lies_in(directory.path("run/final/x"), directory.path("run")));
  CHECK(lies_in(directory.path("link/final"), directory.path("run")));
  CHECK(lies_in(directory.path("run/../run/none/deep"), directory.path("run")));
  CHECK_FALSE(lies_in(directory.path("running"), directory.path("run")));
  CHECK_FALSE(lies_in(directory.path("run"), directory.path("run/final")));
}

}  // namespace
}  // namespace stft::io
