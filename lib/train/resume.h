// Going on from a checkpoint: which one, whether it fits the recipe, and the state it holds.
#pragma once

#include <optional>
#include <string>

#include "dist/process_group.h"
#include "recipe/recipe.h"
#include "train/run_state.h"

namespace stft::train {

// What the user asked for with --resume.
struct ResumeRequest {
  bool is_auto = false;   // the newest complete checkpoint of output_dir, if there is one
  std::string directory;  // else this one
};

struct ResumePoint {
  std::string checkpoint;   // its directory
  bool is_in_place = true;  // it lies in output_dir, whose log and checkpoints go on
  RunState state;
};

// Collective over `world`: rank 0 looks and checks, all ranks read what it chose. None: automatic, and there is no
// checkpoint to go on from, so the run starts anew. Checkpoints that are passed over are named in a warning.
// The best checkpoint so far is looked up again when it is gone or the recipe's rule changed. UserError on rank 0 when
// the given directory is unfinished, damaged or belongs to a run with another model, loss, data or order, naming the
// keys; the other ranks throw CollectiveError.
std::optional<ResumePoint> find_resume_point(const recipe::Recipe& recipe, const ResumeRequest& request,
                                             dist::ProcessGroup& world);

// On rank 0, before a resumed run writes anything: finishes or removes what an interrupted save left, puts later
// checkpoints aside, drops later entries of log.jsonl and eval/*.csv, and makes best.json what it was then. Nothing for
// a checkpoint of another directory.
void prepare_output_dir(const std::string& output_dir, const ResumePoint& point);

}  // namespace stft::train
