#include "checkpoint/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <utility>
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

// Bytes of rows of dimension 0 of a tensor.
using ReadRows = std::function<std::vector<std::byte>(RowRange)>;

// A torch.distributed.checkpoint directory as `parts` ranks would write it, by one process: one file open and one
// tensor's part in memory at a time.
class PartsWriter {
 public:
  // A tensor that is not cut goes to the first file.
  void add(DcpTensor tensor, bool is_cut, ReadRows read) {
    tensor.chunks.clear();
    metadata_.tensors.push_back(std::move(tensor));
    sources_.push_back({is_cut, std::move(read)});
  }

  void add_object(DcpObject object, io::PythonValue value) {
    metadata_.objects.push_back(std::move(object));
    values_.push_back(std::move(value));
  }

  void write(const std::string& directory, int64_t parts) {
    io::make_directories(directory);
    for (int64_t part = 0; part < parts; ++part) {
      write_part(directory, part, parts);
    }
    io::write_file(join(directory, kDcpMetadataFile), serialize(metadata_));
  }

 private:
  struct Source {
    bool is_cut = true;
    ReadRows read;
  };

  void write_part(const std::string& directory, int64_t part, int64_t parts) {
    const std::string name = dcp_file_name(static_cast<int>(part));
    DcpFileWriter file(join(directory, name));
    for (size_t i = 0; i < sources_.size(); ++i) {
      DcpTensor& tensor = metadata_.tensors[i];
      RowRange rows = part == 0 ? all_rows(tensor.shape) : RowRange{};
      if (sources_[i].is_cut && !tensor.shape.empty()) {
        const auto layout = shard::shard_layout(tensor.shape, part, parts);
        rows = {layout.first_row, layout.own_rows};
      }
      if (rows.count == 0) {
        continue;
      }
      DcpChunk chunk = row_chunk(tensor.shape, rows);
      const DcpPlace place = file.append_tensor(tensor.dtype, chunk.sizes, sources_[i].read(rows));
      chunk.file = name;
      chunk.offset = place.offset;
      chunk.length = place.length;
      tensor.chunks.push_back(std::move(chunk));
    }
    for (size_t i = 0; part == 0 && i < values_.size(); ++i) {
      const DcpPlace place = file.append_object(values_[i]);
      metadata_.objects[i].file = name;
      metadata_.objects[i].offset = place.offset;
      metadata_.objects[i].length = place.length;
    }
    file.commit();
  }

  DcpMetadata metadata_;
  std::vector<Source> sources_;          // of each tensor
  std::vector<io::PythonValue> values_;  // of each object
};

void write_sharded_model(const StoredModel& stored, const std::string& directory, int64_t parts) {
  PartsWriter writer;
  for (const PlannedFile& file : stored.plan()) {
    for (const PlannedTensor& tensor : file.tensors) {
      const ShardedTensor entry = sharded_entry(tensor);
      writer.add({dcp_key(entry.path), entry.path, entry.dtype, entry.shape, {}}, tensor.is_parameter || file.is_base,
                 [&](RowRange rows) { return stored.read_rows(file, tensor, rows); });
    }
  }
  writer.write(directory, parts);
}

void rewrite_optimizer(const std::string& from, const std::string& to, int64_t parts) {
  const DcpDirectory stored = DcpDirectory::open(from);
  PartsWriter writer;
  for (const DcpTensor& tensor : stored.tensors()) {
    writer.add(tensor, true, [&](RowRange rows) { return stored.read_rows(tensor, rows.first, rows.count); });
  }
  for (const DcpObject& object : stored.objects()) {
    writer.add_object(object, stored.object(object.key));
  }
  writer.write(to, parts);
}

void write_parts(const StoredModel& stored, const ConvertOptions& options, const std::string& temporary) {
  const std::string& from = stored.directory();
  const int64_t parts = options.ranks.value_or(stored.manifest()->world_size);
  io::remove_directory(temporary);
  io::make_directories(temporary);
  if (stored.is_adapter()) {
    copy_adapter_files(from, temporary);
    const std::string config = join(kBaseFolder, "config.json");
    if (fs::exists(join(from, config))) {
      io::make_directories(join(temporary, kBaseFolder));
      io::write_file(join(temporary, config), io::read_text_file(join(from, config)));
    }
  } else {
    write_model_files(stored.spec(), temporary);
  }
  for (const char* name : {kRunStateFile, kTrainerStateFile, kRecipeFile}) {
    if (fs::exists(join(from, name))) {
      io::write_file(join(temporary, name), io::read_text_file(join(from, name)));
    }
  }
  Manifest manifest = *stored.manifest();
  manifest.state_dict_type = options.to;
  manifest.world_size = parts;
  if (options.to == StateDictType::kSharded) {
    if (manifest.input_dtype && !stored.is_adapter()) {
      set_config_dtype(temporary, *manifest.input_dtype);
    }
    write_sharded_model(stored, join(temporary, kShardedModelFolder), parts);
  } else {
    if (manifest.input_dtype && !stored.is_adapter()) {
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
  manifest.files = describe_files(temporary, io::files_below(temporary));
  write_manifest(manifest, temporary);
}

}  // namespace

void convert_checkpoint(const std::string& checkpoint, const ConvertOptions& options) {
  const StoredModel stored = StoredModel::open(checkpoint, FileCheck::kChecksums);
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
