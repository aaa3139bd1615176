// stft encode: files of embeddings.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "e2e/model_copy.h"
#include "e2e/process.h"
#include "e2e/run_files.h"
#include "io/safetensors.h"

namespace stft::test {
namespace {

using Catch::Matchers::Contains;

const std::string kModel = "test/golden/tiny_bert";
const std::string kSentences = "test/golden/data/sentences.txt";

struct Matrix {
  io::Dtype dtype = io::Dtype::kF32;
  std::vector<int64_t> shape;
  std::string bytes;

  float number(size_t i) const {
    float value = 0;
    std::memcpy(&value, bytes.data() + i * sizeof(float), sizeof(float));
    return value;
  }
};

Matrix read_matrix(const std::string& path, const std::string& tensor = "embeddings") {
  const auto file = io::SafetensorsFile::open(path);
  const io::TensorInfo* info = file.find(tensor);
  REQUIRE(info != nullptr);
  const auto bytes = file.bytes(*info);
  return {info->dtype, info->shape, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}};
}

// The files are equal but for float rounding.
double difference(const Matrix& a, const Matrix& b) {
  REQUIRE(a.shape == b.shape);
  double largest = 0;
  for (size_t i = 0; i < a.bytes.size() / sizeof(float); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(a.number(i)) - b.number(i)));
  }
  return largest;
}

// Runs encode with `more` arguments; returns what it printed.
std::string encode(const std::string& input, const std::string& output, const std::vector<std::string>& more = {},
                   const std::string& model = kModel) {
  std::vector<std::string> arguments = {"encode", model, "--input", input, "--output", output};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const Outcome outcome = run_stft(arguments);
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  CHECK(outcome.out.empty());
  return outcome.err;
}

Matrix encode_text(const std::string& text, const std::vector<std::string>& more = {}) {
  const TemporaryDirectory directory;
  encode(directory.write("texts.txt", text), directory.path("e.safetensors"), more);
  return read_matrix(directory.path("e.safetensors"));
}

void check_refused(const std::vector<std::string>& arguments, const std::vector<std::string>& expected) {
  const Outcome outcome = run_stft(arguments);
  INFO(outcome.err);
  CHECK(outcome.exit_code == 2);
  for (const std::string& text : expected) {
    CHECK_THAT(outcome.err, Contains(text));
  }
}

}  // namespace

TEST_CASE("encode gives the golden embeddings, the same bytes on 1 and 2 ranks", "[e2e][encode]") {
  const TemporaryDirectory directory;
  const std::string one = directory.path("one.safetensors");
  const std::string err = encode(kSentences, one);
  CHECK_THAT(err, Contains("200 texts") && Contains("texts/s"));
  const auto golden = read_matrix(source_path("test/golden/embeddings_tiny.safetensors"), "mean");
  CHECK(difference(read_matrix(one), golden) < 1e-5);
  for (const char* extension : {".npy", ".safetensors", ".jsonl"}) {
    for (const char* ranks : {"1", "2", "3"}) {
      encode(kSentences, directory.path(std::string(ranks) + extension), {"--nproc", ranks});
    }
    const std::string expected = read_bytes(directory.path(std::string("1") + extension));
    CHECK(read_bytes(directory.path(std::string("2") + extension)) == expected);
    CHECK(read_bytes(directory.path(std::string("3") + extension)) == expected);
  }
  const std::string npy = read_bytes(directory.path("1.npy"));
  CHECK_THAT(npy, Contains("'descr': '<f4'") && Contains("'shape': (200, 32)"));
  CHECK(npy.substr(128) == read_matrix(one).bytes);
  CHECK(directory.file_count() == 10);  // no temporary file is left
}

TEST_CASE("a model without Normalize is not normalized", "[e2e][encode]") {
  const ModelCopy model;
  model.damage_json("modules.json", [](Json& modules) { modules.erase(2); });
  const std::string output = model.directory().path("e.safetensors");
  encode(kSentences, output, {}, model.path(""));
  const auto golden = read_matrix(source_path("test/golden/embeddings_tiny.safetensors"), "mean_without_normalize");
  CHECK(difference(read_matrix(output), golden) < 1e-5);
}

TEST_CASE("A07: a text's vector depends neither on its batch mates nor on the padding side", "[e2e][encode][field]") {
  const std::string brief = "a dog\n";
  const std::string lengthy = "the season after winter, and the day after today, and frozen water\n";
  for (const std::string golden : {"test/golden/tiny_bert", "test/golden/tiny_llama"}) {
    for (const std::string pooling : {"cls", "mean", "lasttoken"}) {
      std::vector<Matrix> pairs;
      for (const std::string side : {"left", "right"}) {
        const ModelCopy copy(golden);
        copy.damage_json("tokenizer_config.json", [&](Json& config) { config["padding_side"] = side; });
        copy.damage_json("1_Pooling/config.json", [&](Json& config) {
          config = {{"embedding_dimension", 32}, {"pooling_mode", pooling}, {"include_prompt", true}};
        });
        const auto encoded = [&](const std::string& text) {
          const TemporaryDirectory& directory = copy.directory();
          encode(directory.write("texts.txt", text), directory.path("e.safetensors"), {"--overwrite"}, copy.path(""));
          return read_matrix(directory.path("e.safetensors"));
        };
        INFO(golden << " " << pooling << " " << side);
        Matrix apart = encoded(brief);
        apart.bytes += encoded(lengthy).bytes;
        apart.shape.front() = 2;
        const Matrix together = encoded(brief + lengthy);
        CHECK(difference(together, apart) < 1e-5);
        CHECK(difference(encoded(brief), encoded(lengthy)) > 1e-2);
        pairs.push_back(together);
      }
      CHECK(pairs[0].bytes == pairs[1].bytes);
    }
  }
}

TEST_CASE("every line is a text, blank ones and one without an end too", "[e2e][encode]") {
  const Matrix three = encode_text("hello\n\nhello\n");
  REQUIRE(three.shape == std::vector<int64_t>{3, 32});
  const size_t row = 32 * sizeof(float);
  CHECK(three.bytes.substr(0, row) == three.bytes.substr(2 * row));
  CHECK(three.bytes.substr(0, row) != three.bytes.substr(row, row));
  CHECK(encode_text("hello\n\nhello").bytes == three.bytes);
  CHECK(encode_text("\n").shape == std::vector<int64_t>{1, 32});
  // The tokenizer drops a carriage return at a text's end, and sees one inside a text as a blank.
  CHECK(encode_text("hello\r\n\r\nhello\r\n").bytes == three.bytes);
}

TEST_CASE("an empty file gives a matrix without rows", "[e2e][encode]") {
  const TemporaryDirectory directory;
  const std::string input = directory.write("texts.txt", "");
  for (const char* ranks : {"1", "2"}) {
    encode(input, directory.path("e.safetensors"), {"--nproc", ranks, "--overwrite"});
    CHECK(read_matrix(directory.path("e.safetensors")).shape == std::vector<int64_t>{0, 32});
  }
  encode(input, directory.path("e.npy"), {"--precision", "ubinary"});
  CHECK_THAT(read_bytes(directory.path("e.npy")), Contains("'descr': '|u1'") && Contains("'shape': (0, 4)"));
  encode(input, directory.path("e.jsonl"), {"--precision", "int8"});
  CHECK(read_bytes(directory.path("e.jsonl")).empty());
}

TEST_CASE("a column of a table holds the texts", "[e2e][encode]") {
  const TemporaryDirectory directory;
  const Matrix expected = encode_text("hello\nsmall flowers\n");
  const std::vector<std::string> tables = {
      directory.write("t.jsonl", "{\"id\": 1, \"text\": \"hello\"}\n{\"text\": \"small flowers\"}\n"),
      directory.write("t.csv", "id,text\n1,hello\n2,\"small flowers\"\n"),
      directory.write("t.tsv", "id\ttext\n1\thello\n2\tsmall flowers\n")};
  for (const std::string& table : tables) {
    encode(table, directory.path("e.safetensors"), {"--column", "text", "--overwrite"});
    CHECK(read_matrix(directory.path("e.safetensors")).bytes == expected.bytes);
  }
}

TEST_CASE("prompts and truncation are the model's own unless given", "[e2e][encode]") {
  const ModelCopy model;
  model.write(
      "config_sentence_transformers.json",
      R"({"prompts": {"query": "some ", "document": "a "}, "default_prompt_name": "query", "truncate_dim": 8})");
  const TemporaryDirectory directory;
  const std::string input = directory.write("texts.txt", "hello\n");
  const std::string output = directory.path("e.safetensors");
  encode(input, output, {}, model.path(""));
  CHECK(read_matrix(output).bytes == encode_text("some hello\n", {"--truncate-dim", "8"}).bytes);
  encode(input, output, {"--prompt-name", "document", "--truncate-dim", "31", "--overwrite"}, model.path(""));
  const Matrix cut = read_matrix(output);
  CHECK(cut.shape == std::vector<int64_t>{1, 31});
  CHECK(cut.bytes == encode_text("a hello\n").bytes.substr(0, 31 * sizeof(float)));
}

TEST_CASE("precisions have the peer's types and shapes", "[e2e][encode]") {
  struct Case {
    const char* precision;
    io::Dtype dtype;
    int64_t width;
  };
  for (const Case& one :
       {Case{"float32", io::Dtype::kF32, 20}, Case{"int8", io::Dtype::kI8, 20}, Case{"uint8", io::Dtype::kU8, 20},
        Case{"binary", io::Dtype::kI8, 3}, Case{"ubinary", io::Dtype::kU8, 3}}) {
    const Matrix found = encode_text("a\nb\n", {"--precision", one.precision, "--truncate-dim", "20"});
    CHECK(found.dtype == one.dtype);
    CHECK(found.shape == std::vector<int64_t>{2, one.width});
  }
}

TEST_CASE("encode refuses what it cannot do before it computes anything", "[e2e][encode]") {
  const TemporaryDirectory directory;
  const std::string texts = directory.write("texts.txt", "hello\n");
  const std::string output = directory.path("e.npy");
  const std::string table = directory.write("t.jsonl", "{\"text\": \"a\"}\n{\"text\": 1}\n");
  const auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"encode", kModel, "--input", texts, "--output", output};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  check_refused(with({"--prompt-name", "passage"}), {"'passage'", "document, query"});
  check_refused(with({"--precision", "int4"}), {"--precision", "int4"});
  check_refused(with({"--truncate-dim", "0"}), {"--truncate-dim"});
  check_refused(with({"--nproc", "0"}), {"--nproc"});
  check_refused(with({"--precision", "int8"}), {"int8", "at least two"});
  check_refused(with({"--column", "text"}), {"texts.txt", ".jsonl"});
  check_refused({"encode", kModel, "--input", table, "--output", output}, {"t.jsonl", "--column"});
  check_refused({"encode", kModel, "--input", table, "--output", output, "--column", "text"}, {"t.jsonl:2", "'text'"});
  check_refused({"encode", kModel, "--input", table, "--output", output, "--column", "no"},
                {"t.jsonl:1", "'no' is missing"});
  check_refused({"encode", kModel, "--input", directory.write("bad.txt", "a\n\xC3(\n"), "--output", output},
                {"bad.txt:2", "UTF-8"});
  check_refused({"encode", kModel, "--input", "no/such.txt", "--output", output}, {"no/such.txt"});
  check_refused({"encode", "no/such/model", "--input", texts, "--output", output}, {"no/such/model"});
  check_refused({"encode", kModel, "--input", texts, "--output", directory.path("e.csv")}, {".npy"});
  check_refused({"encode", kModel, "--input", texts, "--output", directory.path("no/e.npy")}, {"no"});
  check_refused({"encode", kModel, "--input", texts}, {"--output"});
  check_refused({"encode", kModel, "--output", output}, {"--input"});
  CHECK(directory.file_count() == 3);  // the inputs alone: texts.txt, t.jsonl, bad.txt
}

TEST_CASE("an existing output is replaced only when asked, and never the input", "[e2e][encode]") {
  const TemporaryDirectory directory;
  const std::string texts = directory.write("texts.txt", "hello\n");
  const std::string output = directory.write("e.npy", "kept");
  check_refused({"encode", kModel, "--input", texts, "--output", output}, {"e.npy", "--overwrite"});
  CHECK(read_bytes(output) == "kept");
  encode(texts, output, {"--overwrite"});
  CHECK(read_bytes(output).size() == 128 + 32 * sizeof(float));
  const std::string table = directory.write("t.jsonl", "{\"text\": \"a\"}\n");
  check_refused({"encode", kModel, "--input", table, "--column", "text", "--output", table, "--overwrite"},
                {"is the input"});
  CHECK(read_bytes(table) == "{\"text\": \"a\"}\n");
}

TEST_CASE("a model with a weight that is not finite is refused", "[e2e][encode]") {
  const ModelCopy model;
  model.damage_weights([](Weights& weights) {
    const auto begin = weights.header.at("embeddings.LayerNorm.bias").at("data_offsets").at(0).get<size_t>();
    weights.data.replace(begin, 4, std::string("\x00\x00\xC0\x7F", 4));  // a quiet NaN
  });
  const std::string output = model.directory().path("e.npy");
  check_refused({"encode", model.path(""), "--input", kSentences, "--output", output, "--nproc", "2"}, {"not finite"});
  CHECK_FALSE(std::filesystem::exists(output));
}

}  // namespace stft::test
