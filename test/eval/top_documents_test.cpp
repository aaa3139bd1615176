#include "eval/top_documents.h"

#include <catch2/catch.hpp>
#include <cmath>

using stft::eval::TopDocuments;

TEST_CASE("the best are kept in any order of arrival; ties go by id; NaN comes last") {
  const std::vector<int64_t> id_order = {3, 0, 2, 1, 4};
  const std::vector<stft::eval::ScoredDocument> offered = {{0.5F, 0}, {0.5F, 1}, {0.9F, 2}, {0.5F, 3}, {NAN, 4}};
  for (const bool is_reversed : {false, true}) {
    TopDocuments top(1, 3, id_order);
    for (size_t i = 0; i < offered.size(); ++i) {
      top.offer(0, offered[is_reversed ? offered.size() - 1 - i : i]);
    }
    const auto best = top.sorted(0);
    REQUIRE(best.size() == 3);
    CHECK(best[0].document == 2);
    CHECK(best[1].document == 1);
    CHECK(best[2].document == 3);
  }
  TopDocuments all(1, 10, id_order);
  for (const auto& document : offered) {
    all.offer(0, document);
  }
  CHECK(all.sorted(0).back().document == 4);
}
