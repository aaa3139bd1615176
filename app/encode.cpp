#include "encode.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "checkpoint/base_identity.h"
#include "checkpoint/quantization_file.h"
#include "data/text_list.h"
#include "dist/launch.h"
#include "dist/rank_environment.h"
#include "eval/embedder.h"
#include "eval/embedding_file.h"
#include "eval/prompts.h"
#include "eval/quantize.h"
#include "eval/text_encoding.h"
#include "exit_codes.h"
#include "io/checksum.h"
#include "locate_model.h"
#include "rank_process.h"
#include "train/console.h"
#include "train/handshake.h"
#include "train/loaded_model.h"
#include "train/mesh.h"
#include "train/tokenizer_facts.h"

namespace stft::app {
namespace {

void check_output(const EncodeOptions& options) {
  std::error_code error;
  if (std::filesystem::equivalent(options.input_path, options.output_path, error)) {
    throw UserError(fmt::format("--output: '{}' is the input", options.output_path));
  }
  eval::check_embedding_path(options.output_path, options.overwrites);
}

// What makes the ranks' vectors parts of one result.
std::vector<train::Fact> facts(const eval::EncodingOptions& encoding, const data::TextList& list,
                               const train::LoadedModel& loaded) {
  const model::SentenceModel& model = *loaded.model;
  auto facts = opening_facts("encode");
  io::Checksum texts;
  for (const std::string_view text : list.texts()) {
    texts.update({reinterpret_cast<const std::byte*>(text.data()), text.size()});
  }
  facts.push_back({"texts", fmt::format("{} texts, {}", list.texts().size(), texts.text())});
  facts.push_back({"--prompt-name", encoding.prompt});
  facts.push_back({"--truncate-dim", encoding.truncate_dim ? std::to_string(*encoding.truncate_dim) : "not set"});
  facts.push_back(train::parameter_fact(model.parameters()));
  facts.push_back(train::file_fact("model", model.spec().directory, {"config.json", "modules.json"}));
  facts.push_back(train::tokenizer_fact(*loaded.tokenizer));
  return facts;
}

int run_rank(const EncodeOptions& options, const dist::RankInfo& info) {
  configure_log(info);
  if (info.rank == 0) {
    check_output(options);
  }
  const auto list = data::TextList::load(options.input_path, options.column);
  const auto world = train::join_world(info, {});
  const LocatedModel located = locate_model({options.model, options.revision}, info, *world);
  const train::LoadedModel loaded = train::load_model(located.directory, located.base);
  const model::ModelSpec& spec = loaded.model->spec();
  eval::EncodingOptions encoding;
  encoding.prompt = eval::encoding_prompt(spec, options.prompt_name);
  encoding.truncate_dim = options.truncate_dim ? options.truncate_dim : spec.truncate_dim;
  encoding.threads = threads_per_rank({}, info.local_world_size);
  train::agree_on_facts(*world, facts(encoding, list, loaded));
  if (info.rank == 0) {
    train::tell_about_tokenizer(*loaded.tokenizer);
    if (const auto warning = checkpoint::other_base_warning(located.directory, located.base)) {
      log::warn(*warning);
    }
    if (!located.base.empty() && checkpoint::read_quantization_file(located.directory)) {
      log::info(
          fmt::format("adapter: computes on the base {} as it is stored, as Python does; it was trained, and is "
                      "evaluated, on the quantized one",
                      located.base));
    }
  }

  const double start = monotonic_seconds();
  const eval::Embedder embedder(*loaded.model, *loaded.tokenizer, model::Layout::kPacked);
  const auto embeddings_ND = eval::encode_texts(embedder, list.texts(), encoding, *world);
  if (info.rank != 0) {
    return kDone;
  }
  const double seconds = monotonic_seconds() - start;
  eval::write_embeddings(options.output_path, eval::quantize(embeddings_ND, options.precision));
  const auto texts = static_cast<int64_t>(list.texts().size());
  log::info(fmt::format("{}: {} texts of {} dimensions in {:.1f} s, {:.1f} texts/s", options.output_path,
                        train::format_count(texts), embeddings_ND.size(1), seconds,
                        static_cast<double>(texts) / std::max(seconds, 1e-9)));
  return kDone;
}

}  // namespace

int run_encode(const EncodeOptions& options, const std::vector<std::string>& arguments) {
  if (const auto info = dist::rank_from_environment()) {
    if (info->launcher_pid) {
      dist::join_launcher(*info->launcher_pid);
    }
    try {
      return run_rank(options, *info);
    } catch (const c10::Error& error) {
      translate(error);
    }
  }
  check_output(options);
  const auto located =
      locate_model({options.model, options.revision});  // before the ranks, which then find this commit
  std::vector<std::string> of_ranks = arguments;
  if (located.commit) {
    of_ranks = with_options(std::move(of_ranks), {"--revision", *located.commit});
  }
  return dist::launch({of_ranks, options.nproc, threads_per_rank({}, options.nproc)});
}

}  // namespace stft::app
