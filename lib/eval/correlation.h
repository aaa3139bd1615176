// How two lists of numbers go together, as scipy.stats counts it.
#pragma once

#include <span>
#include <vector>

namespace stft::eval {

// Pearson's r of two lists of equal length, at least two each: from -1 to 1, NaN when a list is constant or holds
// something that is not finite.
double pearson(std::span<const double> x, std::span<const double> y);

// Spearman's rank correlation: pearson of the average ranks. Infinite values rank like others; NaN gives NaN.
double spearman(std::span<const double> x, std::span<const double> y);

// Ranks from 1; equal values share the mean of their places.
std::vector<double> average_ranks(std::span<const double> values);

}  // namespace stft::eval
