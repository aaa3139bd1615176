#include <catch2/catch.hpp>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "io/pickle_reader.h"
#include "io/pickle_writer.h"
#include "io/temporary_directory.h"

namespace stft::io {
namespace {

using std::string_literals::operator""s;
using test::message_of;

constexpr std::string_view kGlobals[] = {"torch.Size", "collections.OrderedDict"};

PickleDocument read(std::string_view bytes, PickleLimits limits = {}) {
  return read_pickle({bytes, "a pickle", kGlobals, limits});
}

PythonValue plain(std::string_view bytes) {
  return to_python(read(bytes).root(), "a pickle");
}

std::string error(std::string_view bytes, PickleLimits limits = {}) {
  return message_of<UserError>([&] { read(bytes, limits); });
}

PythonValue sample() {
  const std::int64_t large = std::numeric_limits<std::int64_t>::max();
  return {PythonTuple{{{PythonNone{}},
                       {true},
                       {false},
                       {std::int64_t{0}},
                       {std::int64_t{255}},
                       {std::int64_t{256}},
                       {std::int64_t{65536}},
                       {std::int64_t{-1}},
                       {std::int64_t{1} << 31},
                       {-(std::int64_t{1} << 40)},
                       {large},
                       {0.001},
                       {-1e300},
                       {std::string(300, 'x')},
                       {"caf\xc3\xa9"s},
                       {PythonList{{{"a"s}, {PythonTuple{}}, {PythonList{}}}}}}}};
}

TEST_CASE("a pickle reads back", "[io][pickle]") {
  const std::string bytes = PickleWriter().value(sample()).finish();
  CHECK(plain(bytes) == sample());
  CHECK_FALSE(plain(bytes) == PythonValue{std::int64_t{1}});
  CHECK_FALSE(PythonValue{true} == PythonValue{std::int64_t{1}});
  CHECK(to_text({PythonTuple{{{0.9}, {"b"s}}}}) == "(0.9, 'b')");
}

// pickle.dumps of CPython 3.11 with protocol=2 and 4.
TEST_CASE("Python's pickles are read", "[io][pickle]") {
  const PythonValue betas{PythonTuple{{{0.9}, {0.999}}}};
  CHECK(plain("\x80\x02G?\xec\xcc\xcc\xcc\xcc\xcc\xcdG?\xef\xf7\xce\xd9\x16\x87+\x86q\x00."s) == betas);
  const PythonValue list{PythonList{{{"a"s}, {"a"s}, {std::int64_t{-200}}, {std::int64_t{1} << 33}}}};
  CHECK(plain("\x80\x04\x95\x17\x00\x00\x00\x00\x00\x00\x00]\x94(\x8c\x01"
              "a\x94h\x01J8\xff\xff\xff\x8a\x05\x00\x00\x00\x00\x02"
              "e."s) == list);
  const auto size = read(
      "\x80\x02"
      "ctorch\nSize\n(K\x02K\x03tq\x00\x85Rq\x01."s);
  REQUIRE(size.root().kind == PickleKind::kCall);
  CHECK(size.root().text == "torch.Size");
  CHECK(size.root().items[0]->items[0]->items[1]->integer == 3);
}

TEST_CASE("a class that does not belong is named", "[io][pickle]") {
  const std::string expected = "'os.system' is not a class or function that belongs here";
  CHECK_THAT(error("\x80\x02"
                   "cos\nsystem\n(X\x02\x00\x00\x00lstR."s),
             Catch::Contains(expected) && Catch::Contains("a pickle: "));
  CHECK_THAT(error("\x80\x04\x8c\x02os\x8c\x06system\x93."s), Catch::Contains(expected));
}

TEST_CASE("malformed pickles are refused", "[io][pickle]") {
  CHECK_THAT(error(""), Catch::Contains("does not start"));
  CHECK_THAT(error("N."), Catch::Contains("does not start"));
  CHECK_THAT(error("\x80\x01N."s), Catch::Contains("protocol 1"));
  CHECK_THAT(error("\x80\x02N"s), Catch::Contains("ends in the middle"));
  CHECK_THAT(error("\x80\x02NN."s), Catch::Contains("one value"));
  CHECK_THAT(error("\x80\x02N.N"s), Catch::Contains("bytes follow"));
  CHECK_THAT(error("\x80\x02\xffN."s), Catch::Contains("unknown instruction 0xff"));
  CHECK_THAT(error("\x80\x02X\xff\xff\xff\xff."s), Catch::Contains("ends in the middle"));
  CHECK_THAT(error("\x80\x02\x8d\xff\xff\xff\xff\xff\xff\xff\xff."s), Catch::Contains("ends in the middle"));
  CHECK_THAT(error("\x80\x02X\x01\x00\x00\x00\xff."s), Catch::Contains("UTF-8"));
  CHECK_THAT(error("\x80\x02h\x05."s), Catch::Contains("does not hold"));
  CHECK_THAT(error("\x80\x02Nr\xff\xff\xff\x7f."s), Catch::Contains("memo"));
  CHECK_THAT(error("\x80\x02\x86."s), Catch::Contains("stack is empty"));
  CHECK_THAT(error("\x80\x02N(\x85."s), Catch::Contains("stack is empty"));
  CHECK_THAT(error("\x80\x02}(Nu."s), Catch::Contains("without a value"));
  CHECK_THAT(error("\x80\x02NNa."s), Catch::Contains("list is missing"));
  CHECK_THAT(error("\x80\x02NNb."s), Catch::Contains("state"));
  CHECK_THAT(error("\x80\x02\x8a\x09\x01\x01\x01\x01\x01\x01\x01\x01\x01."s), Catch::Contains("64 bits"));
}

TEST_CASE("limits of a pickle", "[io][pickle]") {
  CHECK_THAT(error("\x80\x02"s + std::string(65, '(')), Catch::Contains("nested too deep"));
  CHECK_THAT(error("\x80\x02N"s + std::string(65, '\x85') + "."), Catch::Contains("nested too deep"));
  CHECK(error("\x80\x02N"s + std::string(64, '\x85') + ".").empty());
  CHECK_THAT(error("\x80\x02"s + std::string(1000, ')'), {1000, 1 << 20, 64}),
             Catch::Contains("at most 1000 are read"));
  CHECK_THAT(error("\x80\x02"s + std::string(1000, ')'), {1 << 20, 500, 64}), Catch::Contains("too many values"));
  CHECK_THAT(error("\x80\x02"s + std::string(1000, 'N'), {1 << 20, 500, 64}), Catch::Contains("stack"));
}

// Each level holds the one below twice: 2^60 values when unfolded.
TEST_CASE("shared values do not unfold without bound", "[io][pickle]") {
  std::string bytes = "\x80\x02K\x01q\x00"s;
  for (char level = 0; level < 60; ++level)
    bytes += "h"s + level + "h" + level + "\x86q" + static_cast<char>(level + 1);
  // What is left of every level below stays on the stack.
  std::string folded = "\x80\x02("s + bytes.substr(2) + "t.";
  const auto document = read(folded);
  CHECK_THAT(message_of<UserError>([&] { to_python(document.root(), "here"); }), Catch::Contains("too large"));
  // A list that contains itself.
  const auto cycle = read("\x80\x02]q\x00h\x00"s + "a.");
  CHECK_THAT(message_of<UserError>([&] { to_python(cycle.root(), "here"); }), Catch::Contains("too large"));
}

TEST_CASE("any bytes are a UserError or a value", "[io][pickle]") {
  const std::string bytes = PickleWriter()
                                .begin_list()
                                .value(sample())
                                .global("torch.Size")
                                .begin_tuple()
                                .value(sample())
                                .end_tuple()
                                .call()
                                .global("collections.OrderedDict")
                                .new_object()
                                .begin_dict()
                                .string("k")
                                .none()
                                .end_dict()
                                .set_state()
                                .end_list()
                                .finish();
  CHECK(error(bytes).empty());
  for (std::size_t size = 0; size < bytes.size(); ++size) CHECK_FALSE(error(bytes.substr(0, size)).empty());
  std::mt19937 random(5);
  for (int trial = 0; trial < 20'000; ++trial) {
    std::string damaged = bytes;
    for (unsigned flips = 1 + random() % 3; flips > 0; --flips) {
      damaged[random() % damaged.size()] ^= static_cast<char>(1u << random() % 8);
    }
    message_of<UserError>([&] { to_python(read(damaged).root(), "here"); });
  }
}

}  // namespace
}  // namespace stft::io
