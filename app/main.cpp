// Commands to functions, exceptions to exit codes.
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "command_line.h"
#include "dist/launch.h"
#include "exit_codes.h"
#include "verify.h"

namespace stft::app {
namespace {

int run(int argc, char** argv) {
  const auto parsed = parse_command_line(argc, argv);
  if (!parsed) {
    return kDone;
  }
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  switch (parsed->command) {
    case Command::kTrain:
      return run_train(parsed->train, arguments);
    case Command::kCheck:
      return run_check(parsed->check);
    case Command::kTokenize:
      return run_tokenize(parsed->tokenize);
    case Command::kEncode:
      return run_encode(parsed->encode, arguments);
    case Command::kEval:
      return run_eval(parsed->eval, arguments);
    case Command::kExport:
      return run_export(parsed->exporting);
    case Command::kStateDict:
      return run_state_dict(parsed->state_dict);
    case Command::kBest:
      return run_best(parsed->best, arguments);
    case Command::kVerify:
      return run_verify(parsed->verify_checkpoint);
  }
  throw_internal("known command", "");
}

}  // namespace
}  // namespace stft::app

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond the file size limit fails with a message, as on a full disk
  try {
    return stft::app::run(argc, argv);
  } catch (const stft::UserError& error) {
    stft::log::error(error.what());
    return stft::app::kUserMistake;
  } catch (const stft::CollectiveError& error) {
    stft::log::error(error.what());
    return std::getenv("STFT_LAUNCHED") != nullptr ? stft::dist::kCollectiveExitCode : stft::app::kFailed;
  } catch (const stft::SystemError& error) {
    stft::log::error(error.what());
    return stft::app::kFailed;
  } catch (const std::filesystem::filesystem_error& error) {
    stft::log::error(error.what());  // a path that cannot be looked at
    return stft::app::kFailed;
  } catch (const std::bad_alloc&) {
    stft::log::error("out of memory");
    return stft::app::kFailed;
  } catch (const std::exception& error) {
    stft::log::error(std::string("internal error, please report it: ") + error.what());
    return stft::app::kInternalError;
  }
}
