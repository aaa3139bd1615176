// What every evaluator does and what it finds.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dist/process_group.h"
#include "eval/corpus_cache.h"
#include "eval/embedder.h"
#include "eval/eval_config.h"
#include "model/model_config.h"

namespace stft::eval {

using NamedValues = std::vector<std::pair<std::string, double>>;

// What an evaluation adds to an evaluator's CSV file, under the names of sentence-transformers 6.2; the columns epoch
// and steps come before these.
struct CsvRow {
  std::string file;  // "triplet_evaluation_dev_results.csv"
  NamedValues cells;
};

// What an evaluator found. Equal on all ranks.
struct EvaluationResult {
  std::string name;               // the evaluator's
  NamedValues values;             // "{name}_{metric}", as logged; NaN where a metric has no value
  std::string primary;            // the name among `values` that stands for the whole
  std::vector<double> per_query;  // of the primary metric; empty when it is no mean over queries
  NamedValues shown;              // what a person looks at first, under short names
  int64_t rows = 0;               // queries or pairs
  double seconds = 0;
  std::optional<CsvRow> csv;          // unless the recipe says write_csv: false
  std::vector<std::string> warnings;  // one line each, for a person

  double primary_value() const;
};

// What the files of an evaluator are like, one line each, for a person.
struct DataNotes {
  std::vector<std::string> warnings;
  std::vector<std::string> infos;
};

// Whether an evaluation shall be given up; lives for one evaluation. A rank asks between blocks and skips the rest of
// its blocks; all ranks agree before they share results, so that their collectives stay the same.
class Interrupt {
 public:
  // Never asked to stop.
  Interrupt() = default;
  // `ask` tells whether this rank was asked to stop.
  explicit Interrupt(std::function<bool()> ask) : ask_(std::move(ask)) {}

  // This rank's view; stays true once it was.
  bool requested();

  // Collective: whether any rank was asked to stop.
  bool agree(dist::ProcessGroup& world);

 private:
  std::function<bool()> ask_;
  bool seen_ = false;
};

class Evaluator {
 public:
  virtual ~Evaluator() = default;

  virtual const std::string& name() const = 0;

  // Tells `cache` the corpora that evaluate() will ask it for.
  virtual void announce(CorpusCache& cache) const;

  virtual DataNotes notes() const;

  // Collective over `world`. The model's parameters are filled on every rank. `cache` and `interrupt` are those of
  // this evaluation. Nothing on every rank when one of them was asked to stop.
  virtual std::optional<EvaluationResult> evaluate(const Embedder& embedder, dist::ProcessGroup& world,
                                                   CorpusCache& cache, Interrupt& interrupt) const = 0;
};

// What holds where an evaluator's configuration is silent.
struct EvaluatorDefaults {
  int64_t batch_size = 32;
  model::Similarity similarity = model::Similarity::kCosine;
};

// Reads the evaluator's files. UserError for what they turn out to be.
std::unique_ptr<Evaluator> make_evaluator(const EvaluatorConfig& config, const EvaluatorDefaults& defaults);

}  // namespace stft::eval
