#include "train/run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/manifest.h"
#include "checkpoint/optimizer_state.h"
#include "checkpoint/quantization_file.h"
#include "checkpoint/stored_model.h"
#include "io/checksum.h"
#include "io/directory.h"
#include "io/file.h"
#include "recipe/choices.h"
#include "shard/unit_plan.h"
#include "train/batch_options.h"
#include "train/console.h"
#include "train/evaluation.h"
#include "train/handshake.h"
#include "train/learning_rates.h"
#include "train/loaded_model.h"
#include "train/prompt_report.h"
#include "train/replicas.h"
#include "train/run_quantization.h"
#include "train/sharding_choice.h"
#include "train/tokenizer_facts.h"

namespace stft::train {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 8> kRunFiles = {
    "recipe.resolved.yaml", "log.jsonl", "trainer_state.json", "best.json", "eval", "final", "final.old",
    "final.removed"};

bool is_run_entry(const fs::path& path) {
  const std::string name = path.filename().string();
  for (const std::string file : kRunFiles) {
    if (name == file || name == file + ".tmp") {  // the latter when it was killed while writing
      return true;
    }
  }
  return name.starts_with("checkpoint-") || name.starts_with("stale-checkpoint-");
}

// What a run left in the directory; empty when it does not exist.
std::vector<fs::path> run_entries(const std::string& output_dir) {
  std::vector<fs::path> entries;
  for (const std::string& name : io::directory_entries(output_dir)) {
    if (is_run_entry(name)) {
      entries.push_back(fs::path(output_dir) / name);
    }
  }
  return entries;
}

std::unique_ptr<data::StepPlan> plan_steps(const recipe::TrainConfig& train, int64_t rows, int64_t ranks,
                                           const data::Position& start) {
  if (start.row > rows) {
    throw UserError(
        fmt::format("data.train: has {} rows now; the checkpoint had done {} of its epoch", rows, start.row));
  }
  data::StepPlanOptions options;
  options.start = start;
  options.rows = rows;
  options.rows_per_micro_batch = train.per_device_train_batch_size * ranks;
  options.accumulation = train.gradient_accumulation_steps;
  options.epochs = train.num_train_epochs;
  options.max_steps = train.max_steps;
  options.drops_last = train.dataloader_drop_last;
  auto plan = std::make_unique<data::StepPlan>(options);
  if (plan->total_steps() == 0) {
    throw UserError(
        fmt::format("train: nothing to train on: {} rows make 0 steps with {} ranks, per_device_train_batch_size {}, "
                    "gradient_accumulation_steps {} and dataloader_drop_last true",
                    rows, ranks, train.per_device_train_batch_size, train.gradient_accumulation_steps));
  }
  return plan;
}

data::LoaderOptions loader_options(const Run& run) {
  data::LoaderOptions options;
  options.seed = run.recipe.run.seed;
  options.shuffles = run.recipe.train.shuffle;
  options.batch = batch_options(run.recipe.data.train.front(), *run.model);
  options.batch.rank = run.mesh->world().rank();
  options.batch.ranks = run.mesh->world().size();
  return options;
}

model::ModelSpec resolved_spec(const recipe::Recipe& recipe, const tokenizer::Tokenizer& tokenizer) {
  model::ModelSpec spec = model::read_model_spec(recipe.model.directory(), recipe.model.base);
  if (!spec.max_seq_length) {
    spec.max_seq_length = tokenizer.model_max_length();
  }
  return model::with_overrides(std::move(spec), recipe.model, recipe.run.seed);
}

void check_model_fits(const Run& run) {
  check_tokenizer_fits(*run.tokenizer, *run.model);
  const auto longest = run.recipe.model.max_seq_length;
  if (longest && *longest > run.model->encoder().max_positions()) {
    throw UserError(fmt::format("model.max_seq_length: {} is more than the model's {} positions", *longest,
                                run.model->encoder().max_positions()));
  }
  if (run.model->max_seq_length() <= run.tokenizer->special_tokens_per_text()) {
    throw UserError(fmt::format("model.max_seq_length: {} leaves no room beside {} special tokens",
                                run.model->max_seq_length(), run.tokenizer->special_tokens_per_text()));
  }
}

// What the model's files hold beyond the model: a head, or layers that config.json does not count.
void tell_about_weights(const Run& run) {
  constexpr size_t kShown = 8;
  std::vector<std::string> names = run.weights->unused();
  if (names.empty()) {
    return;
  }
  const size_t count = names.size();
  names.resize(std::min(count, kShown));
  log::info(fmt::format("model: {} tensors that it does not use are carried unchanged: {}{}", count,
                        fmt::join(names, ", "), count > kShown ? ", ..." : ""));
}

// One rank tells.
void tell(const eval::DataNotes& notes) {
  for (const std::string& warning : notes.warnings) {
    log::warn(warning);
  }
  for (const std::string& info : notes.infos) {
    log::info(info);
  }
}

void tell_about_data(const Run& run) {
  if (run.dataset && !run.dataset->ignored_columns().empty()) {
    log::info(fmt::format("data '{}': columns that are not mapped are ignored: {}", run.dataset->name(),
                          fmt::join(run.dataset->ignored_columns(), ", ")));
  }
  for (const auto& evaluator : run.evaluators) {
    tell(evaluator->notes());
  }
}

// An adapter that is trained on is evaluated with its own tokenizer; a run has its model's.
void tell_about_other_tokenizer(const Run& run) {
  if (!run.recipe.adapter || !run.recipe.adapter->path) {
    return;
  }
  const fs::path own = fs::path(*run.recipe.adapter->path) / "tokenizer.json";
  const fs::path models = fs::path(run.recipe.model.directory()) / "tokenizer.json";
  if (fs::exists(own) && fs::exists(models) && io::file_checksum(own.string()) != io::file_checksum(models.string())) {
    log::warn(fmt::format("{}: {} is not the model's; the model's is used", recipe::where(run.recipe, "adapter.path"),
                          own.string()));
  }
}

void tell_about_adapter(const Run& run) {
  if (!run.adapter->adapter.unmatched.empty()) {
    log::warn(fmt::format("{}: '{}' matches no module of the model",
                          recipe::where(run.recipe, "adapter.target_modules"),
                          fmt::join(run.adapter->adapter.unmatched, "', '")));
  }
  log::info("adapter: " + describe(*run.adapter, *run.model));
  tell_about_other_tokenizer(run);
  tell_about_other_quantization(run);
  const std::string config = (fs::path(run.model->spec().base) / "config.json").string();
  if (run.recipe.model.causal == false && fs::exists(config) && !io::read_json_file(config).contains("is_causal")) {
    log::warn(
        fmt::format("model.causal: Python's sentence-transformers does not take it from an adapter's directory, since "
                    "{} has no is_causal; a model that `stft export --merge-lora` writes has it",
                    config));
  }
}

void tell_about_inputs(const Run& run) {
  tell_about_tokenizer(*run.tokenizer);
  if (run.adapter) {
    tell_about_adapter(run);
  }
  for (const std::string& line : describe_learning_rates(*run.model)) {
    log::info(line);
  }
  if (run.weights) {
    tell_about_weights(run);
  }
  tell_about_data(run);
  tell(prompt_notes(run.recipe, run.model->spec(), *run.tokenizer));
}

void check_wrap(const Run& run) {
  if (const auto problem = shard::wrap_problem(run.model->parameters(), run.model->blocks(), run.recipe.sharding)) {
    throw UserError(recipe::where(run.recipe, "sharding.wrap") + ": " + *problem);
  }
}

// What evaluating takes, short of the weights' values.
void read_model_and_evaluators(Run& run) {
  const recipe::Recipe& r = run.recipe;
  run.tokenizer = std::make_unique<tokenizer::Tokenizer>(load_tokenizer(r.model.directory(), r.model.base));
  run.model = std::make_unique<model::SentenceModel>(resolved_spec(r, *run.tokenizer));
  check_model_fits(run);
  run.evaluators = make_evaluators(r, *run.model, *run.tokenizer);
  run.weights = std::make_unique<checkpoint::PretrainedWeights>(checkpoint::PretrainedWeights::open(*run.model));
  run.adapter = attach_adapter(r, *run.model, *run.weights);
  check_wrap(run);
}

Run read_data(recipe::Recipe recipe, int64_t ranks, const data::Position& start) {
  Run run;
  run.recipe = with_stored_adapter(std::move(recipe));
  run.dataset = std::make_unique<data::Dataset>(data::Dataset::load(run.recipe.data.train.front()));
  run.plan = plan_steps(run.recipe.train, run.dataset->size(), ranks, start);
  return run;
}

// Everything that comes from the recipe's files, short of the weights' values.
Run read_inputs(recipe::Recipe recipe, int64_t ranks, const data::Position& start) {
  Run run = read_data(std::move(recipe), ranks, start);
  read_model_and_evaluators(run);
  set_learning_rates(run.recipe, *run.model);
  return run;
}

// What of the model comes from its files, in the form that the engine keeps it in.
shard::RowSource base_rows(const Run& run) {
  return run.quantized ? run.quantized->rows(run.weights->source()) : run.weights->source();
}

// The base of an adapter is that of the checkpoint.
void check_base(const Run& run) {
  const auto manifest = checkpoint::read_manifest(run.resumed->checkpoint);
  if (!run.base || !manifest || !manifest->base) {
    return;
  }
  const checkpoint::BaseIdentity& theirs = *manifest->base;
  if (const auto difference = checkpoint::base_difference(theirs, *run.base)) {
    throw UserError(fmt::format("{}: the base '{}' ({}) is not the one that '{}' was trained on, '{}' ({}): {} changed",
                                recipe::where(run.recipe, "model.name_or_path"), run.base->name, run.base->sample,
                                run.resumed->checkpoint, theirs.name, theirs.sample, *difference));
  }
}

// Collective: the base of an adapter becomes 4-bit when the recipe says so.
void quantize(Run& run, dist::ProcessGroup& world) {
  if (!run.recipe.quantization || !run.adapter) {
    if (run.adapter && run.weights->source_of(0)->has_four_bit() && world.rank() == 0) {
      log::warn(fmt::format("{} is stored in 4 bits and kept whole here; adapter.type: qlora keeps it in 4 bits",
                            run.model->spec().base));
    }
    return;
  }
  run.quantized =
      std::make_unique<checkpoint::QuantizedBase>(*run.model, *run.weights, *run.recipe.quantization, world);
  run.packed = std::make_unique<shard::PackedForms>(
      run.quantized->forms(compute_dtype(run.recipe) == shard::ParamDtype::kBf16 ? at::kBFloat16 : at::kFloat));
  if (world.rank() == 0) {
    tell_about_quantized(run);
  }
}

// Collective: the ranks' groups and the engine over them.
void make_engine(Run& run, std::unique_ptr<dist::ProcessGroup> world) {
  const int64_t memory = memory_per_rank(*world);
  const int64_t ranks = world->size();
  quantize(run, *world);
  run.sharding = sharding_of(run.recipe, {run.model->parameters(), run.packed.get()}, ranks, memory);
  // The ranks are on one machine.
  run.mesh = std::make_unique<Mesh>(std::move(world), shard::mesh_shape(run.sharding, ranks, ranks));
  run.engine = std::make_unique<shard::ShardEngine>(
      shard::EngineModel{run.model->parameters(), run.model->blocks(), run.packed.get()},
      shard::EngineMesh{run.mesh->shard(), run.mesh->replicate(), run.mesh->part()}, run.sharding);
  run.reduces_every_micro_batch = !keeps_whole_gradients(run.recipe, *run.engine, run.sharding, memory);
}

void add_files(std::vector<std::string>& paths, const std::vector<data::DatasetConfig>& sets) {
  for (const data::DatasetConfig& config : sets) {
    const auto files = io::expand_paths(config.paths);
    paths.insert(paths.end(), files.begin(), files.end());
  }
}

// What evaluations read.
std::vector<std::string> evaluation_paths(const recipe::Recipe& recipe) {
  std::vector<std::string> paths;
  add_files(paths, recipe.data.eval);
  for (const eval::EvaluatorConfig& config : recipe.evaluators) {
    for (const std::string& path : {config.queries.path, config.corpus.path, config.qrels_path, config.pairs.path}) {
      if (!path.empty()) {
        paths.push_back(path);
      }
    }
  }
  return paths;
}

std::vector<std::string> input_paths(const recipe::Recipe& recipe) {
  std::vector<std::string> paths = evaluation_paths(recipe);
  paths.push_back(recipe.model.directory());
  add_files(paths, recipe.data.train);
  return paths;
}

// What the ranks read from files that the recipe only names. Files of evaluations and of weights are told
// apart by their sizes.
std::vector<Fact> input_facts(const Run& run) {
  const std::string& directory = run.model->spec().directory;
  const std::string& base = run.model->spec().base;
  std::vector<std::string> configs = {"config.json", "modules.json", "config_sentence_transformers.json",
                                      peft::kAdapterConfigFile, checkpoint::kQuantizationFile};
  for (const model::ModuleSpec& module : run.model->spec().modules) {
    if (!module.path.empty()) {
      configs.push_back(module.path + "/config.json");
    }
  }
  std::string sizes;
  for (const std::string& path : evaluation_paths(run.recipe)) {
    if (fs::is_regular_file(path)) {
      sizes += fmt::format("{}: {} bytes\n", path, fs::file_size(path));
    }
  }
  for (const std::string& folder : base == directory ? std::vector{directory} : std::vector{directory, base}) {
    for (const std::string& file : io::files_below(folder)) {
      if (file.ends_with(".safetensors") || file.ends_with(".distcp")) {
        sizes += fmt::format("{}: {} bytes\n", file, fs::file_size(fs::path(folder) / file));
      }
    }
  }
  return {parameter_fact(run.model->parameters()),
          file_fact("model", directory, configs),
          tokenizer_fact(*run.tokenizer),
          {"training data", run.data_fingerprint},
          {"data files", sizes}};
}

}  // namespace

const peft::Adapter* adapter_of(const Run& run) {
  return run.adapter ? &run.adapter->adapter : nullptr;
}

std::string base_of_checkpoints(const Run& run) {
  return run.adapter ? run.model->spec().base : "";
}

shard::RowSource rows_of_checkpoint(const Run& run, const checkpoint::StoredModel& stored) {
  return run.adapter ? checkpoint::with_frozen(stored.rows(), base_rows(run)) : stored.rows();
}

model::Layout layout_of(recipe::Packing packing) {
  return packing == recipe::Packing::kOff ? model::Layout::kPadded : model::Layout::kPacked;
}

void check_output_dir(const recipe::Recipe& recipe, OutputDirUse use) {
  const std::string& output_dir = recipe.run.output_dir;
  std::error_code error;
  for (fs::path part = fs::absolute(output_dir); part.has_relative_path(); part = part.parent_path()) {
    if (fs::exists(part, error)) {
      if (!fs::is_directory(part, error)) {
        throw UserError(fmt::format("run.output_dir: '{}' is not a directory", part.string()));
      }
      break;
    }
  }
  const auto entries = run_entries(output_dir);
  if (use == OutputDirUse::kNew && !entries.empty()) {
    throw UserError(fmt::format(
        "run.output_dir: '{}' holds a run already; use another directory, --resume or --overwrite", output_dir));
  }
  if (use != OutputDirUse::kReplaces) {
    return;
  }
  for (const fs::path& entry : entries) {
    for (const std::string& input : input_paths(recipe)) {
      if (io::lies_in(input, entry.string())) {
        throw UserError(fmt::format(
            "run.output_dir: --overwrite would delete '{}', which this run reads; use another directory", input));
      }
    }
  }
}

void clear_output_dir(const std::string& output_dir) {
  for (const fs::path& entry : run_entries(output_dir)) {
    std::error_code error;
    fs::remove_all(entry, error);
    if (error) {
      throw SystemError(fmt::format("removing '{}': {}", entry.string(), error.message()));
    }
  }
}

void check_inputs(const recipe::Recipe& recipe, int64_t ranks) {
  tell_about_inputs(read_inputs(recipe, ranks, {}));
}

void check_inputs_without_model(const recipe::Recipe& recipe, int64_t ranks) {
  tell_about_data(read_data(recipe, ranks, {}));
}

Run assemble_evaluation(recipe::Recipe recipe, std::unique_ptr<dist::ProcessGroup> world) {
  Run run;
  run.recipe = with_stored_quantization(std::move(recipe), world->rank() == 0);
  // An evaluation gathers everything once, so how the run that trains was cut does not matter; it may not even fit this
  // number of ranks.
  if (run.recipe.sharding.strategy != shard::Strategy::kNoShard) {
    run.recipe.sharding.strategy = shard::Strategy::kFullShard;
    run.recipe.sharding.reshard_after_forward_size.reset();
  }
  read_model_and_evaluators(run);
  agree_on_facts(*world, input_facts(run));
  if (world->rank() == 0) {
    tell_about_inputs(run);
    const auto warning = checkpoint::other_base_warning(run.recipe.model.directory(), run.recipe.model.base);
    if (warning) {
      log::warn(*warning);
    }
  }
  make_engine(run, std::move(world));
  run.engine->fill(initial_rows(*run.model, base_rows(run), run.adapter.get(), run.recipe.run.seed));
  check_replicas(*run.engine, *run.mesh, "before the evaluation");
  run.quantized_base_hash = run.quantized ? run.engine->packed_checksum() : 0;
  if (is_other_base(run, run.recipe.model.directory()) && run.mesh->world().rank() == 0) {
    log::warn(
        fmt::format("the quantized base {} is not the one that the adapter was trained on", run.model->spec().base));
  }
  return run;
}

Run assemble(recipe::Recipe recipe, std::unique_ptr<dist::ProcessGroup> world, std::optional<ResumePoint> resumed) {
  const data::Position start = resumed ? resumed->state.position : data::Position{};
  Run run = read_inputs(std::move(recipe), world->size(), start);
  run.resumed = std::move(resumed);
  run.data_fingerprint = run.dataset->fingerprint();
  agree_on_facts(*world, input_facts(run));
  if (run.resumed && run.resumed->state.data_fingerprint != run.data_fingerprint) {
    throw UserError(fmt::format("{}: the rows are not those that '{}' was trained on",
                                recipe::where(run.recipe, "data.train.0.path"), run.resumed->checkpoint));
  }
  const recipe::Recipe& r = run.recipe;
  if (run.adapter) {
    run.base = checkpoint::identify_base(*run.model, *run.weights, run.adapter->adapter.base_model);
  }
  if (run.resumed) {
    check_base(run);
  }
  if (world->rank() == 0) {
    tell_about_inputs(run);
  }
  make_engine(run, std::move(world));
  run.optimizer = optim::make_optimizer(r.optim);
  if (run.resumed) {
    const auto stored =
        checkpoint::StoredModel::open(run.resumed->checkpoint, checkpoint::FileCheck::kSizes, base_of_checkpoints(run));
    run.engine->fill(rows_of_checkpoint(run, stored));
    checkpoint::load_optimizer((fs::path(run.resumed->checkpoint) / checkpoint::kOptimizerFolder).string(),
                               *run.optimizer, *run.engine);
  } else {
    run.engine->fill(initial_rows(*run.model, base_rows(run), run.adapter.get(), r.run.seed));
  }
  run.parameters_checksum = checked_checksum(*run.engine, *run.mesh, "before the first step");
  run.quantized_base_hash = run.quantized ? run.engine->packed_checksum() : 0;
  if (run.resumed && is_other_base(run, run.resumed->checkpoint)) {
    throw UserError(fmt::format("{}: the weights of the base are not those that '{}' was trained on",
                                recipe::where(run.recipe, "model.name_or_path"), run.resumed->checkpoint));
  }
  run.schedule = std::make_unique<optim::Schedule>(r.optim, run.plan->total_steps());
  run.loader = std::make_unique<data::BatchLoader>(*run.dataset, *run.tokenizer, *run.plan, loader_options(run));
  return run;
}

}  // namespace stft::train
