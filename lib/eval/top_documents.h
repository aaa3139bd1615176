// The best documents of many queries, kept while documents stream by.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace stft::eval {

struct ScoredDocument {
  float score = 0;
  int64_t document = -1;  // -1: none
};

// Order: score descending, then the document's place in `id_order` ascending; a total order, so the result does not
// depend on the order in which documents come. NaN scores come last.
class TopDocuments {
 public:
  // Keeps `depth` documents for each of `queries` queries. Borrows `id_order` (document -> place).
  TopDocuments(int64_t queries, int64_t depth, std::span<const int64_t> id_order);

  void offer(int64_t query, ScoredDocument candidate);

  // Best first; at most `depth`.
  std::vector<ScoredDocument> sorted(int64_t query) const;

 private:
  bool is_better(const ScoredDocument& a, const ScoredDocument& b) const;

  size_t depth_;
  std::span<const int64_t> id_order_;
  std::vector<std::vector<ScoredDocument>> heaps_;  // the worst kept document on top
};

}  // namespace stft::eval
