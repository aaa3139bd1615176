// What the library makes of many texts, for scripts/fuzz_tokenizer.py.
//
//   fuzz_peer MODEL_DIRECTORY INPUT OUTPUT [THREADS [MAX_LENGTH]]
//
// INPUT holds a JSON string on each line. OUTPUT gets a line for each: {"ids", "tokens", "offsets" (begin, end, begin,
// ...), "special_tokens_mask"}, or {"error": why the text has no ids}. MAX_LENGTH 0: no truncation.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace {

using stft::tokenizer::Encoding;
using stft::tokenizer::Tokenizer;

std::vector<std::string> lines_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(std::move(line));
  }
  if (file.bad() || !file.eof()) {
    throw std::runtime_error("cannot read " + path);
  }
  return lines;
}

std::string answer(const Tokenizer& tokenizer, const std::string& line, std::int64_t max_length) {
  nlohmann::json result;
  const auto text = nlohmann::json::parse(line).get<std::string>();
  try {
    const Encoding encoding = tokenizer.encode(text, max_length);
    if (tokenizer.encode_ids(text, max_length) != encoding.ids) {
      throw std::logic_error("encode and encode_ids disagree");
    }
    auto& offsets = result["offsets"] = nlohmann::json::array();
    for (const auto& [begin, end] : encoding.offsets) {
      offsets.push_back(begin);
      offsets.push_back(end);
    }
    auto& mask = result["special_tokens_mask"] = nlohmann::json::array();
    for (const bool is_special : encoding.is_special) {
      mask.push_back(is_special ? 1 : 0);
    }
    result["ids"] = encoding.ids;
    result["tokens"] = encoding.tokens;
  } catch (const std::exception& error) {
    result = {{"error", error.what()}};
  }
  return result.dump();
}

struct Settings {
  std::string model;
  std::string input;
  std::string output;
  std::size_t threads = 1;
  std::int64_t max_length = 0;
};

void run(const Settings& settings) {
  const Tokenizer tokenizer = Tokenizer::load(settings.model);
  const std::vector<std::string> lines = lines_of(settings.input);
  const std::size_t threads = settings.threads;
  std::vector<std::string> answers(lines.size());
  std::vector<std::thread> workers;
  for (std::size_t worker = 0; worker < threads; ++worker) {
    workers.emplace_back([&, worker] {
      const std::size_t end = lines.size() * (worker + 1) / threads;
      for (std::size_t i = lines.size() * worker / threads; i < end; ++i) {
        answers[i] = answer(tokenizer, lines[i], settings.max_length);
      }
    });
  }
  for (std::thread& worker : workers) {
    worker.join();
  }
  std::ofstream file(settings.output, std::ios::binary);
  for (const std::string& line : answers) {
    file << line << '\n';
  }
  file.flush();
  if (!file) {
    throw std::runtime_error("cannot write " + settings.output);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() < 3 || arguments.size() > 5) {
    std::fprintf(stderr, "usage: fuzz_peer MODEL_DIRECTORY INPUT OUTPUT [THREADS [MAX_LENGTH]]\n");
    return 2;
  }
  try {
    Settings settings{arguments[0], arguments[1], arguments[2]};
    settings.threads = arguments.size() > 3 ? std::max<std::size_t>(1, std::stoul(arguments[3])) : 1;
    settings.max_length = arguments.size() > 4 ? std::stoll(arguments[4]) : 0;
    run(settings);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fuzz_peer: %s\n", error.what());
    return 1;
  }
  return 0;
}
