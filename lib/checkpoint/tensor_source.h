// The tensors of one module of a model, whatever they are stored in: safetensors files or a SHARDED checkpoint.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/dcp_reader.h"
#include "io/safetensors.h"
#include "model/model_spec.h"
#include "model/parameter.h"

namespace stft::checkpoint {

struct TensorDescription {
  io::Dtype dtype = io::Dtype::kF32;
  std::vector<int64_t> shape;
};

struct StoredFourBit;  // four_bit_source.h

class TensorSource {
 public:
  virtual ~TensorSource() = default;

  // None when there is no tensor `key`.
  virtual std::optional<TensorDescription> find(const std::string& key) const = 0;
  // Every key, in bytes order.
  virtual std::vector<std::string> keys() const = 0;
  // The little-endian bytes of rows [first_row, first_row + rows) of dimension 0 (a scalar is one row) of a tensor that
  // exists, into `destination`, which has their size.
  virtual void read_rows(const std::string& key, int64_t first_row, int64_t rows,
                         std::span<std::byte> destination) const = 0;
  // The metadata of the files (safetensors), for exports.
  virtual std::map<std::string, std::string> metadata() const = 0;
  // What to name in messages.
  virtual const std::string& path() const = 0;
  // Whether any tensor is stored in 4 bits.
  virtual bool has_four_bit() const;
  // How tensor `key` is stored when that is in 4 bits; null: it is not.
  virtual const StoredFourBit* four_bit(const std::string& key) const;

  // The whole tensor's bytes.
  std::vector<std::byte> read(const std::string& key) const;
};

// Rows [first, first + count) of dimension 0.
struct RowRange {
  int64_t first = 0;
  int64_t count = 0;
};

// Every row of a tensor; a scalar is one.
RowRange all_rows(const std::vector<int64_t>& shape);

// Rows of a tensor of a weight dtype into the flat `destination` of their count, cast to its dtype.
void read_rows_into(const TensorSource& source, const std::string& key, RowRange rows, at::Tensor destination);

// Of model.safetensors, or the files of its index, in `directory`. Mapped: a rank reads only the pages of its rows.
// Weights in bitsandbytes' 4 bits read as what they stand for (with_whole_weights). Errors of io::ModelWeights::open.
std::unique_ptr<TensorSource> open_safetensors(const std::string& directory);

// Of one safetensors file.
std::unique_ptr<TensorSource> open_safetensors_file(const std::string& path);

// Of the tensors of `checkpoint` whose keys begin with `prefix`, which is left out of the keys here.
std::unique_ptr<TensorSource> open_sharded(std::shared_ptr<const DcpDirectory> checkpoint, std::string prefix);

// Below a SHARDED checkpoint's directory: the model's and the optimizer's part.
inline constexpr const char* kShardedModelFolder = "pytorch_model_fsdp_0";
inline constexpr const char* kOptimizerFolder = "optimizer_0";
// Below an adapter's checkpoint that holds its base too: the base's directory (adapter_files.h).
inline constexpr const char* kBaseFolder = "base_model";

// The beginning of the keys of module `module`'s tensors in a SHARDED checkpoint: those of sentence-transformers 6.2's
// state dict under the name "model" ("model.0.model." for a transformer, "model.2." for the module at index 2); and the
// key of a parameter.
std::string sharded_prefix(const model::ModelSpec& spec, int64_t module);
std::string sharded_key(const model::Parameter& parameter);
// The key that earlier versions gave to a parameter that an adapter trains along: as if nothing were wrapped.
std::string plain_sharded_key(const model::Parameter& parameter);

}  // namespace stft::checkpoint
