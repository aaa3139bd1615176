#include "checkpoint/checkpoint_writer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>
#include <utility>

#include "base/error.h"
#include "checkpoint/export_model.h"
#include "checkpoint/model_files.h"
#include "checkpoint/model_writer.h"
#include "io/checksum.h"
#include "io/directory.h"
#include "io/file.h"
#include "peft/adapter_file.h"

namespace stft::checkpoint {
namespace {

namespace fs = std::filesystem;

std::string join(const std::string& directory, const std::string& name) {
  return (fs::path(directory) / name).string();
}

// Of a base every rank reads its share of the rows from the base's files.
void write_base_rows(ShardedWriter& writer, const CheckpointContent& content, const PlannedTensor& tensor,
                     Attempt& attempt) {
  const bool is_first = content.world.rank() == 0;
  RowRange rows = is_first ? all_rows(tensor.shape) : RowRange{};
  auto part = tensor.shape;
  if (!part.empty()) {
    const auto layout = shard::shard_layout(tensor.shape, content.world.rank(), content.world.size());
    rows = {layout.first_row, layout.own_rows};
    part.front() = rows.count;
  }
  std::vector<std::byte> bytes(rows.count > 0 ? *io::tensor_bytes(tensor.dtype, part) : 0);
  if (rows.count > 0) {
    attempt.run([&] { content.weights.source_of(0)->read_rows(tensor.key, rows.first, rows.count, bytes); });
  }
  writer.add_rows(sharded_entry(tensor), rows, bytes);
}

void write_model_sharded(const CheckpointContent& content, const std::string& directory, Attempt& attempt) {
  ShardedWriter writer(content.world, directory, attempt);
  const auto parameters = content.engine.local_parameters();
  for (const PlannedFile& file : content.manifest.weights) {
    for (const PlannedTensor& tensor : file.tensors) {
      ShardedTensor entry = sharded_entry(tensor);
      if (file.is_base) {
        write_base_rows(writer, content, tensor, attempt);
      } else if (tensor.is_parameter) {
        const shard::LocalParameter& local = parameters[static_cast<size_t>(tensor.parameter)];
        const RowRange rows = rows_to_write(local);
        const auto values = local.value.to(at::kFloat);  // a frozen one may be kept in less
        const auto* data = static_cast<const std::byte*>(values.const_data_ptr());
        const int64_t first = (rows.first - local.layout.first_row) * local.layout.row_numel;
        const int64_t count = rows.count * local.layout.row_numel;
        writer.add_rows(std::move(entry), rows, {data + first * 4, static_cast<size_t>(count * 4)});
      } else if (content.world.rank() == 0) {
        std::vector<std::byte> bytes;
        attempt.run([&] { bytes = content.weights.source_of(file.module)->read(tensor.key); });
        writer.add_rows(std::move(entry), all_rows(tensor.shape), bytes);
      } else {
        writer.add_rows(std::move(entry), {0, 0}, {});
      }
    }
  }
  writer.finish();
}

// Rank 0: the directory with everything that no rank shares.
void write_common_files(const CheckpointContent& content, const std::string& directory) {
  io::remove_directory(directory);
  io::make_directories(directory);
  const bool is_full = content.manifest.state_dict_type == StateDictType::kFull;
  write_model_files(content.model.spec(), directory, content.adapter ? ModelForm::kAdapter : ModelForm::kWhole);
  if (content.adapter != nullptr) {
    io::write_file(join(directory, peft::kAdapterConfigFile), peft::adapter_config_text(*content.adapter));
  }
  if (content.adapter != nullptr && content.scope == AdapterScope::kWithBase) {
    write_base_config(content.model.spec(), join(directory, kBaseFolder));
  }
  if (!is_full) {
    io::make_directories(join(directory, kShardedModelFolder));
  } else if (content.adapter == nullptr && content.manifest.input_dtype) {
    set_config_dtype(directory, "float32");
  }
  if (content.optimizer) {
    io::make_directories(join(directory, kOptimizerFolder));
  }
  for (const auto& [name, text] : content.texts) {
    io::write_file(join(directory, name), text);
  }
}

// The files that each rank wrote by itself.
std::vector<std::string> files_of_rank(const CheckpointContent& content, int64_t rank) {
  std::vector<std::string> files;
  const std::string name = dcp_file_name(static_cast<int>(rank));
  if (content.manifest.state_dict_type == StateDictType::kSharded) {
    files.push_back(join(kShardedModelFolder, name));
  }
  if (content.optimizer) {
    files.push_back(join(kOptimizerFolder, name));
  }
  return files;
}

uint64_t checksum_value(const std::string& text) {
  uint64_t value = 0;
  const size_t colon = text.find(':');
  std::from_chars(text.data() + colon + 1, text.data() + text.size(), value, 16);
  return value;
}

// Collective: every rank reads the files it wrote, so that no rank reads them all.
std::vector<ManifestFile> describe_shards(const CheckpointContent& content, const std::string& directory,
                                          Attempt& attempt) {
  dist::ProcessGroup& world = content.world;
  const auto names = files_of_rank(content, world.rank());
  const auto count = static_cast<int64_t>(names.size());
  if (count == 0) {
    return {};
  }
  auto mine = at::zeros({count, 2}, at::kLong);
  attempt.run([&] {
    const auto described = describe_files(directory, names);
    for (int64_t i = 0; i < count; ++i) {
      const ManifestFile& file = described[static_cast<size_t>(i)];
      mine.data_ptr<int64_t>()[2 * i] = static_cast<int64_t>(file.size);
      mine.data_ptr<int64_t>()[2 * i + 1] = static_cast<int64_t>(checksum_value(file.checksum));
    }
  });
  auto all = at::empty({world.size(), count, 2}, at::kLong);
  world.all_gather(all, mine).wait();
  std::vector<ManifestFile> files;
  for (int64_t rank = 0; rank < world.size(); ++rank) {
    const auto of_rank = files_of_rank(content, rank);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t* entry = all.data_ptr<int64_t>() + (rank * count + i) * 2;
      files.push_back({of_rank[static_cast<size_t>(i)], static_cast<uint64_t>(entry[0]),
                       io::checksum_text(static_cast<uint64_t>(entry[1]))});
    }
  }
  return files;
}

// Rank 0: the manifest of all files, then the name.
void seal(Manifest manifest, std::vector<ManifestFile> shards, const std::string& temporary,
          const std::string& directory) {
  std::set<std::string> known;
  for (const ManifestFile& file : shards) {
    known.insert(file.path);
  }
  std::vector<std::string> others;
  for (const std::string& path : io::files_below(temporary)) {
    if (!known.contains(path)) {
      others.push_back(path);
    }
  }
  manifest.files = describe_files(temporary, others);
  manifest.files.insert(manifest.files.end(), shards.begin(), shards.end());
  std::sort(manifest.files.begin(), manifest.files.end(),
            [](const ManifestFile& a, const ManifestFile& b) { return a.path < b.path; });
  write_manifest(manifest, temporary);
  io::make_durable(temporary);
  io::replace_directory(temporary, directory);
}

}  // namespace

void write_checkpoint(const CheckpointContent& content, const std::string& directory) {
  dist::ProcessGroup& world = content.world;
  const bool is_first = world.rank() == 0;
  const std::string temporary = directory + ".tmp";
  Attempt attempt(world, "saving '" + directory + "'", temporary);
  CheckpointContent filled = content;
  filled.manifest.world_size = world.size();
  filled.manifest.has_optimizer = content.optimizer.has_value();
  try {
    attempt.run([&] {
      filled.manifest.weights = plan_weights(content.model, content.weights, content.adapter, content.scope);
      filled.manifest.input_dtype = input_dtype(content.model.spec());
    });
    if (is_first) {
      attempt.run([&] { write_common_files(filled, temporary); });
    }
    attempt.agree();  // the directory exists
    if (filled.manifest.state_dict_type == StateDictType::kSharded) {
      write_model_sharded(filled, join(temporary, kShardedModelFolder), attempt);
    } else {
      write_weights(filled.manifest.weights, WeightPrecision::kMaster,
                    engine_tensors(content.engine, content.weights, is_first),
                    is_first ? std::optional(temporary) : std::nullopt, attempt);
    }
    attempt.agree();
    if (content.optimizer) {
      ShardedWriter writer(world, join(temporary, kOptimizerFolder), attempt);
      add_optimizer(writer, *content.optimizer, content.engine);
      writer.finish();
    }
    auto shards = describe_shards(filled, temporary, attempt);
    attempt.agree();  // every rank's part is on disk
    if (is_first) {
      attempt.run([&] { seal(filled.manifest, std::move(shards), temporary, directory); });
    }
    attempt.agree();  // the checkpoint has its name
  } catch (...) {
    if (is_first) {
      std::error_code ignored;  // when ranks cannot agree any more
      fs::remove_all(temporary, ignored);
    }
    throw;
  }
}

}  // namespace stft::checkpoint
