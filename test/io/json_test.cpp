#include "io/json.h"

#include <catch2/catch.hpp>
#include <limits>

#include "base/error.h"
#include "io/temporary_directory.h"

namespace stft::io {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
using test::message_of;

std::string failure_of(std::string_view text) {
  return message_of<UserError>([&] { parse_json(text, "f.json"); });
}

TEST_CASE("parse_json builds the value") {
  const Json json =
      parse_json(R"( {"a": [1, -2, 3.5, {"b": []}, [true, null]], "c": "\u00e9\ud83d\ude00", "d": {}} )", "o");
  CHECK(json.dump() == "{\"a\":[1,-2,3.5,{\"b\":[]},[true,null]],\"c\":\"\xC3\xA9\xF0\x9F\x98\x80\",\"d\":{}}");
  CHECK(parse_json("7", "o") == 7);
  CHECK(parse_json("\"x\"", "o") == "x");
  CHECK(parse_json("18446744073709551615", "o").get<std::uint64_t>() == std::numeric_limits<std::uint64_t>::max());
}

TEST_CASE("Numbers can be read as serde_json reads them") {
  const auto serde = [](const char* text) { return parse_json(text, "o", FloatReading::kSerde).get<double>(); };
  // What HF tokenizers 0.23.3 prints after reading the numbers on the left.
  CHECK(serde("-3.6185367107391357") == -3.618536710739136);
  CHECK(serde("-9.527064173986698137") == -9.527064173986696);
  CHECK(serde("-5.28274495905696817033") == -5.282744959056967);
  CHECK(serde("-123456789012345678901234567890.5") == -1.2345678901234568e+29);
  CHECK(serde("-0.000000000000000000000000000012345678901234567890123") == -1.2345678901234567e-29);
  CHECK(serde("-0.1e-320") == -1e-321);
  CHECK(serde("1e-400") == 0.0);
  CHECK(serde("-1E+2") == -100.0);
  CHECK(serde("7") == 7.0);
  CHECK(parse_json("-3.6185367107391357", "o").get<double>() == -3.6185367107391357);
}

TEST_CASE("parse_json says where and why") {
  CHECK_THAT(failure_of("{\n  \"a\": 1,\n  \"b\" 2}"), StartsWith("f.json:3:7: not valid JSON: "));
  CHECK_THAT(failure_of(""), StartsWith("f.json:1:1: not valid JSON: "));
  CHECK_THAT(failure_of("{} x"), StartsWith("f.json:1:4: not valid JSON: "));
  CHECK_THAT(failure_of("[1,]"), StartsWith("f.json:1:4: not valid JSON: "));
  CHECK_THAT(failure_of("[1"), StartsWith("f.json:1:3: not valid JSON: "));
  CHECK_THAT(failure_of("[NaN]"), StartsWith("f.json:1:2: not valid JSON: "));
  CHECK_THAT(failure_of("{\"a\":1} // c"), StartsWith("f.json:1:9: not valid JSON: "));
  CHECK_THAT(failure_of("[1e999]"), Contains("not valid JSON"));
  CHECK_THAT(failure_of("\"\\ud800\""), Contains("not valid JSON"));
  CHECK(failure_of("{\"a\": \"\xFF\"}") == "f.json:1:8: not valid JSON: not valid UTF-8");
  CHECK(failure_of(std::string_view("{}\0", 3)) == "f.json:1:3: not valid JSON: a NUL byte");
  CHECK(failure_of(std::string_view("{}\0x", 4)) == "f.json:1:3: not valid JSON: a NUL byte");
}

TEST_CASE("duplicate keys are refused at every depth") {
  CHECK(failure_of("{\"a\":1,\n\"a\":1}") == "f.json:2:3: not valid JSON: key 'a' is given twice");
  CHECK_THAT(failure_of("[{\"x\":{\"k\":[], \"k\":[]}}]"), Contains("key 'k' is given twice"));
  CHECK_THAT(failure_of("{\"a\":1, \"\\u0061\":2}"), Contains("given twice"));
  CHECK(failure_of("[{\"a\":1},{\"a\":{\"a\":1}}]").empty());
}

TEST_CASE("nesting is limited") {
  const auto nested = [](std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  CHECK(failure_of(nested(200)).empty());
  CHECK(failure_of(nested(201)) == "f.json:1:201: not valid JSON: nested over 200 levels");
  CHECK_THAT(failure_of(std::string(5'000'000, '[')), Contains("nested over"));
}

TEST_CASE("read_json_file names the file") {
  const test::TemporaryDirectory directory;
  CHECK(read_json_file(directory.write("a.json", "{\"x\":1}"))["x"] == 1);
  const std::string path = directory.write("b.json", "{");
  CHECK_THAT(message_of<UserError>([&] { read_json_file(path); }), StartsWith(path + ":1:2: not valid JSON"));
}

TEST_CASE("typed getters") {
  const Json json =
      parse_json(R"({"s": "x", "i": -3, "u": 18446744073709551615, "d": 1.5, "b": true, "n": null, "l": []})", "o");
  CHECK(get_string(json, "s", "o") == "x");
  CHECK(get_int(json, "i", "o") == -3);
  CHECK(get_double(json, "d", "o") == 1.5);
  CHECK(get_double(json, "i", "o") == -3.0);
  CHECK(get_bool(json, "b", "o"));
  CHECK(optional_string(json, "s", "o") == "x");
  CHECK(optional_int(json, "i", "o") == -3);
  CHECK(optional_double(json, "d", "o") == 1.5);
  CHECK(optional_bool(json, "b", "o") == true);
  CHECK_FALSE(optional_int(json, "n", "o"));
  CHECK_FALSE(optional_bool(json, "absent", "o"));
  CHECK(message_of<UserError>([&] { get_string(json, "absent", "o"); }) == "o: key 'absent' is missing");
  CHECK(message_of<UserError>([&] { get_string(json, "n", "o"); }) == "o: key 'n' is null, it must be a string");
  CHECK(message_of<UserError>([&] { get_int(json, "d", "o"); }) == "o: key 'd' is a number, it must be an integer");
  CHECK_THAT(message_of<UserError>([&] { get_int(json, "u", "o"); }), Contains("too large"));
  CHECK(message_of<UserError>([&] { get_double(json, "s", "o"); }) == "o: key 's' is a string, it must be a number");
  CHECK(message_of<UserError>([&] { get_bool(json, "i", "o"); }) ==
        "o: key 'i' is an integer, it must be true or false");
  CHECK(message_of<UserError>([&] { optional_string(json, "l", "o"); }) == "o: key 'l' is a list, it must be a string");
  CHECK(message_of<UserError>([&] { optional_int(Json::array(), "l", "o"); }) == "o: a list instead of an object");
}

}  // namespace
}  // namespace stft::io
