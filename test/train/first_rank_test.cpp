#include "train/first_rank.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.h"
#include "support/thread_ranks.h"

namespace stft::test {
namespace {

// What each of three ranks gets: its text, or the kind and message of its error.
std::vector<std::string> results(const std::function<std::string()>& work) {
  std::vector<std::string> texts(3);
  run_ranks(3, [&](std::unique_ptr<dist::ProcessGroup> world) {
    std::string& text = texts[static_cast<size_t>(world->rank())];
    try {
      text = train::on_first_rank(*world, work, 0.01);
    } catch (const UserError& error) {
      text = std::string("user: ") + error.what();
    } catch (const SystemError& error) {
      text = std::string("system: ") + error.what();
    } catch (const std::logic_error& error) {
      text = std::string("other: ") + error.what();
    }
  });
  return texts;
}

std::vector<std::string> three(const std::string& text) {
  return {text, text, text};
}

}  // namespace

TEST_CASE("the first rank's text, or its error, is everybody's", "[train]") {
  int calls = 0;
  CHECK(results([&] { return "text " + std::to_string(++calls); }) == three("text 1"));
  CHECK(results([] { return std::string(); }) == three(""));
  CHECK(results([] { return "caf\xc3\xa9\n" + std::string(5000, 'x'); }) ==
        three("caf\xc3\xa9\n" + std::string(5000, 'x')));
  CHECK(results([]() -> std::string { throw UserError("no such model"); }) == three("user: no such model"));
  CHECK(results([]() -> std::string { throw SystemError("disk full"); }) == three("system: disk full"));
  CHECK(results([]() -> std::string { throw std::logic_error("bug"); }) ==
        std::vector<std::string>{"other: bug", "system: rank 0: bug", "system: rank 0: bug"});
}

TEST_CASE("work may take longer than a meeting", "[train]") {
  CHECK(results([] {
          // Many meetings pass.
          std::mutex mutex;
          std::unique_lock lock(mutex);
          std::condition_variable().wait_for(lock, std::chrono::milliseconds(300));
          return std::string("late");
        }) == three("late"));
}

TEST_CASE("one rank does the work itself", "[train]") {
  const auto world = dist::ProcessGroup::single();
  CHECK(train::on_first_rank(*world, [] { return std::string("alone"); }) == "alone");
}

}  // namespace stft::test
