// The checkpoints that runs leave, in Python's torch, accelerate, transformers and sentence-transformers. Needs
// STFT_PEER_PYTHON as peer_test does.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>
#include <vector>

#include "checkpoint/dcp_reader.h"
#include "e2e/checkpoint_run.h"
#include "io/safetensors.h"

namespace stft::test {
namespace {

struct PeerCase {
  const char* kind;
  int ranks;
};

// The moments that Python found are those that our reader finds.
void check_moments(const std::string& found, const std::string& optimizer) {
  const auto moments = io::SafetensorsFile::open(found);
  const auto directory = checkpoint::DcpDirectory::open(optimizer);
  CHECK(moments.tensors().size() == directory.tensors().size());
  for (const auto& tensor : moments.tensors()) {
    CAPTURE(tensor.name);
    const auto* ours = directory.find("optimizer.state." + tensor.name);
    REQUIRE(ours != nullptr);
    const auto theirs = moments.bytes(tensor);
    const auto bytes = directory.read_rows(*ours, 0, tensor.shape.empty() ? 1 : tensor.shape.front());
    CHECK(std::equal(bytes.begin(), bytes.end(), theirs.begin(), theirs.end()));
    CHECK(std::any_of(bytes.begin(), bytes.end(), [](std::byte byte) { return byte != std::byte{0}; }));
  }
}

}  // namespace

TEST_CASE("Python loads the model and the optimizer of every kind of checkpoint, of 1, 2 and 3 ranks", "[peer]") {
  const char* python = std::getenv("STFT_PEER_PYTHON");
  if (python == nullptr || *python == '\0') {
    WARN("STFT_PEER_PYTHON is not set, so Python was not asked");
    return;
  }
  for (const PeerCase& one : {PeerCase{"SHARDED_STATE_DICT", 1}, PeerCase{"SHARDED_STATE_DICT", 2},
                              PeerCase{"SHARDED_STATE_DICT", 3}, PeerCase{"FULL_STATE_DICT", 2}}) {
    CAPTURE(one.kind, one.ranks);
    const TemporaryDirectory directory;
    const std::string run = directory.path("run");
    train({run,
           one.ranks,
           {std::string("checkpoint.state_dict_type=") + one.kind, "checkpoint.load_best_model_at_end=false"}});
    Command command;
    command.program = python;
    command.arguments = {
        source_path("test/e2e/peer_checkpoint.py"), run + "/checkpoint-30", run + "/final", "--step", "30", "--moments",
        directory.path("moments.safetensors")};
    const Outcome outcome = run_stft(command, 180);
    INFO(outcome.err);
    REQUIRE(outcome.exit_code == 0);
    check_moments(directory.path("moments.safetensors"), run + "/checkpoint-30/optimizer_0");
  }
}

}  // namespace stft::test
