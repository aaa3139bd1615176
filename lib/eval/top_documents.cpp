#include "eval/top_documents.h"

#include <algorithm>
#include <cmath>

namespace stft::eval {

TopDocuments::TopDocuments(int64_t queries, int64_t depth, std::span<const int64_t> id_order)
    : depth_(static_cast<size_t>(depth)), id_order_(id_order), heaps_(static_cast<size_t>(queries)) {}

bool TopDocuments::is_better(const ScoredDocument& a, const ScoredDocument& b) const {
  const bool a_is_nan = std::isnan(a.score);
  const bool b_is_nan = std::isnan(b.score);
  if (a_is_nan != b_is_nan) {
    return b_is_nan;
  }
  if (!a_is_nan && a.score != b.score) {
    return a.score > b.score;
  }
  return id_order_[static_cast<size_t>(a.document)] < id_order_[static_cast<size_t>(b.document)];
}

void TopDocuments::offer(int64_t query, ScoredDocument candidate) {
  auto& heap = heaps_[static_cast<size_t>(query)];
  const auto better = [this](const ScoredDocument& a, const ScoredDocument& b) { return is_better(a, b); };
  if (heap.size() < depth_) {
    heap.push_back(candidate);
    std::push_heap(heap.begin(), heap.end(), better);
  } else if (is_better(candidate, heap.front())) {
    std::pop_heap(heap.begin(), heap.end(), better);
    heap.back() = candidate;
    std::push_heap(heap.begin(), heap.end(), better);
  }
}

std::vector<ScoredDocument> TopDocuments::sorted(int64_t query) const {
  auto result = heaps_[static_cast<size_t>(query)];
  std::sort(result.begin(), result.end(),
            [this](const ScoredDocument& a, const ScoredDocument& b) { return is_better(a, b); });
  return result;
}

}  // namespace stft::eval
