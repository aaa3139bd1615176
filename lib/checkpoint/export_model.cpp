#include "checkpoint/export_model.h"

#include <filesystem>
#include <map>
#include <memory>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "checkpoint/checkpoint_store.h"
#include "checkpoint/manifest.h"
#include "checkpoint/merged_export.h"
#include "checkpoint/model_files.h"
#include "checkpoint/quantization_file.h"
#include "checkpoint/stored_model.h"
#include "io/directory.h"
#include "io/file.h"
#include "peft/adapter_file.h"

namespace stft::checkpoint {
namespace {

// All but the weights. A directory of PEFT's gets the modules of its base.
void write_adapter_directory(const StoredModel& stored, const std::string& directory) {
  const std::filesystem::path from(stored.directory());
  if (std::filesystem::exists(from / "modules.json")) {
    copy_adapter_files(from.string(), directory);
    return;
  }
  write_model_files(stored.spec(), directory, ModelForm::kAdapter);
  replace_tokenizer(from.string(), directory);
  for (const char* name : {peft::kAdapterConfigFile, kQuantizationFile}) {
    if (std::filesystem::exists(from / name)) {
      io::write_file((std::filesystem::path(directory) / name).string(), io::read_text_file((from / name).string()));
    }
  }
}

}  // namespace

std::optional<std::string> input_dtype(const model::ModelSpec& spec) {
  const std::string path = (std::filesystem::path(spec.base) / "config.json").string();
  return std::filesystem::exists(path) ? config_dtype(io::read_text_file(path), path) : std::nullopt;
}

WholeTensors engine_tensors(shard::ShardEngine& engine, const PretrainedWeights& weights, bool is_writer) {
  return [&engine, &weights, is_writer](const PlannedFile& file, const PlannedTensor& tensor) -> WholeTensor {
    if (tensor.is_parameter) {
      return {io::Dtype::kF32, engine.gather(tensor.parameter).to(at::kFloat)};
    }
    return is_writer ? read_whole(*weights.source_of(file.module), tensor.key) : WholeTensor{};
  };
}

void export_model(const ExportSource& source, const std::string& directory) {
  const bool is_writer = source.world.rank() == 0;
  const std::string temporary = directory + ".tmp";
  Attempt attempt(source.world, "writing '" + directory + "'", temporary);
  if (is_writer) {
    attempt.run([&] {
      io::remove_directory(temporary);
      io::make_directories(temporary);
      write_model_files(source.model.spec(), temporary, source.adapter ? ModelForm::kAdapter : ModelForm::kWhole);
      if (source.adapter != nullptr) {
        io::write_file((std::filesystem::path(temporary) / peft::kAdapterConfigFile).string(),
                       peft::adapter_config_text(*source.adapter));
      }
      for (const auto& [name, text] : source.texts) {
        io::write_file((std::filesystem::path(temporary) / name).string(), text);
      }
    });
  }
  write_weights(plan_weights(source.model, source.weights, source.adapter), WeightPrecision::kAsInput,
                engine_tensors(source.engine, source.weights, is_writer),
                is_writer ? std::optional(temporary) : std::nullopt, attempt);
  if (is_writer) {
    attempt.run([&] {
      io::make_durable(temporary);
      io::replace_directory(temporary, directory);
    });
  }
  attempt.agree();
}

void begin_directory(const model::ModelSpec& spec, WeightPrecision precision,
                     const std::optional<std::string>& input_dtype, const std::string& directory) {
  io::remove_directory(directory);
  io::make_directories(directory);
  write_model_files(spec, directory);
  const auto asked = precision_name(precision);
  if (const auto dtype = asked ? asked : input_dtype) {
    set_config_dtype(directory, *dtype);
  }
}

void export_directory(const std::string& checkpoint, const ExportOptions& options) {
  const StoredModel stored = StoredModel::open(checkpoint, FileCheck::kChecksums, options.base);
  if (options.merges_lora) {
    export_merged(stored, options);
    return;
  }
  const auto world = dist::ProcessGroup::single();
  const std::string temporary = options.out + ".tmp";
  Attempt attempt(*world, "writing '" + options.out + "'", temporary);
  attempt.run([&] {
    if (stored.is_adapter()) {
      io::remove_directory(temporary);
      io::make_directories(temporary);
      write_adapter_directory(stored, temporary);
      return;
    }
    begin_directory(stored.spec(), options.precision, stored.input_dtype(), temporary);
  });
  write_weights(stored.own_plan(), options.precision, stored.tensors(), temporary, attempt);
  attempt.run([&] {
    io::make_durable(temporary);
    io::replace_directory(temporary, options.out);
  });
  attempt.agree();
}

}  // namespace stft::checkpoint
