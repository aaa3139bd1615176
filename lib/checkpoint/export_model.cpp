#include "checkpoint/export_model.h"

#include <filesystem>
#include <map>
#include <memory>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "checkpoint/dtype.h"
#include "checkpoint/model_files.h"

namespace stft::checkpoint {
namespace {

namespace fs = std::filesystem;

// One safetensors file of the export: parameters by the key they are stored under, and carried tensors.
struct WeightFile {
  int64_t module = 0;
  std::string path;  // below the export's directory
  std::vector<io::TensorSpec> tensors;
  std::map<std::string, int64_t> parameters;  // key -> index in the model's table
  std::map<std::string, std::string> metadata;
};

std::vector<WeightFile> plan_files(const ExportSource& source) {
  std::map<int64_t, WeightFile> by_module;
  const auto& table = source.model.parameters();
  for (size_t i = 0; i < table.size(); ++i) {
    const int64_t module = table[i].module;
    WeightFile& file = by_module[module];
    file.module = module;
    const ParameterSource& from = source.weights.sources()[i];
    file.tensors.push_back({from.key, from.stored ? from.stored->info->dtype : io::Dtype::kF32, table[i].shape});
    file.parameters[from.key] = static_cast<int64_t>(i);
  }
  for (const std::string& name : source.weights.unused()) {
    const auto stored = source.weights.weights_of(0)->find(name);
    by_module[0].tensors.push_back({name, stored->info->dtype, stored->info->shape});
  }
  std::vector<WeightFile> files;
  for (auto& [module, file] : by_module) {
    const std::string& folder = source.model.spec().modules[static_cast<size_t>(module)].path;
    file.path = (fs::path(folder) / "model.safetensors").string();
    if (const io::ModelWeights* weights = source.weights.weights_of(module)) {
      file.metadata = weights->files().front().metadata();
    }
    files.push_back(std::move(file));
  }
  return files;
}

// Collective. Only rank 0 has a directory to write to.
void write_weight_file(const ExportSource& source, const WeightFile& file, const std::optional<fs::path>& directory) {
  const std::string path = directory ? (*directory / file.path).string() : file.path;
  std::unique_ptr<io::SafetensorsWriter> writer;
  if (directory) {
    writer = std::make_unique<io::SafetensorsWriter>(path, file.tensors, file.metadata);
  }
  for (const io::TensorInfo& tensor : io::safetensors_layout(path, file.tensors)) {
    const auto parameter = file.parameters.find(tensor.name);
    if (parameter != file.parameters.end()) {
      const auto whole = source.engine.gather(parameter->second);
      if (writer) {
        writer->append(write_as(whole, tensor.dtype));
      }
    } else if (writer) {
      writer->append(source.weights.weights_of(file.module)->find(tensor.name)->bytes());
    }
  }
  if (writer) {
    writer->finish();
  }
}

}  // namespace

void export_model(const ExportSource& source, const std::string& directory) {
  const fs::path final_path(directory);
  fs::path temporary = final_path;
  temporary += ".tmp";
  std::optional<fs::path> target;
  if (source.world.rank() == 0) {
    std::error_code error;
    fs::remove_all(temporary, error);
    fs::create_directories(temporary, error);
    if (error) {
      throw SystemError("creating directory '" + temporary.string() + "': " + error.message());
    }
    write_model_files(source.model.spec(), temporary.string());
    target = temporary;
  }
  for (const WeightFile& file : plan_files(source)) {
    write_weight_file(source, file, target);
  }
  if (target) {
    make_durable(temporary.string());
    std::error_code error;
    fs::rename(temporary, final_path, error);
    if (error) {
      throw SystemError("renaming '" + temporary.string() + "' to '" + final_path.string() + "': " + error.message());
    }
  }
  source.world.barrier();
}

}  // namespace stft::checkpoint
