// What differs between two resolved recipes (recipe.resolved.yaml), key by key.
#pragma once

#include <string>
#include <vector>

namespace stft::recipe {

struct Difference {
  std::string key;  // "loss.scale", "data.train.0.path.0"
  std::string ours;
  std::string theirs;  // "(not set)" where a side has no such key
};

// In the order of `ours`, then keys that only `theirs` has. UserError when a text is no YAML mapping; `name` is what
// messages call it.
struct ResolvedText {
  std::string yaml;
  std::string name;
};
std::vector<Difference> compare_resolved(const ResolvedText& ours, const ResolvedText& theirs);

// Every key with its value, a line each: "loss.scale: 20". UserError as above.
std::string flat_text(const ResolvedText& text);

// The differences under keys that a resumed run may not change: what the model, adapter, loss and training data are,
// the seed, the order, and the optimizer's kind.
std::vector<Difference> fixed_differences(const std::vector<Difference>& differences);

}  // namespace stft::recipe
