// Post-processors of tokenizer.json, for a single text: the special tokens around it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace stft::tokenizer {

// Ids, the strings of them, and the code points [begin, end) of the input text that each stands for; (0, 0) for the
// special tokens of the post-processor.
struct Encoding {
  std::vector<std::int32_t> ids;
  std::vector<std::string> tokens;
  std::vector<std::pair<std::int64_t, std::int64_t>> offsets;
};

struct SpecialToken {
  std::int32_t id = 0;
  std::string token;
};

// What RobertaProcessing does to offsets: white space at the ends of a token is left out.
struct OffsetTrimming {
  bool add_prefix_space = true;  // a single blank that begins the text stays
};

struct PostProcessor {
  std::vector<SpecialToken> prefix;
  std::vector<SpecialToken> suffix;
  std::optional<OffsetTrimming> trimming;

  std::size_t special_count() const { return prefix.size() + suffix.size(); }

  // `content` with its offsets trimmed and the special tokens around it.
  Encoding process(Encoding content) const;
};

}  // namespace stft::tokenizer
