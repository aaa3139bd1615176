#include "checkpoint/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/error.h"
#include "checkpoint/dcp_file.h"
#include "checkpoint/dcp_reader.h"
#include "checkpoint/manifest.h"
#include "checkpoint/model_files.h"
#include "checkpoint/sharded_writer.h"
#include "checkpoint/stored_model.h"
#include "io/directory.h"
#include "io/file.h"
#include "shard/shard_layout.h"

namespace stft::checkpoint {
namespace {

namespace fs = std::filesystem;

std::string join(const std::string& directory, const std::string& name) {
  return (fs::path(directory) / name).string();
}

// A torch.distributed.checkpoint directory as `parts` ranks would write it, by one process.
class PartsWriter {
 public:
  PartsWriter(std::string directory, int64_t parts) : directory_(std::move(directory)) {
    io::make_directories(directory_);
    for (int64_t part = 0; part < parts; ++part) {
      files_.push_back(std::make_unique<DcpFileWriter>(join(directory_, dcp_file_name(static_cast<int>(part)))));
    }
  }

  // `read(first, rows)` gives the bytes of rows of dimension 0. A tensor that is not cut goes to the first file.
  template <typename Read>
  void add(DcpTensor tensor, bool is_cut, Read&& read) {
    tensor.chunks.clear();
    const auto parts = static_cast<int64_t>(files_.size());
    const bool is_scalar = tensor.shape.empty();
    for (int64_t part = 0; part < parts; ++part) {
      RowRange rows = {0, part == 0 ? (is_scalar ? 1 : tensor.shape.front()) : 0};
      if (is_cut && !is_scalar) {
        const auto layout = shard::shard_layout(tensor.shape, part, parts);
        rows = {layout.first_row, layout.own_rows};
      }
      if (rows.count == 0) {
        continue;
      }
      DcpChunk chunk;
      chunk.offsets.assign(tensor.shape.size(), 0);
      chunk.sizes = tensor.shape;
      if (!is_scalar) {
        chunk.offsets.front() = rows.first;
        chunk.sizes.front() = rows.count;
      }
      const DcpPlace place =
          files_[static_cast<size_t>(part)]->append_tensor(tensor.dtype, chunk.sizes, read(rows.first, rows.count));
      chunk.file = dcp_file_name(static_cast<int>(part));
      chunk.offset = place.offset;
      chunk.length = place.length;
      tensor.chunks.push_back(std::move(chunk));
    }
    metadata_.tensors.push_back(std::move(tensor));
  }

  void add_object(const DcpObject& object, const io::PythonValue& value) {
    const DcpPlace place = files_.front()->append_object(value);
    metadata_.objects.push_back({object.key, object.path, dcp_file_name(0), place.offset, place.length});
  }

  void finish() {
    for (auto& file : files_) {
      file->commit();
    }
    io::write_file(join(directory_, kDcpMetadataFile), serialize(metadata_));
  }

 private:
  std::string directory_;
  std::vector<std::unique_ptr<DcpFileWriter>> files_;
  DcpMetadata metadata_;
};

void write_sharded_model(const StoredModel& stored, const std::string& directory, int64_t parts) {
  PartsWriter writer(directory, parts);
  for (const PlannedFile& file : stored.plan()) {
    for (const PlannedTensor& tensor : file.tensors) {
      DcpTensor entry;
      entry.path = {std::string("model"), tensor.sharded_key.substr(std::string("model.").size())};
      entry.key = dcp_key(entry.path);
      entry.dtype = written_dtype(tensor, WeightPrecision::kMaster);
      entry.shape = tensor.shape;
      writer.add(std::move(entry), tensor.is_parameter, [&](int64_t first, int64_t rows) {
        return stored.read_rows(file, tensor, {first, rows});
      });
    }
  }
  writer.finish();
}

void rewrite_optimizer(const std::string& from, const std::string& to, int64_t parts) {
  const DcpDirectory stored = DcpDirectory::open(from);
  PartsWriter writer(to, parts);
  for (const DcpTensor& tensor : stored.tensors()) {
    writer.add(tensor, true, [&](int64_t first, int64_t rows) { return stored.read_rows(tensor, first, rows); });
  }
  for (const DcpObject& object : stored.objects()) {
    writer.add_object(object, stored.object(object.key));
  }
  writer.finish();
}

std::vector<std::string> all_files(const std::string& directory) {
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file()) {
      files.push_back(entry.path().lexically_relative(directory).string());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

void write_parts(const StoredModel& stored, const ConvertOptions& options, const std::string& temporary) {
  const std::string& from = stored.directory();
  const int64_t parts = options.ranks.value_or(stored.manifest()->world_size);
  io::remove_directory(temporary);
  io::make_directories(temporary);
  write_model_files(stored.spec(), temporary);
  for (const char* name : {kRunStateFile, kTrainerStateFile, kRecipeFile}) {
    if (fs::exists(join(from, name))) {
      io::write_file(join(temporary, name), io::read_text_file(join(from, name)));
    }
  }
  Manifest manifest = *stored.manifest();
  manifest.state_dict_type = options.to;
  manifest.world_size = parts;
  if (options.to == StateDictType::kSharded) {
    if (manifest.input_dtype) {
      set_config_dtype(temporary, *manifest.input_dtype);
    }
    write_sharded_model(stored, join(temporary, kShardedModelFolder), parts);
  } else {
    if (manifest.input_dtype) {
      set_config_dtype(temporary, "float32");
    }
    const auto world = dist::ProcessGroup::single();
    Attempt attempt(*world, "writing '" + options.out + "'");
    write_weights(stored.plan(), WeightPrecision::kMaster, stored.tensors(), temporary, attempt);
    attempt.agree();
  }
  if (manifest.has_optimizer) {
    rewrite_optimizer(join(from, kOptimizerFolder), join(temporary, kOptimizerFolder), parts);
  }
  manifest.files = describe_files(temporary, all_files(temporary));
  write_manifest(manifest, temporary);
}

}  // namespace

void convert_checkpoint(const std::string& checkpoint, const ConvertOptions& options) {
  const StoredModel stored = StoredModel::open(checkpoint);
  if (!stored.manifest()) {
    throw UserError(fmt::format("'{}' has no {}: it is not a checkpoint of stft", checkpoint, kManifestFile));
  }
  const std::string temporary = options.out + ".tmp";
  try {
    write_parts(stored, options, temporary);
    io::make_durable(temporary);
    io::replace_directory(temporary, options.out);
  } catch (...) {
    std::error_code ignored;  // the failure that is under way says more
    fs::remove_all(temporary, ignored);
    throw;
  }
}

}  // namespace stft::checkpoint
