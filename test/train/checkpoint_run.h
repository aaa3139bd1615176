// Whole runs on ranks that are threads, and what they leave.
#pragma once

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/log.h"
#include "checkpoint/manifest.h"
#include "io/file.h"
#include "io/json.h"
#include "support/run_fixture.h"
#include "train/resume.h"
#include "train/trainer.h"

namespace stft::test {

struct RunOptions {
  int64_t ranks = 1;
  shard::Strategy strategy = shard::Strategy::kFullShard;
  std::optional<train::ResumeRequest> resume = std::nullopt;
  // Rank `stopping_rank` is asked to stop when it looks for the `stop_at_look`-th time (from 1); 0: never. It looks
  // once at the start, once in every step, and between the blocks of an evaluation.
  int64_t stop_at_look = 0;
  int64_t stopping_rank = 0;
};

// Shuffled, dropout, AdamW, 40 rows in steps of 12, 12, 12 and 4: 4 steps an epoch.
inline recipe::Recipe checkpoint_recipe(const std::string& output_dir) {
  recipe::Recipe recipe = tiny_recipe();
  use_triplets(recipe, 1, 40);
  recipe.run.output_dir = output_dir;
  recipe.train.shuffle = true;
  recipe.train.global_batch_size = 12;
  recipe.train.max_steps = 12;
  recipe.train.logging_steps = 5;
  recipe.model.dropout = 0.1;
  recipe.optim.optim = optim::OptimizerType::kAdamW;
  recipe.optim.learning_rate = 1e-3;
  recipe.optim.weight_decay = 0.01;
  recipe.optim.lr_scheduler_type = optim::ScheduleType::kLinear;
  recipe.optim.warmup_steps = 3;
  recipe.optim.max_grad_norm = 1.0;
  recipe.checkpoint.save_strategy = checkpoint::SaveStrategy::kNo;
  return recipe;
}

// The same with 8-bit AdamW and a layer that is large enough for it, whose rows 3 ranks do not share evenly.
inline recipe::Recipe eight_bit_recipe(const std::string& output_dir) {
  recipe::Recipe recipe = checkpoint_recipe(output_dir);
  recipe.optim.optim = optim::OptimizerType::kAdamW8bit;
  recipe.model.dense = model::DenseConfig{200, model::DenseActivation::kTanh, true};
  return recipe;
}

inline void save_every(recipe::Recipe& recipe, int64_t steps, checkpoint::StateDictType type) {
  recipe.checkpoint.save_strategy = checkpoint::SaveStrategy::kSteps;
  recipe.checkpoint.save_steps = static_cast<double>(steps);
  recipe.checkpoint.state_dict_type = type;
}

// As `stft train` does it; all ranks' outcomes are the same.
inline train::Outcome train_run(const recipe::Recipe& recipe, const RunOptions& options) {
  log::configure({.shows_info = false});
  std::atomic<int> stopped = 0;
  run_ranks(options.ranks, [&](std::unique_ptr<dist::ProcessGroup> world) {
    const int64_t rank = world->rank();
    recipe::Recipe own = recipe;
    own.sharding.strategy = options.strategy;
    own = recipe::resolve(std::move(own), world->size());
    std::optional<train::ResumePoint> point;
    if (options.resume) {
      point = train::find_resume_point(own, *options.resume, *world);
    }
    train::Run run = train::assemble(std::move(own), std::move(world), std::move(point));
    if (rank == 0) {
      if (run.resumed && run.resumed->is_in_place) {
        train::prepare_output_dir(recipe.run.output_dir, *run.resumed);
      } else {
        train::clear_output_dir(recipe.run.output_dir);
      }
    }
    run.mesh->world().barrier();
    int64_t looks = 0;
    const auto asks = [&] {
      return rank == options.stopping_rank && ++looks >= options.stop_at_look && options.stop_at_look > 0;
    };
    if (train::Trainer(run, asks).train() == train::Outcome::kStopped) {
      ++stopped;
    }
  });
  return stopped == options.ranks ? train::Outcome::kStopped : train::Outcome::kDone;
}

inline train::ResumeRequest auto_resume() {
  return {true, ""};
}

inline std::vector<io::Json> log_events(const std::string& output_dir, const std::string& event) {
  std::vector<io::Json> events;
  const std::string text = io::read_text_file(output_dir + "/log.jsonl");
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    const io::Json line = io::parse_json(text.substr(begin, end - begin), "log.jsonl");
    if (line["event"] == event) {
      events.push_back(line);
    }
    begin = end + 1;
  }
  return events;
}

// Of every "step" or "eval" line: what does not depend on the clock.
inline std::vector<std::string> timeless_log(const std::string& output_dir) {
  std::vector<std::string> lines;
  for (const char* event : {"step", "eval"}) {
    for (io::Json line : log_events(output_dir, event)) {
      for (const char* key : {"samples_per_s", "tokens_per_s", "memory", "seconds"}) {
        line.erase(key);
      }
      lines.push_back(line.dump());
    }
  }
  return lines;
}

// File -> checksum, of the files of a checkpoint whose path starts with one of `folders`.
inline std::map<std::string, std::string> checksums(const std::string& checkpoint,
                                                    const std::vector<std::string>& folders) {
  std::map<std::string, std::string> result;
  const auto manifest = checkpoint::read_manifest(checkpoint);
  if (!manifest) {
    throw std::runtime_error(checkpoint + " has no manifest");
  }
  for (const auto& file : manifest->files) {
    for (const std::string& folder : folders) {
      if (file.path.starts_with(folder)) {
        result[file.path] = file.checksum;
      }
    }
  }
  return result;
}

// File -> content of everything below a directory.
inline std::map<std::string, std::string> contents(const std::string& directory) {
  std::map<std::string, std::string> result;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file()) {
      result[entry.path().lexically_relative(directory).string()] = io::read_text_file(entry.path().string());
    }
  }
  return result;
}

}  // namespace stft::test
