#include "recipe/yaml_document.h"

#include <catch2/catch.hpp>
#include <string>

#include "base/error.h"

namespace stft::recipe {

namespace {

YamlNode parse(const std::string& text) {
  Diagnostics diagnostics("r.yaml");
  YamlNode root = parse_yaml(text, Source{"r.yaml", 1}, diagnostics);
  diagnostics.throw_if_any();
  return root;
}

std::string nested(int depth) {
  return std::string(depth, '[') + "1" + std::string(depth, ']');
}

}  // namespace

TEST_CASE("values know what they are and where they were written", "[recipe]") {
  const YamlNode root = parse("a: 1\nb:\n  - x\n  - \"2\"\nc: null\nd: {e: ~}\nf:\n");
  REQUIRE(root.kind == YamlKind::kMapping);
  REQUIRE(root.find("a") != nullptr);
  CHECK(root.find("a")->text == "1");
  CHECK_FALSE(root.find("a")->quoted);
  const YamlNode& list = *root.find("b");
  REQUIRE(list.items.size() == 2);
  CHECK(list.items[1].quoted);
  CHECK(list.items[1].source.text() == "r.yaml:4");
  CHECK(root.keys[1].source.text() == "r.yaml:2");
  CHECK(root.find("c")->kind == YamlKind::kNull);
  CHECK(root.find("d")->find("e")->kind == YamlKind::kNull);
  CHECK(root.find("f")->kind == YamlKind::kNull);
  CHECK(root.find("g") == nullptr);
}

TEST_CASE("JSON is read as YAML", "[recipe]") {
  const YamlNode root = parse("{\"a\": {\"b\": [1, true, \"x\\n\\u00e9\"]}}");
  const YamlNode& list = *root.find("a")->find("b");
  CHECK(list.items[1].text == "true");
  CHECK(list.items[2].text == "x\n\xc3\xa9");
}

TEST_CASE("an empty document is null", "[recipe]") {
  CHECK(parse("").kind == YamlKind::kNull);
  CHECK(parse("# only a comment\n").kind == YamlKind::kNull);
}

TEST_CASE("duplicate keys are all told, and the first counts", "[recipe]") {
  Diagnostics diagnostics("r.yaml");
  const YamlNode root = parse_yaml("a: 1\nb: {c: 1, c: 2}\na: 3\n", Source{"r.yaml", 1}, diagnostics);
  CHECK(root.find("a")->text == "1");
  CHECK(root.keys.size() == 2);
  CHECK_THROWS_WITH(diagnostics.throw_if_any(),
                    "r.yaml:2: b.c: duplicate key, first given on line 2\n"
                    "r.yaml:3: a: duplicate key, first given on line 1");
}

TEST_CASE("nesting is allowed up to 64 levels", "[recipe]") {
  CHECK_NOTHROW(parse(nested(64)));
  CHECK_THROWS_AS(parse(nested(65)), UserError);
  // The alias brings 40 levels to a place that is 40 levels deep.
  CHECK_THROWS_WITH(parse("a: &a " + nested(40) + "\nb: " + std::string(40, '[') + "*a" + std::string(40, ']')),
                    Catch::Contains("nested more than 64 levels deep"));
}

TEST_CASE("aliases are copies", "[recipe]") {
  const YamlNode root = parse("a: &x {b: 1}\nc: *x\n");
  CHECK(root.find("c")->find("b")->text == "1");
}

TEST_CASE("malformed YAML names line and column", "[recipe]") {
  CHECK_THROWS_WITH(parse("a: 1\nb: [1, 2\nc: 3\n"), Catch::StartsWith("r.yaml:3:"));
  CHECK_THROWS_WITH(parse("a: 1\n\tb: 2\n"), Catch::Contains("not valid YAML"));
  CHECK_THROWS_WITH(parse("a: b: c\n"), Catch::Contains("not valid YAML"));
  CHECK_THROWS_AS(parse("a: 1\n}\n"), UserError);
}

// Whatever bytes come, the parser answers with a tree or a UserError.
TEST_CASE("every truncation and single-byte change of a recipe is survived", "[recipe]") {
  const std::string text =
      "a: &x [1, 'q', \"\\x41\", {b: c}]\nd: *x\ne: |\n  text\n  more\nf: >-\n  folded\n? g\n: !!str 5\n- h\n";
  int refused = 0;
  int read = 0;
  const auto attempt = [&](const std::string& changed) {
    try {
      parse(changed);
      ++read;
    } catch (const UserError&) {
      ++refused;
    }
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    attempt(text.substr(0, i));
    for (const char c : std::string("\0\t\n{}[]&*!|>%@'\"\\:-?,#\xff", 23)) {
      std::string changed = text;
      changed[i] = c;
      attempt(changed);
    }
  }
  CHECK(refused > 0);
  CHECK(read > 0);
}

}  // namespace stft::recipe
