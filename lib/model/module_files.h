// modules.json of sentence-transformers 2.x to 6.2 and the small files in the modules' folders.
#pragma once

#include <string>

#include "io/json.h"
#include "model/model_spec.h"

namespace stft::model {

bool is_file(const std::string& path);
// `name` below `directory`; the directory itself when it is empty.
std::string path_in(const std::string& directory, const std::string& name);

// The list in modules.json. UserError when it is no list.
io::Json read_modules(const std::string& file);

// The folder of an entry, below the model's directory; "" for the directory itself. UserError when it leaves it.
std::string module_path(const io::Json& entry, const std::string& origin);

// What an entry of the list and its folder below `directory` say; `origin` names the list. UserError for what is
// missing, malformed or not available.
ModuleSpec read_module(const std::string& directory, const io::Json& entry, const std::string& origin);

}  // namespace stft::model
