#include "recipe/reader.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "recipe/nearest.h"
#include "recipe/overrides.h"

namespace stft::recipe {

namespace {

// A parsed text and the reader of its root.
struct Document {
  explicit Document(const std::string& text)
      : diagnostics("r.yaml"), root(parse_yaml(text, Source{"r.yaml", 1}, diagnostics)) {
    expand_environment(root, diagnostics);
  }
  Reader reader() { return Reader(&root, "", diagnostics); }
  std::string problems() const {
    try {
      diagnostics.throw_if_any();
    } catch (const UserError& error) {
      return error.what();
    }
    return {};
  }

  Diagnostics diagnostics;
  YamlNode root;
};

}  // namespace

TEST_CASE("plain scalars follow the core schema of YAML 1.2", "[recipe]") {
  for (const char* text : {"1e-4", "5e-5", "2.0e-5", ".5", "5.", "+1.5", "-2E+3", ".inf", "-.INF", ".nan"}) {
    CHECK(scalar_kind(text) == ScalarKind::kNumber);
  }
  for (const char* text : {"0", "-17", "+5", "007", "0x1F", "0o17"}) {
    CHECK(scalar_kind(text) == ScalarKind::kInteger);
  }
  for (const char* text :
       {"yes", "no", "on", "off", "tRue", "1_000", "1.2.3", "e5", "1e", "--1", ".", "+", "0x", "1:30"}) {
    CHECK(scalar_kind(text) == ScalarKind::kString);
  }
  for (const char* text : {"true", "True", "TRUE", "false"}) {
    CHECK(scalar_kind(text) == ScalarKind::kBoolean);
  }
  for (const char* text : {"", "~", "null", "Null"}) {
    CHECK(scalar_kind(text) == ScalarKind::kNull);
  }
}

TEST_CASE("numbers are read exactly", "[recipe]") {
  Document document("{a: 2.0e-5, b: 1e-4, c: 5e-5, d: +3, e: 0x10, f: 0o17, g: 7, h: -0.25, i: 1e-999}");
  Reader reader = document.reader();
  CHECK(reader.number("a") == 2.0e-5);
  CHECK(reader.number("b") == 1e-4);
  CHECK(reader.number("c") == 5e-5);
  CHECK(reader.integer("d") == 3);
  CHECK(reader.integer("e") == 16);
  CHECK(reader.integer("f") == 15);
  CHECK(reader.number("g") == 7.0);
  CHECK(reader.number("h") == -0.25);
  CHECK(document.problems().empty());
}

TEST_CASE("null and absent keys are unset", "[recipe]") {
  Document document("{a: null, b: ~, c: }");
  Reader reader = document.reader();
  CHECK_FALSE(reader.number("a").has_value());
  CHECK_FALSE(reader.text("b").has_value());
  CHECK_FALSE(reader.boolean("c").has_value());
  CHECK_FALSE(reader.map("d").integer("e").has_value());
  reader.finish();
  CHECK(document.problems().empty());
}

TEST_CASE("quoted scalars are strings", "[recipe]") {
  Document document("{a: '1', b: \"true\", c: 'null', d: 5}");
  Reader reader = document.reader();
  CHECK(reader.text("a") == "1");
  CHECK(reader.text("b") == "true");
  CHECK(reader.text("c") == "null");
  CHECK_FALSE(reader.integer("a").has_value());
  CHECK_FALSE(reader.text("d").has_value());
  CHECK(document.problems() ==
        "r.yaml:1: a: expected an integer, found \"1\"\n"
        "r.yaml:1: d: expected a string (quote it to make it one), found 5");
}

TEST_CASE("all problems are told in the order of the file", "[recipe]") {
  Document document("b: x\na: y\nnmae: 1\n");
  Reader reader = document.reader();
  reader.text("name");
  reader.number("a");
  reader.number("b");
  reader.require("path");
  reader.finish();
  CHECK(document.problems() ==
        "r.yaml: path: required, but missing\n"
        "r.yaml:1: b: expected a number, found \"x\"\n"
        "r.yaml:2: a: expected a number, found \"y\"\n"
        "r.yaml:3: nmae: unknown key; did you mean name?");
}

TEST_CASE("lists and maps", "[recipe]") {
  Document document("{a: x, b: [x, y], c: {k: v}, d: {z: 1, a: 2.5}, e: [1, x], f: {k: 3}}");
  Reader reader = document.reader();
  CHECK(reader.texts("a") == std::vector<std::string>{"x"});
  CHECK(reader.texts("b") == std::vector<std::string>{"x", "y"});
  CHECK(reader.text_map("c")->at("k") == "v");
  CHECK(reader.number_map("d", kFinite)->front().first == "z");
  CHECK(reader.integer_map("f", kCount)->at("k") == 3);
  reader.integers("e");
  CHECK(document.problems() == "r.yaml:1: e.1: expected an integer, found \"x\"");
}

TEST_CASE("environment variables expand in strings", "[recipe]") {
  setenv("STFT_TEST_A", "value", 1);
  setenv("STFT_TEST_N", "12", 1);
  setenv("STFT_TEST_EMPTY", "", 1);
  unsetenv("STFT_TEST_U");
  Document document(
      "a: ${STFT_TEST_A}/x-${STFT_TEST_U:-d}\nb: ${STFT_TEST_N}\nc: '${STFT_TEST_EMPTY:-e}'\nd: '$${STFT_TEST_A} $5'\n"
      "e: ${STFT_TEST_U:-null}\nf: ${STFT_TEST_N}\n");
  Reader reader = document.reader();
  CHECK(reader.text("a") == "value/x-d");
  CHECK(reader.integer("b") == 12);
  CHECK(reader.text("c") == "e");
  CHECK(reader.text("d") == "${STFT_TEST_A} $5");
  CHECK_FALSE(reader.text("e").has_value());
  CHECK(reader.text("f") == "12");
  CHECK(document.problems().empty());
  CHECK(escape_environment("a${b}$c") == "a$${b}$c");
}

TEST_CASE("edit distance", "[recipe]") {
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("same", "same") == 0);
  CHECK(nearest("lerning_rate", {"seed", "learning_rate", "optim"}) == "learning_rate");
  CHECK(nearest("x", {}).empty());
}

}  // namespace stft::recipe
