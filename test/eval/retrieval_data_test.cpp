#include "eval/retrieval_data.h"

#include <catch2/catch.hpp>

#include "base/error.h"
#include "io/temporary_directory.h"

namespace stft::eval {
namespace {

using Catch::Matchers::Contains;
using test::message_of;

using Strings = std::vector<std::string>;
using Indices = std::vector<std::int64_t>;

struct Fixture {
  test::TemporaryDirectory directory;
  EvaluatorConfig config;

  Fixture() {
    queries(
        "{\"_id\":\"q1\",\"text\":\"one\"}\n{\"_id\":\"q2\",\"text\":\"two\"}\n{\"_id\":\"d2\",\"text\":\"three\"}\n");
    corpus(
        "{\"_id\":\"d2\",\"text\":\"x\"}\n{\"_id\":\"d10\",\"title\":\"T\",\"text\":\"y\"}\n"
        "{\"_id\":\"d1\",\"title\":\"\",\"text\":\"\"}\n{\"_id\":\"\xC3\xA9\",\"title\":null,\"text\":\"z\"}\n");
    qrels("query-id\tcorpus-id\tscore\nq1\td10\t2\nq1\td2\t1\nd2\td1\t1\nq2\td1\t0\n");
  }

  void queries(std::string_view content) { config.queries.path = directory.write("queries.jsonl", content); }
  void corpus(std::string_view content) { config.corpus.path = directory.write("corpus.jsonl", content); }
  void qrels(std::string_view content) { config.qrels_path = directory.write("qrels.tsv", content); }

  // The message without the directory.
  std::string refusal() {
    std::string message = message_of<UserError>([&] { load_retrieval_data(config); });
    const std::string prefix = directory.path("");
    for (std::size_t at = 0; (at = message.find(prefix)) != std::string::npos;) message.erase(at, prefix.size());
    return message;
  }
};

TEST_CASE_METHOD(Fixture, "queries, corpus and BEIR judgements") {
  const RetrievalData data = load_retrieval_data(config);
  CHECK(data.query_ids == Strings{"q1", "d2"});
  CHECK(data.queries == Strings{"one", "three"});
  CHECK(data.corpus_ids == Strings{"d2", "d10", "d1", "\xC3\xA9"});
  CHECK(data.corpus == Strings{"x", "T y", "", "z"});
  CHECK(data.id_order == Indices{2, 1, 0, 3});
  CHECK(data.identical_document == Indices{kNotInCorpus, 0});
  REQUIRE(data.relevant.size() == 2);
  REQUIRE(data.relevant[0].size() == 2);
  CHECK(data.relevant[0][0].corpus_index == 0);
  CHECK(data.relevant[0][0].relevance == 1.0);
  CHECK(data.relevant[0][1].corpus_index == 1);
  CHECK(data.relevant[0][1].relevance == 2.0);
  REQUIRE(data.relevant[1].size() == 1);
  CHECK(data.relevant[1][0].corpus_index == 2);
  CHECK(data.dropped_queries == 1);
  CHECK(data.unknown_query_rows == 0);
  CHECK(data.unknown_document_rows == 0);
}

TEST_CASE_METHOD(Fixture, "TREC judgements") {
  qrels("q1 0 d10 2\r\nq1\tQ0\td2   1\n\n d2 0 d1 1\nq2 0 d1 -1");
  const RetrievalData data = load_retrieval_data(config);
  CHECK(data.query_ids == Strings{"q1", "d2"});
  CHECK(data.relevant[0].size() == 2);
  CHECK(data.dropped_queries == 1);
}

TEST_CASE_METHOD(Fixture, "ids may be numbers, columns may be named, files may be tables") {
  queries("{\"id\":1,\"text\":\"one\"}\n{\"id\":-2.5,\"text\":\"two\"}\n");
  config.corpus.path = directory.write("corpus.csv", "key,title,body\n7,T,x\n07,,y\n");
  config.corpus.id_field = "key";
  config.corpus.text_field = "body";
  qrels("query-id\tcorpus-id\tscore\n1\t07\t1\n-2.5\t7\t0.5\n");
  const RetrievalData data = load_retrieval_data(config);
  CHECK(data.query_ids == Strings{"1", "-2.5"});
  CHECK(data.corpus_ids == Strings{"7", "07"});
  CHECK(data.corpus == Strings{"T x", "y"});
  CHECK(data.relevant[0][0].corpus_index == 1);
  CHECK(data.relevant[1][0].relevance == 0.5);
}

TEST_CASE_METHOD(Fixture, "unknown ids are counted; unknown documents stay relevant") {
  qrels("query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\tgone\t1\nwho\td1\t1\nq2\tgone\t3\nq2\tlost\t0\n");
  const RetrievalData data = load_retrieval_data(config);
  CHECK(data.query_ids == Strings{"q1", "q2"});
  REQUIRE(data.relevant[0].size() == 2);
  CHECK(data.relevant[0][0].corpus_index == kNotInCorpus);
  CHECK(data.relevant[0][1].corpus_index == 2);
  REQUIRE(data.relevant[1].size() == 1);
  CHECK(data.relevant[1][0].corpus_index == kNotInCorpus);
  CHECK(data.unknown_query_rows == 1);
  CHECK(data.unknown_document_rows == 3);
  CHECK(data.dropped_queries == 1);
}

TEST_CASE_METHOD(Fixture, "judgements that leave no query") {
  qrels("query-id\tcorpus-id\tscore\nwho\td1\t1\nq1\tgone\t1\n");
  CHECK(refusal() ==
        "qrels.tsv: no query of 'queries.jsonl' has a relevant document in 'corpus.jsonl' (1 rows name unknown "
        "queries, 1 unknown documents)");
  qrels("query-id\tcorpus-id\tscore\nq1\td1\t0\n");
  CHECK_THAT(refusal(), Contains("no query of"));
  qrels("");
  CHECK_THAT(refusal(), Contains("no query of"));
}

TEST_CASE_METHOD(Fixture, "a pair judged twice") {
  qrels("query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\td1\t1\n");
  CHECK(load_retrieval_data(config).relevant[0].size() == 1);
  qrels("query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\td1\t2\n");
  CHECK(refusal() == "qrels.tsv:3: query 'q1' and document 'd1' are judged twice, 1 and 2");
}

TEST_CASE_METHOD(Fixture, "malformed judgements") {
  qrels("q1\td1\t1\n");
  CHECK_THAT(refusal(), Contains("qrels.tsv:1: the header row"));
  qrels("q1,d1,1\n");
  CHECK_THAT(refusal(), Contains("qrels.tsv:1: neither a BEIR header"));
  qrels("query-id\tcorpus-id\tscore\nq1\td1\n");
  CHECK(refusal() == "qrels.tsv:2: 2 columns between tabs, there must be 3");
  for (const std::string score : {"high", "", "1x", "nan", "inf", "1e999"}) {
    qrels("query-id\tcorpus-id\tscore\nq1\td1\t" + score + "\n");
    CHECK(refusal() == "qrels.tsv:2: score '" + score + "' is not a number");
  }
  qrels("q1 0 d1 1\nq1 0 d1\n");
  CHECK(refusal() == "qrels.tsv:2: 3 columns between blanks, there must be 4");
  qrels("query-id\tcorpus-id\tscore\nq\xFF\td1\t1\n");
  CHECK(refusal() == "qrels.tsv:2: not valid UTF-8");
}

TEST_CASE_METHOD(Fixture, "malformed texts") {
  SECTION("an id given twice") {
    corpus("{\"_id\":1,\"text\":\"x\"}\n\n{\"_id\":\"1\",\"text\":\"y\"}\n");
    CHECK(refusal() == "corpus.jsonl:3: id '1' is given twice");
    queries("{\"_id\":\"a\",\"text\":\"x\"}\n{\"_id\":\"a\",\"text\":\"x\"}\n");
    CHECK(refusal() == "queries.jsonl:2: id 'a' is given twice");
  }
  SECTION("ids that are missing or of another type") {
    queries("{\"key\":\"a\",\"text\":\"x\"}\n");
    CHECK_THAT(refusal(), Contains("queries.jsonl:1: neither column '_id' nor 'id'"));
    queries("{\"_id\":null,\"text\":\"x\"}\n");
    CHECK_THAT(refusal(), Contains("queries.jsonl:1: column '_id' is null"));
    config.queries.id_field = "key";
    CHECK_THAT(refusal(), Contains("queries.jsonl:1: column 'key' is missing"));
  }
  SECTION("texts that are missing or null") {
    corpus("{\"_id\":\"d1\",\"title\":\"x\"}\n");
    CHECK_THAT(refusal(), Contains("corpus.jsonl:1: column 'text' is missing"));
    corpus("{\"_id\":\"d1\",\"text\":null}\n");
    CHECK(refusal() == "corpus.jsonl:1: column 'text' is null");
    corpus("{\"_id\":\"d1\",\"title\":1,\"text\":\"x\"}\n");
    CHECK(refusal() == "corpus.jsonl:1: column 'title' is an integer, it must be a string");
  }
  SECTION("no rows, no file") {
    corpus("");
    CHECK(refusal() == "corpus.jsonl: no rows");
    config.corpus.path = directory.path("none.jsonl");
    CHECK_THAT(refusal(), Contains("No such file"));
  }
}

}  // namespace
}  // namespace stft::eval
