#include <catch2/catch.hpp>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"
#include "checkpoint/dcp_fixture.h"
#include "checkpoint/dcp_reader.h"
#include "io/safetensors.h"
#include "io/temporary_directory.h"

namespace stft::checkpoint {
namespace {

using test::message_of;
using test::TemporaryDirectory;

// Every range of rows, cut out of the whole tensor.
void check_all_rows(const DcpDirectory& directory, const DcpTensor& tensor, std::span<const std::byte> whole) {
  const std::int64_t rows = tensor.shape.empty() ? 1 : tensor.shape[0];
  const std::size_t row = rows == 0 ? 0 : whole.size() / static_cast<std::size_t>(rows);
  for (std::int64_t first = 0; first <= rows; ++first) {
    for (std::int64_t count = 0; count <= rows - first; ++count) {
      const auto wanted = whole.subspan(static_cast<std::size_t>(first) * row, static_cast<std::size_t>(count) * row);
      const auto read = directory.read_rows(tensor, first, count);
      INFO(tensor.key << " rows " << first << " + " << count);
      CHECK(std::equal(read.begin(), read.end(), wanted.begin(), wanted.end()));
    }
  }
}

TEST_CASE("what 1, 2 and 3 writers write reads back at any rows", "[checkpoint][dcp]") {
  for (const int world : {1, 2, 3}) {
    // 0: every archive in 64-bit form, as of data over 4 GiB.
    for (const std::uint64_t zip64_from : {std::uint64_t{0xFFFFFFFF}, std::uint64_t{0}}) {
      const TemporaryDirectory temporary;
      const std::string path = temporary.path("checkpoint");
      test::write_dcp(path, world, {64, zip64_from});
      CHECK(dcp_faults(path, DcpCheck::kContent).empty());
      const auto directory = DcpDirectory::open(path);
      for (const test::FullTensor& tensor : test::full_tensors()) {
        const DcpTensor* found = directory.find("model." + tensor.name);
        REQUIRE(found != nullptr);
        CHECK(found->shape == tensor.shape);
        CHECK(found->dtype == tensor.dtype);
        CHECK((found->path == DcpPath{std::string("model"), tensor.name}));
        check_all_rows(directory, *found, tensor.bytes);
      }
      for (const auto& [name, value] : test::optimizer_values()) {
        CHECK(directory.object("optimizer.param_groups.0." + name) == value);
      }
      CHECK((directory.find_object("optimizer.param_groups.0.lr")->path[2] == DcpPath::value_type(std::int64_t{0})));
      CHECK(directory.find("model.absent") == nullptr);
      CHECK_THROWS_AS(directory.object("model.absent"), UserError);
      CHECK(directory.tensors().size() == test::full_tensors().size());
    }
  }
}

TEST_CASE("equal checkpoints have equal bytes", "[checkpoint][dcp]") {
  const TemporaryDirectory temporary;
  test::write_dcp(temporary.path("a"), 2);
  test::write_dcp(temporary.path("b"), 2);
  for (const std::string file : {"/.metadata", "/__0_0.distcp", "/__1_0.distcp"}) {
    CHECK(io::read_text_file(temporary.path("a") + file) == io::read_text_file(temporary.path("b") + file));
  }
}

TEST_CASE("the index reads back", "[checkpoint][dcp]") {
  DcpMetadata metadata;
  // An offset over 4 GiB, boxes, and empty chunks of two ranks at one place.
  metadata.tensors.push_back({"a.b", {std::string("a.b")}, io::Dtype::kF16, {4, 4}, {}});
  metadata.tensors[0].chunks = {{{0, 0}, {4, 2}, "x", 0, 10},
                                {{0, 2}, {4, 2}, "y", std::uint64_t{5} << 40, 70'000},
                                {{4, 0}, {0, 4}, "x", 10, 1},
                                {{4, 0}, {0, 4}, "y", 20, 1}};
  metadata.objects.push_back({"c.3", {std::string("c"), std::int64_t{3}}, "x", 11, 12});
  const auto read = parse_dcp_metadata(serialize(metadata), "here");
  REQUIRE(read.tensors.size() == 1);
  const DcpTensor& tensor = read.tensors[0];
  CHECK(tensor.dtype == io::Dtype::kF16);
  CHECK((tensor.path == metadata.tensors[0].path));
  REQUIRE(tensor.chunks.size() == 3);
  CHECK(tensor.chunks[1].offsets == std::vector<std::int64_t>{0, 2});
  CHECK(tensor.chunks[1].sizes == std::vector<std::int64_t>{4, 2});
  CHECK(tensor.chunks[1].file == "y");
  CHECK(tensor.chunks[1].offset == std::uint64_t{5} << 40);
  CHECK(tensor.chunks[1].length == 70'000);
  CHECK(tensor.chunks[2].file == "x");
  REQUIRE(read.objects.size() == 1);
  CHECK((read.objects[0].path == metadata.objects[0].path));
  CHECK(read.objects[0].offset == 11);
}

// Written by torch.distributed.checkpoint on four gloo ranks: rows, columns, 2 x 2 boxes, empty chunks.
TEST_CASE("Python's checkpoint of four ranks is read", "[checkpoint][dcp]") {
  const std::string golden = std::string(STFT_SOURCE_DIR) + "/test/golden/dcp/four_ranks";
  const auto expected = io::SafetensorsFile::open(golden + "_expected.safetensors");
  CHECK(dcp_faults(golden, DcpCheck::kContent).empty());
  const auto directory = DcpDirectory::open(golden);
  CHECK(directory.tensors().size() == expected.tensors().size());
  for (const io::TensorInfo& info : expected.tensors()) {
    const DcpTensor* tensor = directory.find(info.name);
    REQUIRE(tensor != nullptr);
    CHECK(tensor->shape == info.shape);
    CHECK(tensor->dtype == info.dtype);
    check_all_rows(directory, *tensor, expected.bytes(info));
  }
  CHECK(directory.find("model.grid.weight")->chunks.size() == 4);
  const std::string group = "optimizer.param_groups.0.";
  CHECK(to_text(directory.object(group + "betas")) == "(0.9, 0.999)");
  CHECK(to_text(directory.object(group + "params")) == "['grid.weight', 'rows.weight', 'few.bias']");
  CHECK(directory.object(group + "amsgrad") == io::PythonValue{false});
  CHECK(directory.object(group + "fused") == io::PythonValue{io::PythonNone{}});
}

TEST_CASE("a writer that does not commit leaves nothing", "[checkpoint][dcp]") {
  const TemporaryDirectory temporary;
  {
    DcpFileWriter writer(temporary.path("__0_0.distcp"));
    writer.append_object({true});
  }
  CHECK(temporary.file_count() == 0);
  DcpFileWriter writer(temporary.path("__0_0.distcp"));
  CHECK_THROWS_AS(writer.append_tensor(io::Dtype::kU64, {}, std::vector<std::byte>(8)), UserError);
}

// By hand, for test/golden/dcp/check_dcp.py: STFT_DCP_OUT=DIR checkpoint_test "[dcp_write]" writes a directory,
// STFT_DCP_IN=DIR checkpoint_test "[dcp_read]" checks one.
TEST_CASE("writes a directory for Python", "[.][dcp_write]") {
  const char* out = std::getenv("STFT_DCP_OUT");
  REQUIRE(out != nullptr);
  test::write_dcp(out, 3);
  std::vector<io::TensorSpec> specs;
  for (const auto& tensor : test::full_tensors()) specs.push_back({"model." + tensor.name, tensor.dtype, tensor.shape});
  io::SafetensorsWriter expected(std::string(out) + "/expected.safetensors", specs, {});
  for (const io::TensorInfo& info : expected.layout()) {
    for (const auto& tensor : test::full_tensors()) {
      if ("model." + tensor.name == info.name) expected.append(tensor.bytes);
    }
  }
  expected.finish();
}

TEST_CASE("checks a directory", "[.][dcp_read]") {
  const char* in = std::getenv("STFT_DCP_IN");
  REQUIRE(in != nullptr);
  for (const std::string& fault : dcp_faults(in, DcpCheck::kContent)) FAIL_CHECK(fault);
}

}  // namespace
}  // namespace stft::checkpoint
