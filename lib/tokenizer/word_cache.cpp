#include "tokenizer/word_cache.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <string>

namespace stft::tokenizer {
namespace {

constexpr std::size_t kSlots = 32768;  // a power of two
constexpr std::size_t kMaxWordBytes = 44;
constexpr std::size_t kMaxIds = 10;

struct Slot {                // 96 bytes
  std::uint64_t serial = 0;  // 0: free
  std::uint8_t word_bytes = 0;
  std::uint8_t id_count = 0;
  std::array<char, kMaxWordBytes> word{};
  std::array<std::int32_t, kMaxIds> ids{};
};

static_assert(sizeof(Slot) == 96);

std::vector<Slot>& slots_of_thread() {
  thread_local std::vector<Slot> slots(kSlots);
  return slots;
}

std::uint64_t next_serial() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

// The first of the two slots where a word may stand. Collisions cost a look-up, never a wrong answer.
std::size_t slot_index(std::uint64_t serial, std::string_view word) {
  constexpr std::uint64_t kMultiplier = 0x9E3779B97F4A7C15;
  std::uint64_t hash = serial * kMultiplier + word.size();
  std::size_t at = 0;
  for (; at + 8 <= word.size(); at += 8) {
    std::uint64_t chunk = 0;
    std::memcpy(&chunk, word.data() + at, 8);
    hash = (hash ^ chunk) * kMultiplier;
    hash ^= hash >> 32;
  }
  std::uint64_t rest = 0;
  std::memcpy(&rest, word.data() + at, word.size() - at);
  hash = (hash ^ rest) * kMultiplier;
  hash ^= hash >> 32;
  return static_cast<std::size_t>(hash * kMultiplier >> 40) & (kSlots - 2);
}

}  // namespace

WordCache::WordCache() : serial_(next_serial()) {}

void WordCache::append_ids(const Model& model, std::string_view word, std::vector<std::int32_t>& ids) const {
  if (word.size() > kMaxWordBytes) {
    model.append_ids(word, ids);
    return;
  }
  // Two slots for each hash: a new word comes into the first, whose word moves into the second.
  Slot* const slots = &slots_of_thread()[slot_index(serial_, word)];
  for (Slot* slot = slots; slot != slots + 2; ++slot) {
    if (slot->serial == serial_ && slot->word_bytes == word.size() &&
        std::memcmp(slot->word.data(), word.data(), word.size()) == 0) {
      ids.insert(ids.end(), slot->ids.begin(), slot->ids.begin() + slot->id_count);
      return;
    }
  }
  const std::size_t before = ids.size();
  model.append_ids(word, ids);
  const std::size_t count = ids.size() - before;
  if (count > kMaxIds) {
    return;
  }
  slots[1] = slots[0];
  Slot& slot = slots[0];
  slot.serial = serial_;
  slot.word_bytes = static_cast<std::uint8_t>(word.size());
  slot.id_count = static_cast<std::uint8_t>(count);
  std::memcpy(slot.word.data(), word.data(), word.size());
  std::copy(ids.begin() + static_cast<std::ptrdiff_t>(before), ids.end(), slot.ids.begin());
}

}  // namespace stft::tokenizer
