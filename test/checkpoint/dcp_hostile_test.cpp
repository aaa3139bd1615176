#include <catch2/catch.hpp>

#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "checkpoint/dcp_boxes.h"
#include "checkpoint/dcp_fixture.h"
#include "checkpoint/dcp_reader.h"
#include "io/temporary_directory.h"

namespace stft::checkpoint {
namespace {

using test::message_of;
using test::TemporaryDirectory;

std::string index_error(const std::string& bytes) {
  return message_of<UserError>([&] { parse_dcp_metadata(bytes, "dir/.metadata"); });
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  REQUIRE(from.size() == to.size());
  return text.replace(at, from.size(), to);
}

// The faults of a directory whose index was changed by `change`.
template <typename Change>
std::vector<std::string> faults_after(Change&& change) {
  const TemporaryDirectory temporary;
  DcpMetadata metadata = test::write_dcp_files(temporary.path("c"), 2);
  change(metadata);
  test::write_dcp_index(temporary.path("c"), metadata);
  const auto faults = dcp_faults(temporary.path("c"), DcpCheck::kStructure);
  CHECK(message_of<UserError>([&] { DcpDirectory::open(temporary.path("c")); }).empty() == faults.empty());
  return faults;
}

TEST_CASE("an index names no file outside its directory", "[checkpoint][dcp]") {
  const TemporaryDirectory temporary;
  const DcpMetadata good = test::write_dcp_files(temporary.path("c"), 1);
  for (const std::string name : {"/etc/passwd", "../__0_0.distcp", "a/b", "a\\b", "..", ".", ""}) {
    DcpMetadata metadata = good;
    metadata.tensors[0].chunks[0].file = name;
    CHECK_THAT(index_error(serialize(metadata)), Catch::Contains("no name of a file of the directory"));
  }
}

TEST_CASE("an index of other classes or without parts is refused", "[checkpoint][dcp]") {
  const TemporaryDirectory temporary;
  const std::string good = serialize(test::write_dcp_files(temporary.path("c"), 1));
  CHECK(index_error(good).empty());
  CHECK_THAT(index_error(replaced(good, "torch\nfloat32", "torch\nqint999")),
             Catch::Contains("'torch.qint999' is not a class") && Catch::Contains("dir/.metadata"));
  CHECK_THAT(index_error(replaced(good, "storage_data", "storage_tada")), Catch::Contains("storage_data"));
  CHECK_THAT(index_error(replaced(good, "relative_path", "relative_pith")), Catch::Contains("relative_path"));
  DcpMetadata twice = test::write_dcp_files(temporary.path("c"), 1);
  twice.objects.push_back(twice.objects[0]);
  CHECK_THAT(index_error(serialize(twice)), Catch::Contains("two places"));
  DcpMetadata path = test::write_dcp_files(temporary.path("c"), 1);
  path.objects[0].path = {std::string("elsewhere")};
  CHECK_THAT(index_error(serialize(path)), Catch::Contains("does not spell that key"));
}

TEST_CASE("missing and short files are named, all of them", "[checkpoint][dcp]") {
  const TemporaryDirectory temporary;
  const std::string path = temporary.path("c");
  CHECK_THAT(dcp_faults(path, DcpCheck::kStructure).at(0), Catch::Contains("is no directory"));
  test::write_dcp_files(path, 3);
  CHECK_THAT(dcp_faults(path, DcpCheck::kStructure).at(0), Catch::Contains(".metadata: the file is missing"));
  test::write_dcp(path, 3);
  std::filesystem::remove(path + "/__0_0.distcp");
  std::filesystem::resize_file(path + "/__2_0.distcp", 100);
  const auto faults = dcp_faults(path, DcpCheck::kStructure);
  REQUIRE(faults.size() == 2);
  CHECK_THAT(faults[0], Catch::Contains("__0_0.distcp: the file is missing"));
  CHECK_THAT(faults[1], Catch::Contains("__2_0.distcp: the file is truncated: 100 bytes"));
  const auto message = message_of<UserError>([&] { DcpDirectory::open(path); });
  CHECK_THAT(message, Catch::Contains("__0_0.distcp") && Catch::Contains("__2_0.distcp"));
}

TEST_CASE("chunks that do not tile their tensor are faults", "[checkpoint][dcp]") {
  CHECK(faults_after([](DcpMetadata&) {}).empty());
  auto faults = faults_after([](DcpMetadata& m) { m.tensors[0].chunks.pop_back(); });
  REQUIRE(faults.size() == 1);
  CHECK_THAT(faults[0], Catch::Contains("'model.0.encoder.weight': its parts hold 20 of its 35 elements"));
  faults = faults_after([](DcpMetadata& m) { m.tensors[0].chunks[1].offsets[0] = 3; });
  REQUIRE(faults.size() == 1);
  CHECK_THAT(faults[0], Catch::Contains("overlaps"));
  faults = faults_after([](DcpMetadata& m) { m.tensors[0].chunks[1].offsets[0] = 5; });
  CHECK_THAT(faults.at(0), Catch::Contains("is not inside [7, 5]"));
  faults = faults_after([](DcpMetadata& m) { m.tensors[0].dtype = io::Dtype::kI32; });
  REQUIRE(faults.size() == 2);
  CHECK_THAT(faults[1], Catch::Contains("__1_0.distcp: 'model.0.encoder.weight'") &&
                            Catch::Contains("it is F32 of [3, 5], the index says I32 of [3, 5]"));
  faults =
      faults_after([](DcpMetadata& m) { std::swap(m.tensors[0].chunks[0].offset, m.tensors[2].chunks[0].offset); });
  CHECK(faults.size() >= 2);
  faults = faults_after([](DcpMetadata& m) { m.tensors[0].shape = {std::int64_t{1} << 40, std::int64_t{1} << 40}; });
  CHECK_THAT(faults.at(0), Catch::Contains("too large"));
}

// A 3 x 3 square and a 2 x 2 x 2 cube.
TEST_CASE("tilings by boxes", "[checkpoint][dcp]") {
  const DcpChunk left{{0, 0}, {3, 1}, "f", 0, 0};
  const DcpChunk top{{0, 1}, {1, 2}, "f", 0, 0};
  const DcpChunk rest{{1, 1}, {2, 2}, "f", 0, 0};
  DcpTensor tensor{"t", {}, io::Dtype::kF32, {3, 3}, {rest, left, top}};
  CHECK_FALSE(tiling_fault(tensor));
  tensor.chunks.push_back({{3, 0}, {0, 3}, "f", 0, 0});
  CHECK_FALSE(tiling_fault(tensor));
  tensor.chunks.push_back(top);
  CHECK_THAT(tiling_fault(tensor).value_or(""), Catch::Contains("overlaps"));
  tensor.chunks = {left, rest};
  CHECK_THAT(tiling_fault(tensor).value_or(""), Catch::Contains("7 of its 9 elements"));
  // As many elements as the square holds, but one part lies on another.
  tensor.chunks = {left, rest, {{1, 0}, {1, 2}, "f", 0, 0}};
  CHECK_THAT(tiling_fault(tensor).value_or(""), Catch::Contains("overlaps"));
  DcpTensor cube{"c", {}, io::Dtype::kF32, {2, 2, 2}, {}};
  for (std::int64_t i = 0; i < 8; ++i) cube.chunks.push_back({{i / 4, i / 2 % 2, i % 2}, {1, 1, 1}, "f", 0, 0});
  CHECK_FALSE(tiling_fault(cube));
  cube.chunks[7].offsets = {1, 1, 0};
  CHECK_THAT(tiling_fault(cube).value_or(""), Catch::Contains("overlaps"));
  DcpTensor scalar{"s", {}, io::Dtype::kF32, {}, {}};
  CHECK_THAT(tiling_fault(scalar).value_or(""), Catch::Contains("0 of its 1"));
  scalar.chunks = {{{}, {}, "f", 0, 0}, {{}, {}, "g", 0, 0}};
  CHECK_THAT(tiling_fault(scalar).value_or(""), Catch::Contains("overlaps"));
}

TEST_CASE("damaged data is found by the content check", "[checkpoint][dcp]") {
  const TemporaryDirectory temporary;
  test::write_dcp(temporary.path("c"), 1);
  std::string bytes = io::read_text_file(temporary.path("c/__0_0.distcp"));
  const test::FullTensor tensor = test::full_tensors()[0];
  const std::size_t at = bytes.find({reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()});
  REQUIRE(at != std::string::npos);
  bytes[at + 3] ^= 1;
  io::write_file(temporary.path("c/__0_0.distcp"), bytes);
  CHECK(dcp_faults(temporary.path("c"), DcpCheck::kStructure).empty());
  const auto faults = dcp_faults(temporary.path("c"), DcpCheck::kContent);
  REQUIRE(faults.size() == 1);
  CHECK_THAT(faults[0], Catch::Contains("'archive/data/0' is damaged"));
}

TEST_CASE("Python's tensors that are not contiguous are refused", "[checkpoint][dcp]") {
  const TemporaryDirectory temporary;
  DcpFileWriter writer(temporary.path("f"));
  const std::int64_t sizes[] = {2, 3};
  const auto place = writer.append_tensor(io::Dtype::kU8, sizes, std::vector<std::byte>(6));
  writer.commit();
  const std::string bytes = io::read_text_file(temporary.path("f")).substr(0, place.length);
  const auto read = [](const std::string& blob) {
    return message_of<UserError>([&] { read_dcp_tensor(std::as_bytes(std::span(blob)), "f"); });
  };
  CHECK(read(bytes).empty());
  CHECK_THAT(read(replaced(bytes, "(K\x03K\x01t", "(K\x01K\x02t")), Catch::Contains("not contiguous"));
  CHECK_THAT(read(replaced(bytes, "(K\x02K\x03t", "(K\x03K\x03t")), Catch::Contains("too few"));
  CHECK_THAT(read(replaced(bytes, "little", "bitter")), Catch::Contains("byte order"));
}

// Nothing may crash, hang or take unbounded memory: a fault or a clean result, never anything else.
TEST_CASE("hostile bytes of Python's own checkpoint", "[checkpoint][dcp]") {
  const std::string golden = std::string(STFT_SOURCE_DIR) + "/test/golden/dcp/four_ranks";
  const std::string index = io::read_text_file(golden + "/.metadata");
  for (std::size_t size = 0; size < index.size(); ++size) CHECK_FALSE(index_error(index.substr(0, size)).empty());
  std::mt19937 random(7);
  const auto damage = [&](std::string bytes) {
    for (unsigned flips = 1 + random() % 3; flips > 0; --flips) {
      bytes[random() % bytes.size()] ^= static_cast<char>(1u << random() % 8);
    }
    return bytes;
  };
  for (int trial = 0; trial < 3000; ++trial) index_error(damage(index));
  const TemporaryDirectory temporary;
  std::filesystem::copy(golden, temporary.path("c"));
  const std::string data_file = temporary.path("c/__3_0.distcp");
  const std::string data = io::read_text_file(data_file);
  const auto read_everything = [&] {
    dcp_faults(temporary.path("c"), DcpCheck::kContent);
    message_of<UserError>([&] {
      const auto directory = DcpDirectory::open(temporary.path("c"));
      for (const DcpTensor& t : directory.tensors()) directory.read_rows(t, 0, t.shape.empty() ? 1 : t.shape[0]);
      for (const DcpObject& object : directory.objects()) directory.object(object.key);
    });
  };
  for (int trial = 0; trial < 300; ++trial) {
    const std::string damaged = trial % 2 == 0 ? damage(data) : damage(index);
    temporary.write(trial % 2 == 0 ? "c/__3_0.distcp" : "c/.metadata", damaged);
    read_everything();
    temporary.write(trial % 2 == 0 ? "c/__3_0.distcp" : "c/.metadata", trial % 2 == 0 ? data : index);
  }
  for (std::size_t size = 0; size < data.size(); size += 97) {
    temporary.write("c/__3_0.distcp", data.substr(0, size));
    CHECK_FALSE(dcp_faults(temporary.path("c"), DcpCheck::kStructure).empty());
  }
}

}  // namespace
}  // namespace stft::checkpoint
