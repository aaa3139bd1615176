// `stft tokenize`: shows what a model's tokenizer makes of texts.
#pragma once

#include <optional>
#include <string>

namespace stft::app {

struct TokenizeOptions {
  std::string model;                      // a model directory, or the id of a hub's model
  std::string revision = "main";          // of a hub's model
  std::optional<std::string> text;        // one text; not together with input_path
  std::optional<std::string> input_path;  // one text a line: the bytes between newlines, a blank line included
};

// Prints one line {"ids":[...],"tokens":[...],"offsets":[[begin,end],...]} for each text to standard output and returns
// the exit code 0. Without text and input_path the lines of standard input are the texts. Texts are truncated to
// max_seq_length of sentence_bert_config.json, else to model_max_length of tokenizer_config.json, else not at all.
// Files that disagree give warnings on standard error. UserError as Tokenizer::load, and when the input file cannot be
// read or both sources are given; SystemError when standard output cannot be written.
int run_tokenize(const TokenizeOptions& options);

}  // namespace stft::app
