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
  // `base`: the base model of an adapter's directory; empty: where its configuration says.
  static StoredModel open(const std::string& directory, FileCheck check = FileCheck::kSizes,
                          const std::string& base = "");

  const std::string& directory() const { return directory_; }
  // UserError for an adapter's directory whose base is not there.
  const model::ModelSpec& spec() const;
  // An adapter and not a whole model: the plan has what was trained, and the base when the checkpoint holds it.
  bool is_adapter() const { return is_adapter_; }
  const WeightPlan& plan() const { return plan_; }
  // plan() without an adapter's base.
  WeightPlan own_plan() const;
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
  void open_sources();
  Place place_of(const PlannedFile& file, const PlannedTensor& tensor) const;

  std::string directory_;
  std::optional<model::ModelSpec> spec_;
  std::optional<Manifest> manifest_;
  std::optional<std::string> input_dtype_;
  WeightPlan plan_;
  bool is_sharded_ = false;
  bool is_adapter_ = false;
  std::map<int64_t, std::unique_ptr<TensorSource>> sources_;  // by module; a SHARDED one: whole keys, module 0 only
  std::unique_ptr<TensorSource> kept_base_;                   // of a FULL checkpoint of an adapter that holds its base
  std::map<std::string, Place> by_sharded_key_;
};

// The directory of an adapter's base model: that which its checkpoint holds, or else as its configuration names it,
// from the working directory, or from where the adapter lies. None when it names a model of a hub.
std::optional<std::string> local_base(const std::string& adapter_directory);

}  // namespace stft::checkpoint
