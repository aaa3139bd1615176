// Which projections of a model get an adapter, by PEFT's rules.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "peft/peft_config.h"

namespace stft::peft {

struct Target {
  std::string name;  // of the projection
  int64_t r = 0;
  double alpha = 0;
};

struct TargetChoice {
  std::vector<Target> targets;         // in the order of the names
  std::vector<std::string> unmatched;  // entries of target_modules that match no name
};

// What can be targeted, by name. all-linear means the linear ones.
struct ModuleNames {
  std::vector<std::string> linear;
  std::vector<std::string> tables;  // of embeddings
};

// `model_type` gives what PEFT targets when target_modules is empty. UserError that begins with `where` and lists the
// linear names when nothing matches.
TargetChoice choose_targets(const ModuleNames& modules, const AdapterConfig& config, const std::string& model_type,
                            const std::string& where);

// UserError for a regular expression that is not valid, its text beginning with what `where` says of its key.
void check_patterns(const AdapterConfig& config, const std::function<std::string(const std::string& key)>& where);

// r and alpha of a module: rank_pattern and alpha_pattern, else the general ones.
Target with_patterns(const std::string& name, const AdapterConfig& config);

// What the branch's sum is multiplied by.
double scale_of(const Target& target, bool use_rslora);

// Whether `name` is that of module `module`, or ends with it behind a dot.
bool is_module_named(const std::string& name, const std::string& module);

// Whether a tensor or module lies in a module of modules_to_save's entry `module`.
bool lies_in_module(const std::string& name, const std::string& module);

// Names with layer numbers replaced by "*" and counted: "encoder.layer.*.output.dense (6)", joined with ", ".
std::string grouped_names(const std::vector<std::string>& names);

}  // namespace stft::peft
