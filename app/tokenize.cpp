#include "tokenize.h"

#include <cerrno>
#include <cstdint>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "io/file.h"
#include "locate_model.h"
#include "tokenizer/tokenizer.h"
#include "train/loaded_model.h"

namespace stft::app {
namespace {

class Printer {
 public:
  explicit Printer(const LocatedModel& model)
      : tokenizer_(train::load_tokenizer(model.directory, model.base)),
        max_length_(tokenizer_.max_seq_length().value_or(tokenizer_.model_max_length().value_or(0))) {
    for (const std::string& warning : tokenizer_.policy().warnings) {
      log::warn(warning);
    }
  }

  void print(std::string_view text) const {
    const tokenizer::Encoding encoding = tokenizer_.encode(text, max_length_);
    nlohmann::ordered_json line;
    line["ids"] = encoding.ids;
    line["tokens"] = encoding.tokens;
    line["offsets"] = encoding.offsets;
    std::cout << line.dump() << '\n';
    if (!std::cout) {
      throw_errno("writing", "standard output", errno);
    }
  }

 private:
  tokenizer::Tokenizer tokenizer_;
  std::int64_t max_length_ = 0;  // 0: no truncation
};

void print_lines(const Printer& printer, std::string_view content) {
  while (!content.empty()) {
    const std::size_t newline = content.find('\n');
    printer.print(content.substr(0, newline));
    content.remove_prefix(newline == std::string_view::npos ? content.size() : newline + 1);
  }
}

}  // namespace

int run_tokenize(const TokenizeOptions& options) {
  if (options.text && options.input_path) {
    throw UserError("tokenize: give either --text or --input, not both");
  }
  const Printer printer(locate_model({options.model, options.revision, hub::Wanted::kTokenizer, BaseUse::kTokenizer}));
  if (options.text) {
    printer.print(*options.text);
  } else if (options.input_path) {
    print_lines(printer, io::read_text_file(*options.input_path));
  } else {
    for (std::string line; std::getline(std::cin, line);) {
      printer.print(line);
    }
  }
  std::cout.flush();
  if (!std::cout) {
    throw_errno("writing", "standard output", errno);
  }
  return 0;
}

}  // namespace stft::app
