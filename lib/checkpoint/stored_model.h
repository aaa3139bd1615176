// A model as it lies on disk: a checkpoint of stft, FULL or SHARDED, or a model directory. No engine, one tensor at a
// time.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/model_writer.h"
#include "checkpoint/weight_plan.h"
#include "model/model_spec.h"
#include "shard/shard_engine.h"

namespace stft::checkpoint {

class StoredModel {
 public:
  // Checks names, shapes and sizes, and with kChecksums the contents of a checkpoint's files. UserError when the
  // directory is an unfinished or damaged checkpoint or no model, and when its weights lack a tensor of its manifest.
  static StoredModel open(const std::string& directory, FileCheck check = FileCheck::kSizes);

  const std::string& directory() const { return directory_; }
  const model::ModelSpec& spec() const { return spec_; }
  const WeightPlan& plan() const { return plan_; }
  const std::optional<Manifest>& manifest() const { return manifest_; }  // none: a model directory
  const std::optional<std::string>& input_dtype() const { return input_dtype_; }

  // Whole tensors of plan(). Borrows this.
  WholeTensors tensors() const;

  // Bytes of some rows of dimension 0 of a tensor of plan(), as they are stored; parameters are fp32 in a checkpoint.
  std::vector<std::byte> read_rows(const PlannedFile& file, const PlannedTensor& tensor, RowRange rows) const;

  // Rows of the parameters of a model with this one's names and shapes. Borrows this. UserError when asked for a
  // parameter that is not there.
  shard::RowSource rows() const;

 private:
  // Where a tensor lies: in its module's source, under this key.
  struct Place {
    const TensorSource* source = nullptr;
    std::string key;
  };
  Place place_of(const PlannedFile& file, const PlannedTensor& tensor) const;

  std::string directory_;
  model::ModelSpec spec_;
  std::optional<Manifest> manifest_;
  std::optional<std::string> input_dtype_;
  WeightPlan plan_;
  bool is_sharded_ = false;
  std::map<int64_t, std::unique_ptr<TensorSource>> sources_;  // by module; a SHARDED one: whole keys, module 0 only
  std::map<std::string, Place> by_sharded_key_;
};

}  // namespace stft::checkpoint
