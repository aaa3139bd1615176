// Every problem found in a recipe, with the place and the key path of each.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace stft::recipe {

// Where something was written: line `line` (from 1) of the file `name`; line 0: `name` alone ("--set a.b=v").
struct Source {
  std::string name;
  int line = 0;

  std::string text() const;  // "recipe.yaml:12"
};

// "parent.child"; `parent` may be empty.
std::string join_key(std::string_view parent, std::string_view child);

// Collects problems, the keys that the schema knows and the places of the keys that were given.
class Diagnostics {
 public:
  // `recipe_name` is named by problems that have no line, e.g. a required block that is missing.
  explicit Diagnostics(std::string recipe_name);

  void record_known(const std::string& key_path);
  void record_given(const std::string& key_path, const Source& source);
  bool is_given(const std::string& key_path) const;

  // A problem of `key_path`, placed where it or its nearest given ancestor was written.
  void add(const std::string& key_path, const std::string& text);
  // A problem placed at `source`. An empty key path is left out of the message.
  void add_at(const Source& source, const std::string& key_path, const std::string& text);
  // A key that no reader asked for. The message names the nearest key known by the time it is made.
  void add_unknown(const Source& source, const std::string& key_path);

  // Whether a problem was added for `key_path` or below it.
  bool has_problem_under(const std::string& key_path) const;

  // Drops the problems of `key_path` and below it; unknown and duplicate keys stay.
  void forget_under(const std::string& key_path);

  // Key path -> "file:line" of every given key.
  std::map<std::string, std::string> origins() const;

  // Throws UserError with one problem a line, in the order of the file, --set arguments last.
  void throw_if_any() const;

 private:
  struct Problem {
    Source source;
    std::string key_path;
    std::string text;  // empty: unknown key
  };

  std::string describe(const Problem& problem) const;
  std::string nearest_key(const std::string& key_path) const;

  std::string recipe_name_;
  std::set<std::string> known_;
  std::map<std::string, Source> given_;
  std::vector<Problem> problems_;
};

}  // namespace stft::recipe
