#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <string>

#include "tokenizer/trie.h"

namespace stft::tokenizer {
namespace {

Trie trie_of(const std::map<std::string, std::int32_t>& keys) {
  std::vector<Trie::Entry> entries;
  for (const auto& [key, value] : keys) {
    entries.push_back({key, value});
  }
  return Trie(std::move(entries));
}

TEST_CASE("A trie finds the longest key, and only keys") {
  const Trie trie = trie_of({{"a", 1}, {"abc", 2}, {"abcd\xFF", 3}, {std::string("\0x", 2), 4}, {"##b", 5}});
  CHECK(trie.find("a") == 1);
  CHECK(trie.find("ab") == Trie::kNone);
  CHECK(trie.find("") == Trie::kNone);
  CHECK(trie.find(std::string_view("\0x", 2)) == 4);
  CHECK(trie.longest_match(Trie::kRoot, "abcdx").length == 3);
  CHECK(trie.longest_match(Trie::kRoot, "abx").value == 1);
  CHECK(trie.longest_match(Trie::kRoot, "b").length == 0);
  CHECK(trie.longest_match(trie.walk(Trie::kRoot, "##"), "bb").value == 5);
  CHECK(trie.walk(Trie::kRoot, "zz") == Trie::kDead);
  CHECK(Trie().find("a") == Trie::kNone);
}

TEST_CASE("A trie agrees with a map on random keys") {
  std::mt19937 random(5);
  std::map<std::string, std::int32_t> keys;
  const auto random_key = [&](unsigned alphabet) {
    std::string key(1 + random() % 6, '\0');
    for (char& c : key) {
      c = static_cast<char>(random() % alphabet);
    }
    return key;
  };
  for (int i = 0; i < 30000; ++i) {
    keys.emplace(random_key(i % 2 == 0 ? 256 : 7), i);
  }
  const Trie trie = trie_of(keys);
  for (const auto& [key, value] : keys) {
    REQUIRE(trie.find(key) == value);
  }
  for (int i = 0; i < 30000; ++i) {
    const std::string text = random_key(i % 2 == 0 ? 256 : 7);
    std::size_t longest = 0;
    for (std::size_t length = 1; length <= text.size(); ++length) {
      longest = keys.contains(text.substr(0, length)) ? length : longest;
    }
    REQUIRE(trie.longest_match(Trie::kRoot, text).length == longest);
  }
}

}  // namespace
}  // namespace stft::tokenizer
