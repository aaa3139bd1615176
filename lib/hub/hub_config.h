// Which texts name a model of a hub, as huggingface_hub judges them. Inline: lib/recipe, which links no other library,
// asks too.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace stft::hub {

inline constexpr std::size_t kLongestNamePart = 96;
inline constexpr std::size_t kCommitDigits = 40;

inline bool is_word_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// "org" or "name": 1 to 96 letters, digits, '-', '_' and '.'; the first and the last are no '-' and no '.'.
inline bool is_name_part(std::string_view part) {
  return !part.empty() && part.size() <= kLongestNamePart && is_word_character(part.front()) &&
         is_word_character(part.back()) &&
         std::all_of(part.begin(), part.end(), [](char c) { return is_word_character(c) || c == '-' || c == '.'; });
}

// "name" or "org/name", without "--" and "..", and not ending in ".git".
inline bool is_repo_id(std::string_view id) {
  const std::size_t slash = id.find('/');
  const bool has_form = slash == std::string_view::npos
                            ? is_name_part(id)
                            : is_name_part(id.substr(0, slash)) && is_name_part(id.substr(slash + 1));
  return has_form && id.find("--") == std::string_view::npos && id.find("..") == std::string_view::npos &&
         !id.ends_with(".git");
}

// A whole commit hash: it names the same files for ever.
inline bool is_commit_hash(std::string_view revision) {
  return revision.size() == kCommitDigits && std::all_of(revision.begin(), revision.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

// A path below a directory, with '/': no empty part, no "." or "..", no backslash and no control character.
inline bool is_relative_path(std::string_view path) {
  const bool has_odd_character = std::any_of(
      path.begin(), path.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F || c == '\\'; });
  if (has_odd_character) {
    return false;
  }
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") {
      return false;
    }
    begin = end + 1;
  }
  return true;
}

// A branch, a tag or a commit: what git allows as such, short enough for a file of that name.
inline bool is_revision(std::string_view revision) {
  return is_relative_path(revision) && revision.size() <= 200 &&
         revision.find_first_of(" ~^:?*[") == std::string_view::npos && revision.find("..") == std::string_view::npos;
}

}  // namespace stft::hub
