#include "train/first_rank.h"

#include <chrono>
#include <cstdint>
#include <exception>
#include <future>
#include <vector>

#include "base/error.h"

namespace stft::train {
namespace {

enum class State : int64_t { kUnderWay, kDone, kUserError, kSystemError, kOtherError };

struct Result {
  State state = State::kUnderWay;
  std::string text;  // the result, or the error's message
  std::exception_ptr other;
};

Result run(const std::function<std::string()>& work) {
  try {
    return {State::kDone, work(), nullptr};
  } catch (const UserError& error) {
    return {State::kUserError, error.what(), nullptr};
  } catch (const SystemError& error) {
    return {State::kSystemError, error.what(), nullptr};
  } catch (const std::exception& error) {
    return {State::kOtherError, error.what(), std::current_exception()};
  } catch (...) {
    return {State::kOtherError, "an unknown error", std::current_exception()};
  }
}

// Collective: what rank 0's work came to. `future` is rank 0's.
Result wait_together(dist::ProcessGroup& world, std::future<Result>& future, double seconds) {
  Result result;
  while (true) {
    if (world.rank() == 0 && future.wait_for(std::chrono::duration<double>(seconds)) == std::future_status::ready) {
      result = future.get();
    }
    const auto states = dist::gather_integers(world, {static_cast<int64_t>(result.state)});
    result.state = static_cast<State>(states.front().front());
    if (result.state != State::kUnderWay) {
      break;
    }
  }
  result.text = dist::broadcast_text(world, result.text);
  return result;
}

}  // namespace

std::string on_first_rank(dist::ProcessGroup& world, const std::function<std::string()>& work,
                          double seconds_between_meetings) {
  std::future<Result> future;
  if (world.rank() == 0) {
    future = std::async(std::launch::async, run, std::cref(work));
  }
  const Result result = wait_together(world, future, seconds_between_meetings);
  switch (result.state) {
    case State::kDone:
      return result.text;
    case State::kUserError:
      throw UserError(result.text);
    case State::kSystemError:
      throw SystemError(result.text);
    case State::kUnderWay:
    case State::kOtherError:
      break;
  }
  if (result.other) {
    std::rethrow_exception(result.other);
  }
  throw SystemError("rank 0: " + result.text);
}

}  // namespace stft::train
