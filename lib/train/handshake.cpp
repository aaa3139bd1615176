#include "train/handshake.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>

#include "base/error.h"
#include "io/checksum.h"
#include "recipe/compare.h"

namespace stft::train {
namespace {

constexpr size_t kLongestShown = 160;

int64_t checksum(const std::string& text) {
  io::Checksum sum;
  sum.update({reinterpret_cast<const std::byte*>(text.data()), text.size()});
  return static_cast<int64_t>(sum.value());
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

// The lines that `others` does not have.
std::vector<std::string> lines_beyond(const std::string& text, const std::string& others) {
  const auto known = lines_of(others);
  const std::set<std::string> in_others(known.begin(), known.end());
  std::vector<std::string> beyond;
  for (const std::string& line : lines_of(text)) {
    if (!in_others.contains(line)) {
      beyond.push_back(line);
    }
  }
  return beyond;
}

std::string shown(const std::vector<std::string>& lines) {
  if (lines.empty()) {
    return "nothing of the kind";
  }
  std::string line = lines.front();
  if (line.size() > kLongestShown) {
    size_t end = kLongestShown;
    while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xC0) == 0x80) {
      --end;  // not within a UTF-8 sequence
    }
    line = line.substr(0, end) + "...";
  }
  return "'" + line + "'" + (lines.size() > 1 ? fmt::format(" (and {} more)", lines.size() - 1) : "");
}

// "rank 1", "ranks 0 and 2", "ranks 0, 2 and 3".
std::string name_ranks(const std::vector<int64_t>& ranks) {
  if (ranks.size() == 1) {
    return fmt::format("rank {}", ranks.front());
  }
  return fmt::format("ranks {} and {}", fmt::join(ranks.begin(), ranks.end() - 1, ", "), ranks.back());
}

// How the texts of the other ranks differ from rank 0's.
std::string describe(const std::string& field, const std::vector<std::string>& texts) {
  std::map<std::string, std::vector<int64_t>> ranks_with;
  std::vector<std::string> distinct;  // in the order of ranks
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    auto& ranks = ranks_with[texts[rank]];
    if (ranks.empty()) {
      distinct.push_back(texts[rank]);
    }
    ranks.push_back(static_cast<int64_t>(rank));
  }
  const std::string& first = distinct.front();
  std::string message;
  for (size_t i = 1; i < distinct.size(); ++i) {
    auto here = lines_beyond(first, distinct[i]);
    auto there = lines_beyond(distinct[i], first);
    if (here.empty() && there.empty()) {  // the same lines in another order
      here = lines_of(first);
      there = lines_of(distinct[i]);
      const auto [a, b] = std::mismatch(here.begin(), here.end(), there.begin(), there.end());
      here.erase(here.begin(), a);
      there.erase(there.begin(), b);
    }
    message += fmt::format("\n{}: {} on {}, {} on {}", field, shown(here), name_ranks(ranks_with[first]), shown(there),
                           name_ranks(ranks_with[distinct[i]]));
  }
  return message;
}

// Collective: of the facts whose checksums differ.
std::string differences(dist::ProcessGroup& world, const std::vector<Fact>& facts) {
  std::vector<int64_t> sums;
  for (const Fact& fact : facts) {
    sums.push_back(checksum(fact.value));
  }
  const auto all = dist::gather_integers(world, sums);
  std::string message;
  for (size_t i = 0; i < facts.size(); ++i) {
    bool is_equal = true;
    for (const auto& of_rank : all) {
      is_equal = is_equal && of_rank[i] == all.front()[i];
    }
    if (!is_equal) {
      message += describe(facts[i].field, dist::gather_texts(world, facts[i].value));
    }
  }
  return message;
}

}  // namespace

void agree_on_facts(dist::ProcessGroup& world, const std::vector<Fact>& facts) {
  if (world.size() == 1) {
    return;
  }
  // Another version may compare other facts, and more of them: first, which they are.
  std::string fields;
  for (const Fact& fact : facts) {
    fields += (fields.empty() ? "" : ", ") + fact.field;
  }
  std::string message = differences(world, {{"what the ranks compare", fields}});
  if (message.empty() && !facts.empty()) {
    message = differences(world, facts);
  }
  if (!message.empty()) {
    throw UserError("the ranks do not run the same:" + message);
  }
}

Fact recipe_fact(const recipe::Recipe& recipe) {
  return {"recipe", recipe::flat_text({recipe::dump(recipe), "the recipe"})};
}

Fact parameter_fact(const model::ParameterTable& table) {
  std::string text;
  for (const model::Parameter& parameter : table) {
    text += fmt::format("{} of module {}: [{}]{}\n", parameter.name, parameter.module, fmt::join(parameter.shape, ", "),
                        parameter.is_trainable ? "" : ", frozen");
  }
  return {"parameters", text};
}

Fact file_fact(std::string field, const std::string& directory, const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) {
    const std::string path = (std::filesystem::path(directory) / name).string();
    if (std::filesystem::exists(path)) {
      text += fmt::format("{}: {}\n", name, io::file_checksum(path));
    }
  }
  return {std::move(field), text};
}

Fact batch_fact(const data::LocalStep& step) {
  std::string text;
  for (const data::LocalMicroBatch& batch : step.micro_batches) {
    text += fmt::format("micro-batch {}: {} of {} rows, at most {} negatives, {} a row, scores {}\n", batch.micro_step,
                        batch.global_rows, batch.step_rows, batch.max_negatives, fmt::join(batch.negatives, " "),
                        batch.scores.empty() ? "none" : fmt::format("{:.9g}", fmt::join(batch.scores, " ")));
  }
  return {"batch", text};
}

}  // namespace stft::train
