#include "recipe/diagnostics.h"

#include <algorithm>
#include <limits>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "recipe/nearest.h"

namespace stft::recipe {

namespace {

constexpr std::size_t kMaxShownProblems = 100;

std::string parent_of(const std::string& key_path) {
  const std::size_t dot = key_path.rfind('.');
  return dot == std::string::npos ? std::string() : key_path.substr(0, dot);
}

std::string leaf_of(const std::string& key_path) {
  const std::size_t dot = key_path.rfind('.');
  return dot == std::string::npos ? key_path : key_path.substr(dot + 1);
}

// Names that other versions of the libraries use for a key of ours.
const std::map<std::string, std::string>& renamed_keys() {
  static const std::map<std::string, std::string> names = {
      {"train.warmup_ratio", "train.warmup_steps"},
      {"train.activation_checkpointing", "train.gradient_checkpointing"},
      {"train.evaluation_strategy", "train.eval_strategy"},
      {"train.lr", "train.learning_rate"},
      {"model.max_length", "model.max_seq_length"},
  };
  return names;
}

}  // namespace

std::string Source::text() const {
  return line > 0 ? name + ":" + std::to_string(line) : name;
}

std::string join_key(std::string_view parent, std::string_view child) {
  std::string path(parent);
  if (!path.empty()) {
    path.push_back('.');
  }
  return path.append(child);
}

Diagnostics::Diagnostics(std::string recipe_name) : recipe_name_(std::move(recipe_name)) {}

void Diagnostics::record_known(const std::string& key_path) {
  known_.insert(key_path);
}

void Diagnostics::record_given(const std::string& key_path, const Source& source) {
  given_.insert_or_assign(key_path, source);
}

bool Diagnostics::is_given(const std::string& key_path) const {
  return given_.count(key_path) > 0;
}

void Diagnostics::add(const std::string& key_path, const std::string& text) {
  for (std::string path = key_path; !path.empty(); path = parent_of(path)) {
    const auto found = given_.find(path);
    if (found != given_.end()) {
      add_at(found->second, key_path, text);
      return;
    }
  }
  add_at(Source{recipe_name_, 0}, key_path, text);
}

void Diagnostics::add_at(const Source& source, const std::string& key_path, const std::string& text) {
  problems_.push_back({source, key_path, text});
}

void Diagnostics::add_unknown(const Source& source, const std::string& key_path) {
  problems_.push_back({source, key_path, ""});
}

bool Diagnostics::has_problem_under(const std::string& key_path) const {
  return std::any_of(problems_.begin(), problems_.end(), [&](const Problem& problem) {
    return problem.key_path == key_path || problem.key_path.rfind(key_path + ".", 0) == 0;
  });
}

void Diagnostics::forget_under(const std::string& key_path) {
  std::erase_if(problems_, [&](const Problem& problem) {
    return !problem.text.empty() && (problem.key_path == key_path || problem.key_path.starts_with(key_path + "."));
  });
}

std::map<std::string, std::string> Diagnostics::origins() const {
  std::map<std::string, std::string> texts;
  for (const auto& [key_path, source] : given_) {
    texts.emplace(key_path, source.text());
  }
  return texts;
}

std::string Diagnostics::nearest_key(const std::string& key_path) const {
  const auto renamed = renamed_keys().find(key_path);
  if (renamed != renamed_keys().end()) {
    return renamed->second;
  }
  const std::string parent = parent_of(key_path);
  const std::string leaf = leaf_of(key_path);
  std::vector<std::string> siblings;
  for (const std::string& known : known_) {
    // The right key in the wrong block is likelier than a misspelling of a neighbour.
    if (leaf_of(known) == leaf && std::count(known.begin(), known.end(), '.') <= 1) {
      return known;
    }
    if (parent_of(known) == parent) {
      siblings.push_back(leaf_of(known));
    }
  }
  const std::string name = nearest(leaf, siblings);
  return name.empty() ? std::string() : join_key(parent, name);
}

std::string Diagnostics::describe(const Problem& problem) const {
  constexpr std::size_t kMaxShownKey = 200;
  std::string message = problem.source.text() + ": ";
  if (!problem.key_path.empty()) {
    const bool is_long = problem.key_path.size() > kMaxShownKey;
    message += (is_long ? problem.key_path.substr(0, kMaxShownKey) + "..." : problem.key_path) + ": ";
  }
  if (!problem.text.empty()) {
    return message + problem.text;
  }
  message += "unknown key";
  const std::string suggestion = nearest_key(problem.key_path);
  if (suggestion.empty()) {
    return message;
  }
  const bool close = parent_of(suggestion) != parent_of(problem.key_path) ||
                     is_close(leaf_of(problem.key_path), leaf_of(suggestion)) ||
                     renamed_keys().count(problem.key_path) > 0;
  return message + (close ? "; did you mean " + suggestion + "?" : "; the nearest known key is " + suggestion);
}

void Diagnostics::throw_if_any() const {
  if (problems_.empty()) {
    return;
  }
  std::vector<Problem> sorted = problems_;
  const auto rank = [this](const Problem& problem) {
    const bool from_recipe = problem.source.name == recipe_name_;
    return from_recipe ? problem.source.line : std::numeric_limits<int>::max();
  };
  std::stable_sort(sorted.begin(), sorted.end(), [&](const Problem& a, const Problem& b) { return rank(a) < rank(b); });
  std::string message;
  std::unordered_set<std::string> shown;
  for (const Problem& problem : sorted) {
    if (shown.size() == kMaxShownProblems) {
      message += "\nmore problems than these " + std::to_string(kMaxShownProblems) + " were found";
      break;
    }
    const std::string line = describe(problem);
    if (shown.insert(line).second) {
      message.append(message.empty() ? "" : "\n").append(line);
    }
  }
  throw UserError(message);
}

}  // namespace stft::recipe
