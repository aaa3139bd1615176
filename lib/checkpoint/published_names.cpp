#include "checkpoint/published_names.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"

namespace stft::checkpoint {
namespace {

// A part of a stored tensor's rows.
struct View {
  std::string key;
  TensorDescription description;
  int64_t first_row = 0;
};

void replace_piece(std::string& name, const std::string& piece, const std::string& ours) {
  if (const size_t at = name.find(piece); at != std::string::npos) {
    name.replace(at, piece.size(), ours);
  }
}

// What a stored name stands for.
std::vector<std::string> our_names(const std::string& stored, const std::vector<model::PublishedName>& names) {
  std::vector<std::string> result{stored};
  for (const model::PublishedName& name : names) {
    if (name.ours.size() > 1 && stored.find(name.piece) != std::string::npos) {
      result.resize(name.ours.size(), result.front());
    }
    for (size_t i = 0; i < result.size(); ++i) {
      replace_piece(result[i], name.piece, name.ours.size() > 1 ? name.ours[i] : name.ours.front());
    }
  }
  return result;
}

class RenamedSource final : public TensorSource {
 public:
  RenamedSource(std::unique_ptr<TensorSource> tensors, std::map<std::string, View> views)
      : tensors_(std::move(tensors)), views_(std::move(views)) {}

  std::optional<TensorDescription> find(const std::string& key) const override {
    const auto found = views_.find(key);
    return found == views_.end() ? std::nullopt : std::optional(found->second.description);
  }

  std::vector<std::string> keys() const override {
    std::vector<std::string> result;
    for (const auto& [key, view] : views_) {
      result.push_back(key);
    }
    return result;
  }

  void read_rows(const std::string& key, int64_t first_row, int64_t rows,
                 std::span<std::byte> destination) const override {
    const View& view = views_.at(key);
    tensors_->read_rows(view.key, view.first_row + first_row, rows, destination);
  }

  bool has_four_bit() const override { return tensors_->has_four_bit(); }

  // A part of a fused weight is none: it is read as what it stands for.
  const StoredFourBit* four_bit(const std::string& key) const override {
    const auto found = views_.find(key);
    if (found == views_.end()) {
      return nullptr;
    }
    const bool is_whole = tensors_->find(found->second.key)->shape == found->second.description.shape;
    return is_whole ? tensors_->four_bit(found->second.key) : nullptr;
  }

  std::map<std::string, std::string> metadata() const override { return tensors_->metadata(); }
  const std::string& path() const override { return tensors_->path(); }

 private:
  std::unique_ptr<TensorSource> tensors_;
  std::map<std::string, View> views_;  // by the encoder's names
};

}  // namespace

std::unique_ptr<TensorSource> with_our_names(std::unique_ptr<TensorSource> tensors, const model::Encoder& encoder,
                                             const std::set<std::string>& parameters) {
  const std::string prefix = encoder.weight_prefix();
  const auto is_wanted = [&](const std::string& name) {
    const bool is_parameter =
        parameters.contains(name) || (name.starts_with(prefix) && parameters.contains(name.substr(prefix.size())));
    return is_parameter && !tensors->find(name);
  };
  std::map<std::string, View> views;
  bool is_renamed = false;
  for (const std::string& key : tensors->keys()) {
    TensorDescription description = *tensors->find(key);
    std::vector<std::string> ours = our_names(key, encoder.published_names());
    const auto parts = static_cast<int64_t>(ours.size());
    const int64_t rows = description.shape.empty() ? 1 : description.shape.front();
    const bool can_divide = parts == 1 || (!description.shape.empty() && rows % parts == 0);
    if (!can_divide || !std::all_of(ours.begin(), ours.end(), is_wanted)) {
      views.emplace(key, View{key, description, 0});
      continue;
    }
    is_renamed = true;
    if (parts > 1) {
      description.shape.front() = rows / parts;
    }
    for (size_t i = 0; i < ours.size(); ++i) {
      const View view{key, description, parts > 1 ? static_cast<int64_t>(i) * (rows / parts) : 0};
      if (!views.emplace(ours[i], view).second) {
        throw UserError(tensors->path() + ": '" + ours[i] + "' is stored twice, once as '" + key + "'");
      }
    }
  }
  return is_renamed ? std::make_unique<RenamedSource>(std::move(tensors), std::move(views)) : std::move(tensors);
}

}  // namespace stft::checkpoint
