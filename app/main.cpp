// The command line: subcommands and flags to options, exceptions to exit codes.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <map>
#include <new>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "check.h"
#include "dist/launch.h"
#include "encode.h"
#include "exit_codes.h"
#include "recipe/nearest.h"
#include "tokenize.h"
#include "train.h"

namespace stft::app {
namespace {

constexpr const char* kVersion = "stft " STFT_VERSION;

// Flags and commands of the contract that a later version brings: known, so that the message can say so.
void refuse_unavailable_flags(CLI::App& command, std::initializer_list<const char*> flags) {
  for (const char* flag : flags) {
    const std::string name(flag);
    command
        .add_option_function<std::string>(
            name, [name](const std::string&) { throw UserError(name + " is not available yet"); }, "not available yet")
        ->expected(0, 1);
  }
}

void refuse_unavailable_command(CLI::App& app, const char* name) {
  CLI::App* command = app.add_subcommand(name, "not available yet");
  command->allow_extras();
  command->callback([name] { throw UserError(std::string("stft ") + name + " is not available yet"); });
}

struct Parsed {
  TrainOptions train;
  CheckOptions check;
  TokenizeOptions tokenize;
  EncodeOptions encode;
  CLI::App* train_command = nullptr;
  CLI::App* check_command = nullptr;
  CLI::App* tokenize_command = nullptr;
  CLI::App* encode_command = nullptr;
};

void add_train(CLI::App& app, Parsed& parsed) {
  CLI::App* command = app.add_subcommand("train", "fine-tune the model of a recipe, sharded over ranks");
  command->add_option("recipe", parsed.train.recipe_path, "the recipe (YAML)")->required();
  command->add_option("--set", parsed.train.overrides, "override a key: a.b=value")->allow_extra_args(false);
  command->add_option("--nproc", parsed.train.nproc, "ranks on this machine")->check(CLI::Range(1, 4096));
  command->add_flag("--overwrite", parsed.train.overwrites, "replace the run that output_dir holds");
  refuse_unavailable_flags(*command, {"--resume", "--nnodes", "--node-rank", "--rdzv", "--max-restarts"});
  parsed.train_command = command;
}

void add_check(CLI::App& app, Parsed& parsed) {
  CLI::App* command = app.add_subcommand("check", "validate a recipe and print it resolved, without training");
  command->add_option("recipe", parsed.check.recipe_path, "the recipe (YAML)")->required();
  command->add_option("--set", parsed.check.overrides, "override a key: a.b=value")->allow_extra_args(false);
  command->add_option("--world-size", parsed.check.world_size, "number of ranks to check for")
      ->check(CLI::Range(1, 65536));
  parsed.check_command = command;
}

void add_tokenize(CLI::App& app, Parsed& parsed) {
  CLI::App* command = app.add_subcommand("tokenize", "token ids, tokens and offsets of texts, one JSON line each");
  command->add_option("model", parsed.tokenize.model, "a directory with a tokenizer.json")->required();
  auto* text = command->add_option("--text", parsed.tokenize.text, "one text");
  command->add_option("--input", parsed.tokenize.input_path, "a file, one text a line (default: standard input)")
      ->excludes(text);
  parsed.tokenize_command = command;
}

void add_encode(CLI::App& app, Parsed& parsed) {
  const std::map<std::string, eval::Precision> precisions = {{"float32", eval::Precision::kFloat32},
                                                             {"int8", eval::Precision::kInt8},
                                                             {"uint8", eval::Precision::kUint8},
                                                             {"binary", eval::Precision::kBinary},
                                                             {"ubinary", eval::Precision::kUbinary}};
  EncodeOptions& options = parsed.encode;
  CLI::App* command = app.add_subcommand("encode", "embeddings of the texts of a file, in order");
  command->add_option("model", options.model, "a model directory")->required();
  command->add_option("--input", options.input_path, "a file, one text a line, or a table with --column")->required();
  command->add_option("--column", options.column, "the column of a .jsonl, .csv or .tsv file that holds the texts");
  command->add_option("--output", options.output_path, "a .npy, .safetensors or .jsonl file")->required();
  command->add_option("--prompt-name", options.prompt_name, "the prompt of the model to put before every text");
  command->add_option("--truncate-dim", options.truncate_dim, "keep the first dimensions")
      ->check(CLI::Range(1, 1 << 30));
  command
      ->add_option_function<std::string>(
          "--precision", [&options, precisions](const std::string& name) { options.precision = precisions.at(name); },
          "float32 (default), int8, uint8, binary or ubinary")
      ->check(CLI::IsMember(precisions));
  command->add_option("--nproc", options.nproc, "ranks on this machine")->check(CLI::Range(1, 4096));
  command->add_flag("--overwrite", options.overwrites, "replace the output file");
  parsed.encode_command = command;
}

// CLI11 would only say that a command is missing.
void check_command_name(const CLI::App& app, const std::string& name) {
  if (name.empty() || name.starts_with("-")) {
    return;
  }
  std::vector<std::string> known;
  for (const CLI::App* command : app.get_subcommands({})) {
    known.push_back(command->get_name());
  }
  if (std::find(known.begin(), known.end(), name) == known.end()) {
    const std::string close = recipe::nearest(name, known);
    throw UserError("unknown command \"" + name + "\"" +
                    (recipe::is_close(name, close) ? "; did you mean " + close + "?" : "") +
                    " (commands: " + recipe::join_names(known) + ")");
  }
}

int dispatch(const Parsed& parsed, const std::vector<std::string>& arguments) {
  if (parsed.train_command->parsed()) {
    return run_train(parsed.train, arguments);
  }
  if (parsed.check_command->parsed()) {
    return run_check(parsed.check);
  }
  if (parsed.encode_command->parsed()) {
    return run_encode(parsed.encode, arguments);
  }
  return run_tokenize(parsed.tokenize);
}

int run(int argc, char** argv) {
  CLI::App app("Fine-tunes sentence-embedding models, sharded over many devices, from one recipe.", "stft");
  app.set_version_flag("--version", kVersion);
  app.require_subcommand(1);
  Parsed parsed;
  add_train(app, parsed);
  add_check(app, parsed);
  add_tokenize(app, parsed);
  add_encode(app, parsed);
  for (const char* name : {"eval", "export", "state-dict", "best", "verify", "mine", "plan"}) {
    refuse_unavailable_command(app, name);
  }
  check_command_name(app, argc > 1 ? argv[1] : "");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {
    return app.exit(asked);  // --help, --version
  } catch (const CLI::ParseError& mistake) {
    throw UserError(std::string(mistake.what()) + " (--help lists what is allowed)");
  }
  return dispatch(parsed, {argv + 1, argv + argc});
}

}  // namespace
}  // namespace stft::app

int main(int argc, char** argv) {
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
  } catch (const std::bad_alloc&) {
    stft::log::error("out of memory");
    return stft::app::kFailed;
  } catch (const std::exception& error) {
    stft::log::error(std::string("internal error, please report it: ") + error.what());
    return stft::app::kInternalError;
  }
}
