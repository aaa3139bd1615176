// Disks that are full, stop taking writes, or refuse one rank's file: every rank ends soon, the message says what could
// not be done, and the checkpoints from before are whole.
#include <sys/resource.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "e2e/interrupted_run.h"
#include "e2e/small_disk.h"

namespace stft::test {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Contains;

constexpr double kEndSeconds = 30;

// Has the output a line with a failed operation, a path that contains `part`, and the reason?
bool names_failure(const std::string& output, const std::string& part, const std::string& reason) {
  const std::regex pattern(
      "error: (?:write|writing|create|creating directory|fsync|open|opening|renaming|renaming to|removing) "
      "'([^']*)': (.*)");
  std::istringstream lines(output);
  std::smatch match;
  for (std::string line; std::getline(lines, line);) {
    if (std::regex_search(line, match, pattern) && match.str(1).find(part) != std::string::npos &&
        match.str(2).starts_with(reason)) {
      return true;
    }
  }
  return false;
}

// A run in the directory's disk/run.
class DiskRun {
 public:
  explicit DiskRun(const std::string& type) : recipe_(saving_recipe(directory_, type)) {
    recipe_["run"]["output_dir"] = run();
    // Nothing is open for writing between two saves.
    recipe_["run"]["report_to"] = "none";
    recipe_path_ = write_recipe(directory_, recipe_);
  }

  std::string disk() const { return directory_.path("disk"); }
  std::string run() const { return directory_.path("disk/run"); }
  std::string checkpoint(int64_t step) const { return run() + "/checkpoint-" + std::to_string(step); }
  Command train(const std::vector<std::string>& more = {}) const {
    return {train_arguments(recipe_path_, more), {}, false};
  }

  // Bytes on disk of a run's first checkpoint.
  size_t checkpoint_bytes() const {
    const std::string measured = directory_.path("measured");
    const Outcome outcome = run_stft(train({"--set", "run.output_dir=" + measured, "--set", "train.max_steps=1"}), 120);
    INFO(outcome.err);
    REQUIRE(outcome.exit_code == 0);
    size_t bytes = 0;
    for (const auto& entry : fs::recursive_directory_iterator(measured + "/checkpoint-1")) {
      bytes += entry.is_regular_file() ? (entry.file_size() + 4095) / 4096 * 4096 : 4096;
    }
    return bytes;
  }

  // The run failed, what is there is whole, and a copy of it goes on to the end of a run that did not fail.
  void check_failed(const Outcome& outcome) const {
    REQUIRE(outcome.has_ended);
    CHECK(outcome.exit_code == 1);
    const auto newest = newest_checkpoint(run());
    REQUIRE(newest);
    CHECK(damaged_checkpoints(run()).empty());
    const std::string copy = directory_.path("copy");
    fs::remove_all(copy);
    fs::copy(run(), copy, fs::copy_options::recursive);
    check_goes_on(copy, *newest);
  }

  // `run_directory` is resumed from the step and ends as it should.
  void check_goes_on(const std::string& run_directory, int64_t step) const {
    const Outcome outcome = run_stft(train({"--resume", "auto", "--set", "run.output_dir=" + run_directory, "--set",
                                            "train.max_steps=" + std::to_string(step + 2)}),
                                     120);
    INFO(outcome.err);
    CHECK_THAT(outcome.err, Contains("going on from " + run_directory + "/checkpoint-" + std::to_string(step) + ":"));
    REQUIRE(outcome.exit_code == 0);
    const std::string reference = uninterrupted_run(directory_, recipe_, step + 2);
    CHECK(different_files(run_directory + "/final", reference + "/final").empty());
    CHECK(leftovers(run_directory).empty());
  }

 private:
  TemporaryDirectory directory_;
  Json recipe_;
  std::string recipe_path_;
};

// The disk has room for the first checkpoint and for `share` of the second.
void check_full_disk(const std::string& type, const std::vector<double>& shares) {
  const DiskRun run(type);
  const auto bytes = static_cast<double>(run.checkpoint_bytes());
  for (const double share : shares) {
    SmallDisk disk(run.disk(), static_cast<size_t>(bytes * (1 + share)) + 65536);
    const Outcome outcome = run_stft(run.train(), kEndSeconds);
    INFO(type << ", share " << share << "\n" << outcome.err);
    const int64_t newest = newest_checkpoint(run.run()).value_or(0);
    // With room for nearly all of it, the second checkpoint is whole and what is written after it is not.
    REQUIRE((newest == 1 || (newest == 2 && share > 0.7)));
    CHECK(names_failure(outcome.err, newest == 1 ? "/run/checkpoint-2.tmp" : "/run/", "No space left on device"));
    CHECK(leftovers(run.run()).empty());
    run.check_failed(outcome);
    disk.resize(static_cast<size_t>(bytes * 6));
    run.check_goes_on(run.run(), newest);
  }
}

// Files that a process writes may have this many bytes from now on.
void limit_file_size(pid_t pid, rlim_t bytes) {
  const rlimit limit{bytes, bytes};
  REQUIRE(::prlimit(pid, RLIMIT_FSIZE, &limit, nullptr) == 0);
}

}  // namespace

TEST_CASE("a full disk ends the run with its cause and leaves the last checkpoint whole", "[e2e][disk]") {
  if (SmallDisk::is_allowed()) {
    check_full_disk("SHARDED_STATE_DICT", {0.6});
    check_full_disk("FULL_STATE_DICT", {0.3});
  }
}

TEST_CASE("a disk may be full at any file of a checkpoint", "[.][slow][disk]") {
  if (SmallDisk::is_allowed()) {
    for (const char* type : {"SHARDED_STATE_DICT", "FULL_STATE_DICT"}) {
      check_full_disk(type, {0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9});
    }
  }
}

TEST_CASE("a disk without room for any checkpoint ends the run with its cause", "[e2e][disk]") {
  const std::string type = GENERATE("SHARDED_STATE_DICT", "FULL_STATE_DICT");
  const DiskRun run(type);
  if (SmallDisk::is_allowed()) {
    const SmallDisk disk(run.disk(), 256 * 1024);
    const Outcome outcome = run_stft(run.train(), kEndSeconds);
    INFO(type << "\n" << outcome.err);
    REQUIRE(outcome.has_ended);
    CHECK(outcome.exit_code == 1);
    CHECK(names_failure(outcome.err, "/run/checkpoint-1.tmp", "No space left on device"));
    CHECK(checkpoint_steps(run.run()).empty());
    CHECK(leftovers(run.run()).empty());
  }
}

TEST_CASE("a disk without room for final/ ends the run with its cause", "[e2e][disk]") {
  const DiskRun run("FULL_STATE_DICT");
  if (SmallDisk::is_allowed()) {
    const SmallDisk disk(run.disk(), 128 * 1024);
    const Outcome outcome =
        run_stft(run.train({"--set", "checkpoint.save_strategy=no", "--set", "train.max_steps=2"}), kEndSeconds);
    INFO(outcome.err);
    REQUIRE(outcome.has_ended);
    CHECK(outcome.exit_code == 1);
    CHECK(names_failure(outcome.err, "/run/final.tmp/", "No space left on device"));
    CHECK(leftovers(run.run()).empty());
    CHECK(!fs::exists(run.run() + "/final"));
  }
}

TEST_CASE("a disk that becomes read-only ends the run with its cause and keeps the checkpoints", "[e2e][disk]") {
  const std::string type = GENERATE("SHARDED_STATE_DICT", "FULL_STATE_DICT");
  const DiskRun run(type);
  if (SmallDisk::is_allowed()) {
    SmallDisk disk(run.disk(), 256 << 20);
    Process process(run.train());
    REQUIRE(wait_for_text(process, "saved checkpoint-2 "));
    disk.make_read_only();
    const Outcome outcome = process.wait(kEndSeconds);
    INFO(type << "\n" << outcome.err);
    CHECK(names_failure(outcome.err, "/run/", "Read-only file system"));
    run.check_failed(outcome);
    const int64_t newest = newest_checkpoint(run.run()).value_or(0);
    CHECK(newest >= 2);
    disk.make_writable();
    run.check_goes_on(run.run(), newest);
  }
}

TEST_CASE("a disk that is read-only from the start ends the run with its cause", "[e2e][disk]") {
  const DiskRun run("SHARDED_STATE_DICT");
  if (!SmallDisk::is_allowed()) {
    return;
  }
  SmallDisk disk(run.disk(), 256 << 20);
  const auto check_fails = [&](const std::vector<std::string>& more) {
    disk.make_read_only();
    const Outcome outcome = run_stft(run.train(more), kEndSeconds);
    INFO(outcome.err);
    REQUIRE(outcome.has_ended);
    CHECK(outcome.exit_code == 1);
    CHECK(names_failure(outcome.err, "/disk/run", "Read-only file system"));
    disk.make_writable();
  };
  SECTION("without the run's directory") {
    check_fails({});
    check_fails({"--set", "run.report_to=jsonl"});
    CHECK(fs::is_empty(run.disk()));
  }
  SECTION("with an empty directory") {
    fs::create_directory(run.run());
    check_fails({});
    check_fails({"--set", "run.report_to=jsonl"});
    CHECK(fs::is_empty(run.run()));
  }
  SECTION("with a run to go on with, or to replace") {
    REQUIRE(run_stft(run.train({"--set", "train.max_steps=3"}), 120).exit_code == 0);
    check_fails({"--resume", "auto"});
    check_fails({"--resume", run.checkpoint(2)});
    check_fails({"--overwrite"});
    CHECK(checkpoint_steps(run.run()) == std::vector<int64_t>{1, 2, 3});
    CHECK(damaged_checkpoints(run.run()).empty());
    run.check_goes_on(run.run(), 3);
  }
}

TEST_CASE("one rank's file that cannot be written ends all ranks and is named", "[e2e][disk]") {
  const std::string type = GENERATE("SHARDED_STATE_DICT", "FULL_STATE_DICT");
  const int rank = GENERATE(0, 1);
  const DiskRun run(type);
  Process process(run.train());
  REQUIRE(wait_for_text(process, "saved checkpoint-1 "));
  const std::vector<RankProcess> ranks = ranks_of(process.pid());
  REQUIRE(ranks.size() == 2);
  // Rank 1 writes its shards only; rank 0's small files stay below the limit.
  limit_file_size(handle_of(ranks, rank).pid(), 32 * 1024);
  const Outcome outcome = process.wait(kEndSeconds);
  INFO(type << ", rank " << rank << "\n" << outcome.err);
  CHECK_THAT(outcome.err, Contains("error: rank " + std::to_string(rank) + " failed with exit code 1:"));
  CHECK(names_failure(outcome.err, "/run/checkpoint-", "File too large"));
  if (rank == 1) {
    CHECK_THAT(outcome.err, Contains("/__1_0.distcp"));
  }
  CHECK(leftovers(run.run()).empty());
  run.check_failed(outcome);
}

}  // namespace stft::test
