// Subcommands and flags to options.
#pragma once

#include <optional>
#include <string>

#include "best.h"
#include "check.h"
#include "encode.h"
#include "eval.h"
#include "export.h"
#include "state_dict.h"
#include "tokenize.h"
#include "train.h"

namespace stft::app {

enum class Command { kTrain, kCheck, kTokenize, kEncode, kEval, kExport, kStateDict, kBest, kVerify };

struct Parsed {
  Command command = Command::kTrain;
  TrainOptions train;
  CheckOptions check;
  TokenizeOptions tokenize;
  EncodeOptions encode;
  EvalOptions eval;
  ExportOptions exporting;
  StateDictOptions state_dict;
  BestOptions best;
  std::string verify_checkpoint;
};

// None when help or the version was asked for and shown. UserError for anything that is not allowed.
std::optional<Parsed> parse_command_line(int argc, char** argv);

}  // namespace stft::app
