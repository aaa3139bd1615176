#include "train/run_state.h"

#include <cmath>
#include <limits>

#include "base/error.h"
#include "io/json.h"

namespace stft::train {
namespace {

using Ordered = nlohmann::ordered_json;
using io::Json;

Ordered number(double value) {
  return std::isfinite(value) ? Ordered(value) : Ordered(nullptr);
}

double number_or_nan(const Json& json, const std::string& key, const std::string& origin) {
  return io::optional_double(json, key, origin).value_or(std::numeric_limits<double>::quiet_NaN());
}

const Json& member(const Json& json, const std::string& key, const std::string& origin) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_object()) {
    throw UserError(origin + ": '" + key + "' is missing or not an object");
  }
  return *found;
}

}  // namespace

std::string to_json(const RunState& state) {
  Ordered first = Ordered::object();
  for (const auto& [name, value] : state.first_values) {
    first[name] = number(value);
  }
  Ordered json = {{"position",
                   {{"step", state.position.step},
                    {"epoch", state.position.epoch},
                    {"row", state.position.row},
                    {"micro_steps", state.position.micro_steps}}},
                  {"epoch", state.epoch},
                  {"since_log",
                   {{"loss_sum", number(state.since_log.loss_sum)},
                    {"steps", state.since_log.steps},
                    {"rows", state.since_log.rows},
                    {"tokens", state.since_log.tokens},
                    {"seconds", state.since_log.seconds}}},
                  {"train_seconds", state.train_seconds},
                  {"best_value", state.best_progress.best ? number(*state.best_progress.best) : Ordered(nullptr)},
                  {"evaluations_without_improvement", state.best_progress.evaluations_without_improvement},
                  {"best_checkpoint", nullptr},
                  {"best_metric", state.best_progress.metric},
                  {"greater_is_better", state.best_progress.greater_is_better},
                  {"data_fingerprint", state.data_fingerprint},
                  {"stop_checkpoint", state.stop_checkpoint ? Ordered(*state.stop_checkpoint) : Ordered(nullptr)},
                  {"evaluated_step", state.evaluated_step},
                  {"is_evaluation_pending", state.is_evaluation_pending},
                  {"stops_early", state.stops_early},
                  {"first_values", first},
                  {"log_history", state.history}};
  if (state.best) {
    json["best_checkpoint"] = checkpoint::to_json(*state.best);
  }
  return json.dump(1) + "\n";
}

RunState run_state_from_json(const std::string& text, const std::string& origin) {
  const Json json = io::parse_json(text, origin);
  RunState state;
  const Json& position = member(json, "position", origin);
  state.position.step = io::get_int(position, "step", origin);
  state.position.epoch = io::get_int(position, "epoch", origin);
  state.position.row = io::get_int(position, "row", origin);
  const int64_t micro_steps = io::get_int(position, "micro_steps", origin);
  if (state.position.step < 0 || state.position.epoch < 0 || state.position.row < 0 || micro_steps < 0) {
    throw UserError(origin + ": 'position' has a negative number");
  }
  state.position.micro_steps = static_cast<uint64_t>(micro_steps);
  state.epoch = io::get_double(json, "epoch", origin);
  const Json& since_log = member(json, "since_log", origin);
  state.since_log.loss_sum = number_or_nan(since_log, "loss_sum", origin);
  state.since_log.steps = io::get_int(since_log, "steps", origin);
  state.since_log.rows = io::get_int(since_log, "rows", origin);
  state.since_log.tokens = io::get_int(since_log, "tokens", origin);
  state.since_log.seconds = io::get_double(since_log, "seconds", origin);
  state.train_seconds = io::get_double(json, "train_seconds", origin);
  state.best_progress.best = io::optional_double(json, "best_value", origin);
  state.best_progress.evaluations_without_improvement = io::get_int(json, "evaluations_without_improvement", origin);
  if (const auto best = json.find("best_checkpoint"); best != json.end() && !best->is_null()) {
    state.best = checkpoint::best_from_json(*best, origin + ": best_checkpoint");
  }
  state.best_progress.metric = io::get_string(json, "best_metric", origin);
  state.best_progress.greater_is_better = io::get_bool(json, "greater_is_better", origin);
  state.data_fingerprint = io::get_string(json, "data_fingerprint", origin);
  state.stop_checkpoint = io::optional_string(json, "stop_checkpoint", origin);
  if (state.stop_checkpoint && !checkpoint::checkpoint_step(*state.stop_checkpoint)) {
    throw UserError(origin + ": stop_checkpoint: \"" + *state.stop_checkpoint + "\" is no name of a checkpoint");
  }
  state.evaluated_step = io::get_int(json, "evaluated_step", origin);
  state.is_evaluation_pending = io::get_bool(json, "is_evaluation_pending", origin);
  state.stops_early = io::get_bool(json, "stops_early", origin);
  // An ordered parse keeps the order that the log had.
  const Ordered ordered = Ordered::parse(text);
  member(json, "first_values", origin);
  for (const auto& [name, value] : ordered["first_values"].items()) {
    state.first_values.emplace_back(name, value.is_number() ? value.get<double>() : std::nan(""));
  }
  if (!ordered.contains("log_history") || !ordered["log_history"].is_array()) {
    throw UserError(origin + ": 'log_history' is missing or not a list");
  }
  state.history = ordered["log_history"];
  return state;
}

std::string with_eval_prefix(const std::string& metric) {
  return metric.starts_with("eval_") ? metric : "eval_" + metric;
}

std::string trainer_state_json(const RunState& state, const TrainerStateFacts& facts) {
  const recipe::TrainConfig& train = facts.recipe.train;
  Json json = {{"best_global_step", nullptr},
               {"best_metric", nullptr},
               {"best_model_checkpoint", nullptr},
               {"epoch", state.epoch},
               {"eval_steps", facts.eval_steps},
               {"global_step", state.position.step},
               {"is_hyper_param_search", false},
               {"is_local_process_zero", true},
               {"is_world_process_zero", true},
               {"log_history", Json(state.history)},
               {"logging_steps", facts.logging_steps},
               {"max_steps", facts.total_steps},
               {"num_input_tokens_seen", 0},
               {"num_train_epochs", static_cast<int64_t>(std::ceil(train.num_train_epochs))},
               {"save_steps", facts.save_steps},
               {"stateful_callbacks", Json::object()},
               {"total_flos", 0.0},
               {"train_batch_size", train.per_device_train_batch_size},
               {"trial_name", nullptr},
               {"trial_params", nullptr}};
  if (state.best) {
    json["best_global_step"] = checkpoint::checkpoint_step(state.best->checkpoint).value_or(0);
    json["best_metric"] = state.best->value;
    json["best_model_checkpoint"] = state.best->checkpoint;
  }
  return json.dump(2) + "\n";
}

}  // namespace stft::train
