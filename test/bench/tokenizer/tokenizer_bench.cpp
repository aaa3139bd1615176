// How fast the library tokenizes. run.py beside this file runs it next to the Python package.
//
//   tokenizer_bench MODEL_DIRECTORY TEXTS THREADS PASSES
//
// TEXTS holds one text a line. Prints a JSON line for each pass over all of them: {"wall", "cpu": seconds, "tokens",
// "checksum": over all ids in order}; making the list of texts and the checksum is not timed.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace {

using Ids = std::vector<std::int32_t>;

constexpr std::size_t kTextsAtOnce = 64;

struct Pass {
  double wall = 0;
  double cpu = 0;
  std::vector<Ids> ids;
};

std::vector<std::string> lines_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(std::move(line));
  }
  if (lines.empty()) {
    throw std::runtime_error("no texts in " + path);
  }
  return lines;
}

double cpu_seconds() {
  std::timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

Pass run_pass(const stft::tokenizer::Tokenizer& tokenizer, const std::vector<std::string>& texts, std::size_t threads) {
  Pass pass;
  const auto wall_begin = std::chrono::steady_clock::now();
  const double cpu_begin = cpu_seconds();
  pass.ids.resize(texts.size());
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t begin = next.fetch_add(kTextsAtOnce); begin < texts.size(); begin = next.fetch_add(kTextsAtOnce)) {
      for (std::size_t i = begin; i < std::min(begin + kTextsAtOnce, texts.size()); ++i) {
        pass.ids[i] = tokenizer.encode_ids(texts[i], 0);
      }
    }
  };
  std::vector<std::thread> workers;
  for (std::size_t i = 1; i < threads; ++i) {
    workers.emplace_back(work);
  }
  work();
  for (std::thread& worker : workers) {
    worker.join();
  }
  pass.cpu = cpu_seconds() - cpu_begin;
  pass.wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - wall_begin).count();
  return pass;
}

void print(const Pass& pass) {
  std::uint64_t checksum = 0;
  std::size_t tokens = 0;
  for (const Ids& ids : pass.ids) {
    tokens += ids.size();
    for (std::size_t i = 0; i < ids.size(); ++i) {
      checksum += (i + 1) * (static_cast<std::uint64_t>(ids[i]) + 1);
    }
  }
  std::printf("{\"wall\": %.6f, \"cpu\": %.6f, \"tokens\": %zu, \"checksum\": %llu}\n", pass.wall, pass.cpu, tokens,
              static_cast<unsigned long long>(checksum));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: tokenizer_bench MODEL_DIRECTORY TEXTS THREADS PASSES\n");
    return 2;
  }
  try {
    const auto tokenizer = stft::tokenizer::Tokenizer::load(argv[1]);
    const std::vector<std::string> texts = lines_of(argv[2]);
    const std::size_t threads = std::max<std::size_t>(1, std::stoul(argv[3]));
    for (int i = 0; i < std::stoi(argv[4]); ++i) {
      print(run_pass(tokenizer, texts, threads));
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tokenizer_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
