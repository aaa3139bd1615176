// For builds without CUDA.
#include <catch2/catch.hpp>

#include "base/error.h"
#include "dist/process_group.h"

TEST_CASE("a group over NCCL is refused by a build without CUDA") {
  const auto rendezvous = stft::dist::Rendezvous::in_process();
  try {
    stft::dist::ProcessGroup::over_nccl(rendezvous, {});
    FAIL("made a group");
  } catch (const stft::UserError& error) {
    CHECK_THAT(error.what(), Catch::Contains("this build has no CUDA"));
  }
}
