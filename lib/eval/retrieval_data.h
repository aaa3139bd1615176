// Queries, corpus and relevance judgements of a retrieval evaluation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "eval/eval_config.h"

namespace stft::eval {

inline constexpr std::int64_t kNotInCorpus = -1;

// A document judged relevant to a query.
struct RelevantDocument {
  // Position in RetrievalData::corpus. kNotInCorpus when the corpus lacks the document: it can never be found, and
  // counts in every denominator as in the peer.
  std::int64_t corpus_index = kNotInCorpus;
  double relevance = 1.0;  // the score of the qrels file, above 0
};

struct RetrievalData {
  // Only queries with at least one relevant document, in file order.
  std::vector<std::string> query_ids;
  std::vector<std::string> queries;
  std::vector<std::vector<RelevantDocument>> relevant;  // query -> documents, by corpus index, no pair twice
  std::vector<std::int64_t> identical_document;         // query -> document with the query's id, or kNotInCorpus

  std::vector<std::string> corpus_ids;
  std::vector<std::string> corpus;     // "title text" where the title is not empty
  std::vector<std::int64_t> id_order;  // document -> position of its id among all ids in bytes order (breaks ties)

  std::int64_t dropped_queries = 0;        // without a relevant document
  std::int64_t unknown_query_rows = 0;     // judgements of queries that the query file lacks
  std::int64_t unknown_document_rows = 0;  // judgements of documents that the corpus lacks (their query is known)
};

// Reads the three files of an InformationRetrievalEvaluator. Ids are strings or numbers (then their JSON text). The
// qrels are BEIR (a header, then query-id, corpus-id, score between tabs) or TREC (query, iteration, document, score
// between blanks); a score above 0 means relevant. UserError naming path:line for an id given twice, a pair judged
// twice with different scores, a malformed row and the faults of io::TextTable; naming the qrels file when no query has
// a relevant document in the corpus.
RetrievalData load_retrieval_data(const EvaluatorConfig& config);

}  // namespace stft::eval
