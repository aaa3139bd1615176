#include "command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "recipe/nearest.h"

namespace stft::app {
namespace {

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

void add_revision(CLI::App& command, std::string& revision) {
  command.add_option("--revision", revision, "branch, tag or commit of a hub's model (default: main)")->take_last();
}

void add_train(CLI::App& app, Parsed& parsed) {
  CLI::App* command = app.add_subcommand("train", "fine-tune the model of a recipe, sharded over ranks");
  command->add_option("recipe", parsed.train.recipe_path, "the recipe (YAML)")->required();
  command->add_option("--set", parsed.train.overrides, "override a key: a.b=value")->allow_extra_args(false);
  command->add_option("--nproc", parsed.train.nproc, "ranks on this machine")->check(CLI::Range(1, 4096));
  command->add_flag("--overwrite", parsed.train.overwrites, "replace the run that output_dir holds");
  command->add_option("--resume", parsed.train.resume,
                      "go on from a checkpoint: a directory, or auto for the newest complete one of output_dir");
  refuse_unavailable_flags(*command, {"--nnodes", "--node-rank", "--rdzv", "--max-restarts"});
  command->callback([&parsed] { parsed.command = Command::kTrain; });
}

void add_check(CLI::App& app, Parsed& parsed) {
  CLI::App* command = app.add_subcommand("check", "validate a recipe and print it resolved, without training");
  command->add_option("recipe", parsed.check.recipe_path, "the recipe (YAML)")->required();
  command->add_option("--set", parsed.check.overrides, "override a key: a.b=value")->allow_extra_args(false);
  command->add_option("--world-size", parsed.check.world_size, "number of ranks to check for")
      ->check(CLI::Range(1, 65536));
  command->callback([&parsed] { parsed.command = Command::kCheck; });
}

void add_tokenize(CLI::App& app, Parsed& parsed) {
  CLI::App* command = app.add_subcommand("tokenize", "token ids, tokens and offsets of texts, one JSON line each");
  command
      ->add_option("model", parsed.tokenize.model,
                   "a directory with a tokenizer.json or an older tokenizer's vocabulary, or a hub's model")
      ->required();
  add_revision(*command, parsed.tokenize.revision);
  auto* text = command->add_option("--text", parsed.tokenize.text, "one text");
  command->add_option("--input", parsed.tokenize.input_path, "a file, one text a line (default: standard input)")
      ->excludes(text);
  command->callback([&parsed] { parsed.command = Command::kTokenize; });
}

void add_encode(CLI::App& app, Parsed& parsed) {
  const std::map<std::string, eval::Precision> precisions = {{"float32", eval::Precision::kFloat32},
                                                             {"int8", eval::Precision::kInt8},
                                                             {"uint8", eval::Precision::kUint8},
                                                             {"binary", eval::Precision::kBinary},
                                                             {"ubinary", eval::Precision::kUbinary}};
  EncodeOptions& options = parsed.encode;
  CLI::App* command = app.add_subcommand("encode", "embeddings of the texts of a file, in order");
  command->add_option("model", options.model, "a model directory, or a hub's model")->required();
  add_revision(*command, options.revision);
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
  command->callback([&parsed] { parsed.command = Command::kEncode; });
}

void add_eval(CLI::App& app, Parsed& parsed) {
  CLI::App* command = app.add_subcommand("eval", "run a recipe's evaluators on a checkpoint or a model");
  command->add_option("model", parsed.eval.model, "a checkpoint, a model directory, or a hub's model")->required();
  add_revision(*command, parsed.eval.revision);
  command->add_option("--recipe", parsed.eval.recipe_path, "the recipe (default: the one saved with the run)");
  command->add_option("--set", parsed.eval.overrides, "override a key: a.b=value")->allow_extra_args(false);
  command->add_option("--nproc", parsed.eval.nproc, "ranks on this machine")->check(CLI::Range(1, 4096));
  command->add_flag("--json", parsed.eval.prints_json, "the metrics as one JSON object on standard output");
  command->callback([&parsed] { parsed.command = Command::kEval; });
}

void add_export(CLI::App& app, Parsed& parsed) {
  using checkpoint::WeightPrecision;
  static const std::map<std::string, WeightPrecision> precisions = {
      {"fp32", WeightPrecision::kFloat32}, {"bf16", WeightPrecision::kBFloat16}, {"fp16", WeightPrecision::kFloat16}};
  CLI::App* command = app.add_subcommand("export", "a checkpoint as a directory that sentence-transformers loads");
  command->add_option("checkpoint", parsed.exporting.checkpoint, "a checkpoint, a model directory, or a hub's model")
      ->required();
  add_revision(*command, parsed.exporting.revision);
  command->add_option("--out", parsed.exporting.out, "the directory to write")->required();
  command
      ->add_option_function<std::string>(
          "--dtype", [&parsed](const std::string& name) { parsed.exporting.precision = precisions.at(name); },
          "fp32, bf16 or fp16 for every floating-point tensor (default: the input model's own)")
      ->check(CLI::IsMember(precisions));
  command->add_flag("--merge-lora", parsed.exporting.merges_lora, "merge the adapter into the model");
  command->add_flag("--overwrite", parsed.exporting.overwrites, "replace what --out holds");
  command->add_option("--base-model", parsed.exporting.base_model,
                      "the base model of an adapter (default: the one it names)");
  static const std::map<std::string, MergeBase> bases = {{"original", MergeBase::kOriginal},
                                                         {"dequantized", MergeBase::kDequantized}};
  command
      ->add_option_function<std::string>(
          "--base", [&parsed](const std::string& name) { parsed.exporting.base = bases.at(name); },
          "with --merge-lora: original (default) or dequantized, as a QLoRA run computed with it")
      ->check(CLI::IsMember(bases));
  command->callback([&parsed] { parsed.command = Command::kExport; });
}

void add_state_dict(CLI::App& app, Parsed& parsed) {
  using checkpoint::StateDictType;
  static const std::map<std::string, StateDictType> modes = {{"full", StateDictType::kFull},
                                                             {"sharded", StateDictType::kSharded}};
  CLI::App* command =
      app.add_subcommand("state-dict", "a checkpoint in the other form, or cut for another number of ranks");
  command->add_option("checkpoint", parsed.state_dict.checkpoint, "a checkpoint of stft")->required();
  command
      ->add_option_function<std::string>(
          "--mode", [&parsed](const std::string& name) { parsed.state_dict.mode = modes.at(name); }, "full or sharded")
      ->required()
      ->check(CLI::IsMember(modes));
  command->add_option("--out", parsed.state_dict.out, "the directory to write")->required();
  command->add_option("--ranks", parsed.state_dict.ranks, "parts to cut it into (default: as it is)")
      ->check(CLI::Range(1, 65536));
  command->add_flag("--overwrite", parsed.state_dict.overwrites, "replace what --out holds");
  command->callback([&parsed] { parsed.command = Command::kStateDict; });
}

void add_best(CLI::App& app, Parsed& parsed) {
  CLI::App* command = app.add_subcommand("best", "find, prove and materialise the best checkpoint of a run");
  command->add_option("run", parsed.best.run_directory, "the run's output_dir")->required();
  command->add_option("--out", parsed.best.out, "write the best model to this directory");
  command->add_flag("--eval", parsed.best.evaluates,
                    "evaluate it again; exit 1 when the recorded metric does not hold");
  command->add_option("--nproc", parsed.best.nproc, "ranks on this machine, for --eval")->check(CLI::Range(1, 4096));
  command->add_flag("--overwrite", parsed.best.overwrites, "replace what --out holds");
  command->callback([&parsed] { parsed.command = Command::kBest; });
}

void add_verify(CLI::App& app, Parsed& parsed) {
  CLI::App* command = app.add_subcommand("verify", "check a checkpoint against its manifest, every byte");
  command->add_option("checkpoint", parsed.verify_checkpoint, "a checkpoint of stft")->required();
  command->callback([&parsed] { parsed.command = Command::kVerify; });
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

}  // namespace

std::optional<Parsed> parse_command_line(int argc, char** argv) {
  CLI::App app("Fine-tunes sentence-embedding models, sharded over many devices, from one recipe.", "stft");
  app.set_version_flag("--version", "stft " STFT_VERSION);
  app.require_subcommand(1);
  Parsed parsed;
  for (const auto& add :
       {add_train, add_check, add_tokenize, add_encode, add_eval, add_export, add_state_dict, add_best, add_verify}) {
    add(app, parsed);
  }
  for (const char* name : {"mine", "plan"}) {
    refuse_unavailable_command(app, name);
  }
  check_command_name(app, argc > 1 ? argv[1] : "");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {
    app.exit(asked);  // --help, --version
    return std::nullopt;
  } catch (const CLI::ParseError& mistake) {
    throw UserError(std::string(mistake.what()) + " (--help lists what is allowed)");
  }
  return parsed;
}

}  // namespace stft::app
