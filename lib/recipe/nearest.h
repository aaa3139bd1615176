// Suggestions for misspelt names.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace stft::recipe {

// The number of single-character insertions, removals and replacements between two names.
std::size_t edit_distance(std::string_view a, std::string_view b);

// The candidate with the smallest edit distance (the first of equals); empty when there is none or when `name` is too
// long to be a misspelling.
std::string nearest(std::string_view name, const std::vector<std::string>& candidates);

// Whether `candidate` is near enough to `name` to be asked for as "did you mean".
bool is_close(std::string_view name, std::string_view candidate);

// "a, b, c"
std::string join_names(const std::vector<std::string>& names);

}  // namespace stft::recipe
