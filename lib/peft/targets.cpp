#include "peft/targets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>

#include "base/error.h"
#include "peft/name_pattern.h"

namespace stft::peft {
namespace {

// PEFT 0.21's choice for a family when target_modules is not given.
const std::vector<std::string>& default_targets(const std::string& model_type) {
  static const std::map<std::string, std::vector<std::string>> targets = {{"bert", {"query", "value"}},
                                                                          {"deberta-v2", {"query_proj", "value_proj"}},
                                                                          {"electra", {"query", "value"}},
                                                                          {"gemma2", {"q_proj", "v_proj"}},
                                                                          {"gemma3_text", {"q_proj", "v_proj"}},
                                                                          {"llama", {"q_proj", "v_proj"}},
                                                                          {"mistral", {"q_proj", "v_proj"}},
                                                                          {"qwen2", {"q_proj", "v_proj"}},
                                                                          {"qwen3", {"q_proj", "v_proj"}},
                                                                          {"roberta", {"query", "value"}},
                                                                          {"t5", {"q", "v"}},
                                                                          {"xlm-roberta", {"query", "value"}}};
  static const std::vector<std::string> none;
  const auto found = targets.find(model_type);
  return found == targets.end() ? none : found->second;
}

std::vector<std::string> parts_of(const std::string& name) {
  std::vector<std::string> parts;
  size_t start = 0;
  while (start <= name.size()) {
    const size_t end = std::min(name.find('.', start), name.size());
    parts.push_back(name.substr(start, end - start));
    start = end + 1;
  }
  return parts;
}

bool is_number(const std::string& part) {
  return !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
}

// The number of the layer that a module lies in: the first part of its name that is one.
std::optional<int64_t> layer_of(const std::string& name) {
  for (const std::string& part : parts_of(name)) {
    int64_t number = 0;
    if (is_number(part) && std::from_chars(part.data(), part.data() + part.size(), number).ec == std::errc()) {
      return number;
    }
  }
  return std::nullopt;
}

bool is_any_named(const std::string& name, const std::vector<std::string>& modules) {
  return std::any_of(modules.begin(), modules.end(),
                     [&](const std::string& module) { return is_module_named(name, module); });
}

// PEFT's order of exclusion: exclude_modules, then modules_to_save.
bool is_excluded(const std::string& name, const AdapterConfig& config) {
  const bool by_name = config.exclude_modules_is_list ? is_any_named(name, config.exclude_modules)
                                                      : !config.exclude_modules.empty() &&
                                                            NamePattern(config.exclude_modules.front()).matches(name);
  return by_name || std::any_of(config.modules_to_save.begin(), config.modules_to_save.end(),
                                [&](const std::string& module) { return lies_in_module(name, module); });
}

bool is_in_layers(const std::string& name, const AdapterConfig& config) {
  if (!config.layers_to_transform) {
    return true;
  }
  const auto layer = layer_of(name);
  return layer && std::find(config.layers_to_transform->begin(), config.layers_to_transform->end(), *layer) !=
                      config.layers_to_transform->end();
}

[[noreturn]] void throw_nothing(const std::vector<std::string>& names, const std::string& what,
                                const std::string& where) {
  throw UserError(fmt::format("{}: {}; the model's linear modules are {}", where, what, grouped_names(names)));
}

TargetChoice choose_from_list(const std::vector<std::string>& names, const std::vector<std::string>& entries,
                              const AdapterConfig& config) {
  TargetChoice choice;
  for (const std::string& entry : entries) {
    if (std::none_of(names.begin(), names.end(),
                     [&](const std::string& name) { return is_module_named(name, entry); })) {
      choice.unmatched.push_back(entry);
    }
  }
  for (const std::string& name : names) {
    if (is_any_named(name, entries) && !is_excluded(name, config) && is_in_layers(name, config)) {
      choice.targets.push_back(with_patterns(name, config));
    }
  }
  return choice;
}

// A key of rank_pattern and alpha_pattern.
NamePattern at_the_end(const std::string& key) {
  return NamePattern("(?:.*\\.)?(?:" + key + ")");
}

}  // namespace

void check_patterns(const AdapterConfig& config, const std::function<std::string(const std::string& key)>& where) {
  const auto check = [&](const std::string& key, const auto& compile) {
    try {
      compile();
    } catch (const UserError& error) {
      throw UserError(where(key) + ": " + error.what());
    }
  };
  if (!config.target_modules_is_list && !config.target_modules.empty()) {
    check("target_modules", [&] { NamePattern(config.target_modules.front()); });
  }
  if (!config.exclude_modules_is_list && !config.exclude_modules.empty()) {
    check("exclude_modules", [&] { NamePattern(config.exclude_modules.front()); });
  }
  for (const auto& [key, r] : config.rank_pattern) {
    check("rank_pattern", [&, &pattern = key] { at_the_end(pattern); });
  }
  for (const auto& [key, alpha] : config.alpha_pattern) {
    check("alpha_pattern", [&, &pattern = key] { at_the_end(pattern); });
  }
}

bool is_module_named(const std::string& name, const std::string& module) {
  return name == module ||
         (name.size() > module.size() && name.ends_with(module) && name[name.size() - module.size() - 1] == '.');
}

bool lies_in_module(const std::string& name, const std::string& module) {
  return ("." + name + ".").find("." + module + ".") != std::string::npos;
}

Target with_patterns(const std::string& name, const AdapterConfig& config) {
  Target target{name, config.r, config.lora_alpha};
  const auto fits = [&](const std::string& key) { return at_the_end(key).matches(name); };
  for (const auto& [key, r] : config.rank_pattern) {
    if (fits(key)) {
      target.r = r;
      break;
    }
  }
  for (const auto& [key, alpha] : config.alpha_pattern) {
    if (fits(key)) {
      target.alpha = alpha;
      break;
    }
  }
  return target;
}

double scale_of(const Target& target, bool use_rslora) {
  const auto r = static_cast<double>(target.r);
  return target.alpha / (use_rslora ? std::sqrt(r) : r);
}

std::string grouped_names(const std::vector<std::string>& names) {
  std::vector<std::pair<std::string, int64_t>> groups;
  for (const std::string& name : names) {
    auto parts = parts_of(name);
    std::replace_if(parts.begin(), parts.end(), is_number, "*");
    const std::string group = fmt::format("{}", fmt::join(parts, "."));
    const auto found =
        std::find_if(groups.begin(), groups.end(), [&](const auto& entry) { return entry.first == group; });
    if (found == groups.end()) {
      groups.emplace_back(group, 1);
    } else {
      found->second += 1;
    }
  }
  std::vector<std::string> shown;
  for (const auto& [group, count] : groups) {
    shown.push_back(count == 1 ? group : fmt::format("{} ({})", group, count));
  }
  return fmt::format("{}", fmt::join(shown, ", "));
}

TargetChoice choose_targets(const ModuleNames& modules, const AdapterConfig& config, const std::string& model_type,
                            const std::string& where) {
  const std::vector<std::string>& entries =
      config.target_modules.empty() ? default_targets(model_type) : config.target_modules;
  std::vector<std::string> names = modules.linear;
  names.insert(names.end(), modules.tables.begin(), modules.tables.end());
  if (entries.empty()) {
    throw_nothing(modules.linear, fmt::format("required, since PEFT has no default for '{}'", model_type), where);
  }
  const bool is_text = !config.target_modules.empty() && !config.target_modules_is_list;
  TargetChoice choice;
  if (is_text && entries.front() == "all-linear") {
    for (const std::string& name : modules.linear) {
      if (!is_excluded(name, config)) {
        choice.targets.push_back(with_patterns(name, config));
      }
    }
  } else if (is_text) {
    const NamePattern pattern(entries.front());
    for (const std::string& name : names) {
      if (pattern.matches(name) && !is_excluded(name, config)) {
        choice.targets.push_back(with_patterns(name, config));
      }
    }
  } else {
    choice = choose_from_list(names, entries, config);
  }
  if (choice.targets.empty()) {
    throw_nothing(modules.linear, fmt::format("'{}' matches nothing", fmt::join(entries, "', '")), where);
  }
  return choice;
}

}  // namespace stft::peft
