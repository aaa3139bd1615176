#include "eval/correlation.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "eval/scored_pairs.h"
#include "io/json.h"
#include "io/temporary_directory.h"

using namespace stft;
using Doubles = std::vector<double>;

namespace {

void check(double value, const io::Json& expected) {
  if (expected.is_null()) {
    CHECK(std::isnan(value));
  } else {
    CHECK(value == Approx(expected.get<double>()).margin(1e-12));
  }
}

std::string problem_of(const eval::PairFileConfig& config) {
  try {
    eval::load_scored_pairs(config);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("pearson and spearman are scipy's: ties, constants, very large and very small numbers") {
  const auto golden = io::read_json_file(std::string(STFT_SOURCE_DIR) + "/test/golden/eval/correlations_golden.json");
  REQUIRE(golden["cases"].size() == 17);
  for (const io::Json& one : golden["cases"]) {
    INFO(one.dump());
    const auto x = one["x"].get<Doubles>();
    const auto y = one["y"].get<Doubles>();
    check(eval::pearson(x, y), one["pearson"]);
    check(eval::spearman(x, y), one["spearman"]);
  }
}

TEST_CASE("equal values share their ranks' mean, and what is not a number has no correlation") {
  CHECK(eval::average_ranks(Doubles{3, 1, 3, 2, 3}) == Doubles{4, 1, 4, 2, 4});
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  CHECK(std::isnan(eval::pearson(Doubles{1, 2, nan}, Doubles{1, 2, 3})));
  CHECK(std::isnan(eval::spearman(Doubles{1, 2, 3}, Doubles{1, nan, 3})));
  CHECK(std::isnan(eval::pearson(Doubles{1, 2, infinity}, Doubles{1, 2, 3})));
  CHECK(eval::spearman(Doubles{1, 2, infinity}, Doubles{1, 2, 3}) == Approx(1));
}

TEST_CASE("scored pairs are read from every kind of table, each sentence kept once") {
  const test::TemporaryDirectory directory;
  const auto jsonl = directory.write("a.jsonl",
                                     "{\"s\": \"x\", \"t\": \"y\", \"v\": 1, \"other\": 3}\n"
                                     "{\"s\": \"y\", \"t\": \"y\", \"v\": -0.5}\n");
  const auto csv = directory.write("a.csv", "v,s,t\n1,x,y\n -5e-1 ,y,y\n");
  const auto tsv = directory.write("a.tsv", "s\tt\tv\nx\ty\t+1\ny\ty\t-0.5\n");
  for (const std::string& path : {jsonl, csv, tsv}) {
    const auto pairs = eval::load_scored_pairs({path, "s", "t", "v"});
    CHECK(pairs.texts == std::vector<std::string>{"x", "y"});
    CHECK(pairs.first == std::vector<int64_t>{0, 1});
    CHECK(pairs.second == std::vector<int64_t>{1, 1});
    CHECK(pairs.scores == Doubles{1, -0.5});
  }
  CHECK(problem_of({jsonl, "s", "u", "v"}) == jsonl + ":1: column 'u' is missing; the columns are: other, s, t, v");
  CHECK(problem_of({jsonl, "s", "t", "s"}) == jsonl + ":1: column 's': score 'x' is not a number");
  const auto list = directory.write("list.jsonl", "{\"s\": \"x\", \"t\": \"y\", \"v\": [1]}\n");
  CHECK(problem_of({list, "s", "t", "v"}) == list + ":1: column 'v' is a list, a score must be a number");
  const auto infinite = directory.write("infinite.csv", "s,t,v\na,b,inf\n");
  CHECK(problem_of({infinite, "s", "t", "v"}) == infinite + ":2: column 'v': score 'inf' is not a number");
  const auto single = directory.write("single.csv", "s,t,v\na,b,1\n");
  CHECK(problem_of({single, "s", "t", "v"}) == single + ": 1 pair(s), a correlation needs at least 2");
}
