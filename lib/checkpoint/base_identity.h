// Which model an adapter was trained on: digests of its files that are cheap whatever their size.
#pragma once

#include <optional>
#include <string>

#include "checkpoint/pretrained.h"
#include "io/json.h"
#include "model/sentence_model.h"

namespace stft::checkpoint {

struct BaseIdentity {
  std::string name;     // as adapter_config.json has it
  std::string config;   // digest of what config.json says
  std::string tensors;  // of the names, types and shapes of the transformer's tensors
  std::string sample;   // of some rows of each tensor: the first, the middle and the last ones

  bool operator==(const BaseIdentity&) const = default;
};

// Of the base of `model`, whose weights are read from `weights`. Reads some KiB of each tensor. A tied copy of the
// table of embeddings does not count.
BaseIdentity identify_base(const model::SentenceModel& model, const PretrainedWeights& weights,
                           const std::string& name);

// "its config.json", "its tensors' names, types or shapes", "its weights": what tells two bases apart whatever their
// names; none: nothing does.
std::optional<std::string> base_difference(const BaseIdentity& a, const BaseIdentity& b);

io::Json to_json(const BaseIdentity& identity);
BaseIdentity base_identity_from_json(const io::Json& json, const std::string& origin);

// What to tell who uses the adapter's checkpoint in `directory` on the model in `base`, when it was trained on another;
// none also when the directory's manifest does not tell, or there is none. Errors of PretrainedWeights::open.
std::optional<std::string> other_base_warning(const std::string& directory, const std::string& base);

}  // namespace stft::checkpoint
