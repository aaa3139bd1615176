#include "hub/file_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "base/error.h"
#include "hub/hub_config.h"
#include "io/json.h"

namespace stft::hub {
namespace {

// A row of modules.json.
struct Module {
  std::string folder;  // empty: the root
  std::string type;    // "Pooling", the last part of the class's name
};

std::string in_folder(const std::string& folder, const std::string& name) {
  return folder.empty() ? name : folder + "/" + name;
}

bool has_weights(const Module& module) {
  static constexpr std::array<const char*, 3> kWithout = {"Pooling", "Normalize", "Dropout"};
  return std::find(kWithout.begin(), kWithout.end(), module.type) == kWithout.end();
}

// Dense and the like have weights, but no tokenizer.
bool has_tokenizer(const Module& module) {
  static constexpr std::array<const char*, 4> kWithout = {"Dense", "LayerNorm", "CNN", "LSTM"};
  return has_weights(module) && std::find(kWithout.begin(), kWithout.end(), module.type) == kWithout.end();
}

std::vector<Module> read_modules(const std::string& path) {
  const io::Json json = io::read_json_file(path);
  if (!json.is_array()) {
    throw UserError(fmt::format("{}: {} instead of a list of modules", path, io::json_type_name(json)));
  }
  std::vector<Module> modules;
  for (const io::Json& row : json) {
    Module module;
    module.folder = io::optional_string(row, "path", path).value_or("");
    const std::string type = io::get_string(row, "type", path);
    module.type = type.substr(type.rfind('.') + 1);
    while (module.folder.ends_with('/')) {
      module.folder.pop_back();
    }
    module.folder = module.folder == "." ? "" : module.folder;  // as model2vec writes it
    if (!module.folder.empty() && !is_relative_path(module.folder)) {
      throw UserError(fmt::format("{}: the path '{}' of a module is no folder of the model", path, module.folder));
    }
    modules.push_back(std::move(module));
  }
  return modules;
}

// The files that an index of weights names.
std::set<std::string> read_shards(const std::string& path) {
  const io::Json json = io::read_json_file(path);
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (!json.is_object() || map == json.end() || !map->is_object()) {
    throw UserError(path + ": has no object weight_map");
  }
  std::set<std::string> shards;
  for (const auto& entry : map->items()) {
    if (!entry.value().is_string() || !is_relative_path(entry.value().get<std::string>())) {
      throw UserError(fmt::format("{}: '{}' is not in a file of the model's folder", path, entry.key()));
    }
    shards.insert(entry.value().get<std::string>());
  }
  return shards;
}

class Chooser {
 public:
  explicit Chooser(FileSource& source) : source_(source) {}

  FileChoice choose(Wanted wanted) {
    add("modules.json");
    const bool is_adapter = is_there(add_if_there("adapter_config.json"));
    std::vector<Module> modules = {{"", "Transformer"}};
    if (const auto path = open_if_there("modules.json")) {
      modules = read_modules(*path);
    }
    add("config_sentence_transformers.json");
    add("sentence_bert_config.json");
    for (const Module& module : modules) {
      add_module(module, wanted, is_adapter && module.folder.empty());
    }
    if (wanted == Wanted::kModel && is_adapter) {
      add_adapter();
    }
    return std::move(choice_);
  }

 private:
  static bool is_there(Presence presence) { return presence == Presence::kCached || presence == Presence::kElsewhere; }

  // A file that changes how the model is read.
  Presence add(const std::string& file) {
    const Presence presence = source_.presence(file);
    if (!seen_.insert(file).second) {
      return presence;
    }
    auto& list = is_there(presence) ? choice_.needed : presence == Presence::kAbsent ? choice_.absent : choice_.unknown;
    list.push_back(file);
    return presence;
  }

  // A file that may as well be missing.
  Presence add_if_there(const std::string& file) {
    const Presence presence = source_.presence(file);
    return is_there(presence) ? add(file) : presence;
  }

  std::optional<std::string> open_if_there(const std::string& file) {
    return is_there(source_.presence(file)) ? source_.open(file) : std::nullopt;
  }

  void add_module(const Module& module, Wanted wanted, bool is_adapter) {
    if (has_tokenizer(module)) {
      add_tokenizer(module.folder, is_adapter);
    }
    if (wanted == Wanted::kTokenizer) {
      return;
    }
    const std::string config = in_folder(module.folder, "config.json");
    if (module.type == "Transformer" && !is_adapter) {
      if (!is_there(add(config))) {
        choice_.lacking.push_back(config);
      }
    } else {
      add_if_there(config);
    }
    if (has_tokenizer(module) && !module.folder.empty()) {
      add_if_there(in_folder(module.folder, "sentence_bert_config.json"));
    }
    if (has_weights(module)) {
      add_weights(module.folder, is_adapter);
    }
  }

  void add_tokenizer(const std::string& folder, bool is_adapter) {
    add(in_folder(folder, "tokenizer_config.json"));
    add(in_folder(folder, "config.json"));  // names the tokenizer's class where tokenizer_config.json does not
    for (const char* name : {"special_tokens_map.json", "added_tokens.json"}) {
      add_if_there(in_folder(folder, name));
    }
    if (is_there(add(in_folder(folder, "tokenizer.json")))) {
      return;
    }
    bool has_any = false;
    for (const char* name : {"vocab.txt", "sentencepiece.bpe.model", "spiece.model", "tokenizer.model"}) {
      has_any = is_there(add_if_there(in_folder(folder, name))) || has_any;
    }
    const bool has_merges = is_there(add_if_there(in_folder(folder, "merges.txt")));
    has_any = (is_there(add_if_there(in_folder(folder, "vocab.json"))) && has_merges) || has_any;
    if (!has_any && !is_adapter) {
      choice_.lacking.push_back(fmt::format("a tokenizer ({})", in_folder(folder, "tokenizer.json")));
    }
  }

  void add_weights(const std::string& folder, bool is_adapter) {
    const std::string single = in_folder(folder, "model.safetensors");
    const std::string index = single + ".index.json";
    if (is_there(add_if_there(single))) {
      return;
    }
    if (is_there(add_if_there(index))) {
      if (const auto path = source_.open(index)) {
        for (const std::string& shard : read_shards(*path)) {
          if (!is_there(add(in_folder(folder, shard)))) {
            choice_.lacking.push_back(in_folder(folder, shard));
          }
        }
      }
      return;
    }
    add(single);
    if (is_adapter) {
      return;
    }
    choice_.lacking.push_back(fmt::format("weights ({})", single));
    for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
      if (is_there(source_.presence(in_folder(folder, name)))) {
        choice_.pickles.push_back(in_folder(folder, name));
      }
    }
  }

  void add_adapter() {
    if (!is_there(add("adapter_model.safetensors"))) {
      choice_.lacking.push_back("the adapter's weights (adapter_model.safetensors)");
      if (is_there(source_.presence("adapter_model.bin"))) {
        choice_.pickles.push_back("adapter_model.bin");
      }
    }
  }

  FileSource& source_;
  FileChoice choice_;
  std::set<std::string> seen_;
};

}  // namespace

FileChoice choose_files(FileSource& source, Wanted wanted) {
  return Chooser(source).choose(wanted);
}

}  // namespace stft::hub
