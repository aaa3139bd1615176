#include "eval/text_encoding.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.h"
#include "eval/text_blocks.h"

// Shape suffixes: N texts of a block, D dimensions kept, S slots of a round, R ranks.

namespace stft::eval {
namespace {

constexpr int64_t kBlocksPerRound = 256;  // of one rank, between two gathers

// While it lives LibTorch computes every operation on the calling thread alone.
class SingleThreadedOperations {
 public:
  SingleThreadedOperations() : threads_(at::get_num_threads()) { at::set_num_threads(1); }
  ~SingleThreadedOperations() { at::set_num_threads(threads_); }
  SingleThreadedOperations(const SingleThreadedOperations&) = delete;
  SingleThreadedOperations& operator=(const SingleThreadedOperations&) = delete;

 private:
  int threads_;
};

// Calls work(0) to work(count - 1) on `threads` threads; the first exception ends it and is thrown again.
void run_parallel(int64_t count, int64_t threads, const std::function<void(int64_t)>& work) {
  std::atomic<int64_t> next = 0;
  std::exception_ptr failure;
  std::mutex failure_mutex;
  const auto loop = [&] {
    try {
      for (int64_t i = next++; i < count; i = next++) {
        work(i);
      }
    } catch (...) {
      const std::lock_guard lock(failure_mutex);
      failure = failure ? failure : std::current_exception();
      next = count;
    }
  };
  std::vector<std::jthread> others;
  for (int64_t t = 1; t < std::min(threads, count); ++t) {
    others.emplace_back([&] {
      at::set_num_threads(1);  // a setting of the thread
      loop();
    });
  }
  loop();
  others.clear();
  if (failure) {
    std::rethrow_exception(failure);
  }
}

class TextEncoder {
 public:
  TextEncoder(const Embedder& embedder, std::span<const std::string_view> texts, const EncodingOptions& options,
              dist::ProcessGroup& world)
      : embedder_(embedder),
        options_(options),
        prompt_(embedder.measured(options.prompt)),
        world_(world),
        blocks_(std::vector<std::string_view>(texts.begin(), texts.end()), options.block_size),
        width_(std::min(options.truncate_dim.value_or(model_width()), model_width())) {
    if (world_.rank() == 0) {
      result_ = at::empty({static_cast<int64_t>(texts.size()), width_}, at::kFloat);
    }
  }

  at::Tensor encode() {
    const SingleThreadedOperations single_threaded;
    const int64_t per_rank = (blocks_.count() + world_.size() - 1) / world_.size();
    for (int64_t begin = 0; begin < per_rank; begin += kBlocksPerRound) {
      run_round(begin, std::min(begin + kBlocksPerRound, per_rank));
    }
    return result_;
  }

 private:
  int64_t model_width() const { return embedder_.model().spec().embedding_dim(); }

  // The turn's block for a rank: the longest texts first, so that memory peaks at once and the last blocks are quick.
  // Negative when there is none left.
  int64_t block_at(int64_t turn, int64_t rank) const { return blocks_.count() - 1 - (turn * world_.size() + rank); }

  void run_round(int64_t begin, int64_t end) {
    const int64_t slots = end - begin;
    auto own_SND = at::zeros({slots, options_.block_size, width_}, at::kFloat);
    run_parallel(slots, options_.threads, [&](int64_t slot) {
      if (const int64_t block = block_at(begin + slot, world_.rank()); block >= 0) {
        encode_block(block, own_SND[slot]);
      }
    });
    auto all_RSND = own_SND.unsqueeze(0);
    if (world_.size() > 1) {
      all_RSND = at::empty({world_.size(), slots, options_.block_size, width_}, at::kFloat);
      world_.all_gather(all_RSND, own_SND).wait();
    }
    if (world_.rank() == 0) {
      place(begin, all_RSND);
    }
  }

  void encode_block(int64_t block, at::Tensor destination_ND) const {
    const at::NoGradGuard no_grad;
    const auto vectors_ND = embedder_.embed(blocks_.texts(block), prompt_).narrow(1, 0, width_);
    if (!at::isfinite(vectors_ND).all().item<bool>()) {
      throw UserError(fmt::format("{}: the model gives a vector that is not finite for text {}",
                                  embedder_.model().spec().directory, first_not_finite(block, vectors_ND) + 1));
    }
    destination_ND.narrow(0, 0, vectors_ND.size(0)).copy_(vectors_ND);
  }

  int64_t first_not_finite(int64_t block, const at::Tensor& vectors_ND) const {
    const auto row = at::isfinite(vectors_ND).all(1).to(at::kByte).argmin().item<int64_t>();
    return blocks_.indices(block)[static_cast<size_t>(row)];
  }

  void place(int64_t begin, const at::Tensor& all_RSND) {
    const auto* vectors = all_RSND.const_data_ptr<float>();
    auto* rows = result_.data_ptr<float>();
    for (int64_t rank = 0; rank < all_RSND.size(0); ++rank) {
      for (int64_t slot = 0; slot < all_RSND.size(1); ++slot) {
        const int64_t block = block_at(begin + slot, rank);
        const auto* of_block = vectors + (rank * all_RSND.size(1) + slot) * options_.block_size * width_;
        for (size_t i = 0; block >= 0 && i < blocks_.indices(block).size(); ++i) {
          std::copy_n(of_block + static_cast<int64_t>(i) * width_, width_, rows + blocks_.indices(block)[i] * width_);
        }
      }
    }
  }

  const Embedder& embedder_;
  const EncodingOptions& options_;
  data::Prompt prompt_;
  dist::ProcessGroup& world_;
  TextBlocks blocks_;
  int64_t width_;
  at::Tensor result_;
};

}  // namespace

at::Tensor encode_texts(const Embedder& embedder, std::span<const std::string_view> texts,
                        const EncodingOptions& options, dist::ProcessGroup& world) {
  return TextEncoder(embedder, texts, options, world).encode();
}

}  // namespace stft::eval
