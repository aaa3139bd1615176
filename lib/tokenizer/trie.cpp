#include "tokenizer/trie.h"

#include <algorithm>

namespace stft::tokenizer {
namespace {

constexpr std::size_t kAlphabet = 256;

// A search for room gives up a stretch for good once it is this full, or once this many free places did not fit: that
// keeps building linear.
constexpr std::size_t kMaxMisfits = 128;
constexpr std::size_t kGiveUpNumerator = 19;
constexpr std::size_t kGiveUpDenominator = 20;

}  // namespace

Trie::Trie() : Trie(std::vector<Entry>()) {}

Trie::Trie(std::vector<Entry> entries) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.key < b.key; });
  reserve_up_to(2 * kAlphabet);
  units_[kRoot].check = kRoot;
  std::vector<Node> open;
  open.push_back({kRoot, 0, entries.size(), 0});
  while (!open.empty()) {
    Node node = open.back();
    open.pop_back();
    if (node.first < node.last && entries[node.first].key.size() == node.depth) {
      units_[node.state].value = entries[node.first].value;
      ++node.first;
    }
    const std::vector<Branch> branches = branches_of(entries, node);
    if (branches.empty()) {
      continue;
    }
    const std::uint32_t base = place(branches);
    units_[node.state].base = base;
    for (std::size_t i = 0; i < branches.size(); ++i) {
      const State child = base + branches[i].byte;
      units_[child].check = node.state;
      const std::size_t last = i + 1 < branches.size() ? branches[i + 1].first : node.last;
      open.push_back({child, branches[i].first, last, node.depth + 1});
    }
  }
  units_.shrink_to_fit();
}

std::vector<Trie::Branch> Trie::branches_of(const std::vector<Entry>& entries, const Node& node) {
  std::vector<Branch> branches;
  std::size_t i = node.first;
  while (i < node.last) {
    const auto byte = static_cast<unsigned char>(entries[i].key[node.depth]);
    branches.push_back({byte, i});
    const auto behind = std::partition_point(
        entries.begin() + static_cast<std::ptrdiff_t>(i), entries.begin() + static_cast<std::ptrdiff_t>(node.last),
        [&](const Entry& entry) { return static_cast<unsigned char>(entry.key[node.depth]) <= byte; });
    i = static_cast<std::size_t>(behind - entries.begin());
  }
  return branches;
}

std::uint32_t Trie::place(const std::vector<Branch>& branches) {
  const unsigned char lowest = branches.front().byte;
  std::size_t taken = 0;
  std::size_t misfits = 0;
  bool free_seen = false;
  for (std::size_t position = std::max<std::size_t>(search_from_, lowest + std::size_t{1});; ++position) {
    reserve_up_to(position + 2 * kAlphabet);
    if (units_[position].check != kDead) {
      ++taken;
      continue;
    }
    if (!free_seen) {
      search_from_ = position;
      free_seen = true;
    }
    const std::size_t base = position - lowest;
    const bool fits = std::all_of(branches.begin(), branches.end(),
                                  [&](const Branch& branch) { return units_[base + branch.byte].check == kDead; });
    if (fits) {
      if (taken * kGiveUpDenominator >= (position - search_from_ + 1) * kGiveUpNumerator) {
        search_from_ = position;
      }
      return static_cast<std::uint32_t>(base);
    }
    if (++misfits == kMaxMisfits) {
      search_from_ = position;
      taken = misfits = 0;
    }
  }
}

void Trie::reserve_up_to(std::size_t count) {
  if (units_.size() < count) {
    units_.resize(std::max(count, units_.size() + units_.size() / 2));
  }
}

Trie::State Trie::walk(State state, std::string_view text) const {
  for (std::size_t i = 0; i < text.size() && state != kDead; ++i) {
    state = next(state, static_cast<unsigned char>(text[i]));
  }
  return state;
}

Trie::Match Trie::longest_match(State state, std::string_view text) const {
  Match match;
  for (std::size_t i = 0; i < text.size(); ++i) {
    state = next(state, static_cast<unsigned char>(text[i]));
    if (state == kDead) {
      break;
    }
    if (units_[state].value != kNone) {
      match = {i + 1, units_[state].value};
    }
  }
  return match;
}

std::int32_t Trie::find(std::string_view key) const {
  const State state = walk(kRoot, key);
  return state == kDead ? kNone : units_[state].value;
}

}  // namespace stft::tokenizer
