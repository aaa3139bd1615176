// Post-processors of tokenizer.json, for a single text: the special tokens around it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace stft::tokenizer {

// A tokenized text. All lists have the same length.
struct Encoding {
  std::vector<std::int32_t> ids;
  std::vector<std::string> tokens;  // the strings of the ids
  // The code points [begin, end) of the input text that each stands for; (0, 0) for those of the post-processor.
  std::vector<std::pair<std::int64_t, std::int64_t>> offsets;
  std::vector<bool> is_special;  // put there by the post-processor
};

struct SpecialToken {
  std::int32_t id = 0;
  std::string token;
};

// "[CLS] (2), [SEP] (3)", or "nothing".
std::string listed(const std::vector<SpecialToken>& tokens);

// What RobertaProcessing and ByteLevel do to offsets: white space at the ends of a token is left out.
struct OffsetTrimming {
  bool add_prefix_space = true;  // a single blank that begins the text stays
};

struct SpecialTokens {
  std::vector<SpecialToken> prefix;
  std::vector<SpecialToken> suffix;
};

using PostProcessorStep = std::variant<OffsetTrimming, SpecialTokens>;

// Steps one after the other.
class PostProcessor {
 public:
  PostProcessor() = default;
  explicit PostProcessor(std::vector<PostProcessorStep> steps);

  // All special tokens before and behind a text.
  const SpecialTokens& special_tokens() const { return all_; }
  std::size_t special_count() const { return all_.prefix.size() + all_.suffix.size(); }

  Encoding process(Encoding content) const;

 private:
  std::vector<PostProcessorStep> steps_;
  SpecialTokens all_;
};

}  // namespace stft::tokenizer
