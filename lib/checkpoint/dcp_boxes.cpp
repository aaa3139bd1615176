#include "checkpoint/dcp_boxes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "base/error.h"

namespace stft::checkpoint {
namespace {

// Tensors cut along more than two dimensions are compared pair by pair.
constexpr std::size_t kMaxPairwise = 1024;

std::string box_text(const DcpChunk& chunk) {
  return fmt::format("the part of [{}] at [{}]", fmt::join(chunk.sizes, ", "), fmt::join(chunk.offsets, ", "));
}

bool is_empty(const DcpChunk& chunk) {
  return std::find(chunk.sizes.begin(), chunk.sizes.end(), 0) != chunk.sizes.end();
}

std::optional<std::string> bounds_fault(const DcpTensor& tensor) {
  for (const DcpChunk& chunk : tensor.chunks) {
    bool inside = chunk.offsets.size() == tensor.shape.size() && chunk.sizes.size() == tensor.shape.size();
    for (std::size_t i = 0; inside && i < tensor.shape.size(); ++i) {
      inside = chunk.offsets[i] >= 0 && chunk.sizes[i] >= 0 && chunk.sizes[i] <= tensor.shape[i] &&
               chunk.offsets[i] <= tensor.shape[i] - chunk.sizes[i];
    }
    if (!inside) return fmt::format("{} is not inside [{}]", box_text(chunk), fmt::join(tensor.shape, ", "));
  }
  return std::nullopt;
}

using Chunks = std::vector<const DcpChunk*>;

// The dimensions along which some chunk is less than the whole.
std::vector<std::size_t> cut_dimensions(const DcpTensor& tensor, const Chunks& chunks) {
  std::vector<std::size_t> dimensions;
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    const bool cut = std::any_of(chunks.begin(), chunks.end(),
                                 [&](const DcpChunk* chunk) { return chunk->sizes[i] != tensor.shape[i]; });
    if (cut) dimensions.push_back(i);
  }
  return dimensions;
}

std::string overlap_text(const DcpChunk& a, const DcpChunk& b) {
  return fmt::format("{} overlaps {}", box_text(a), box_text(b));
}

std::optional<std::string> pairwise_overlap(const Chunks& chunks) {
  if (chunks.size() > kMaxPairwise) {
    return fmt::format("it is cut along more than two dimensions into more than {} parts", kMaxPairwise);
  }
  for (std::size_t a = 0; a < chunks.size(); ++a) {
    for (std::size_t b = a + 1; b < chunks.size(); ++b) {
      bool apart = false;
      for (std::size_t i = 0; i < chunks[a]->sizes.size(); ++i) {
        apart = apart || chunks[a]->offsets[i] + chunks[a]->sizes[i] <= chunks[b]->offsets[i] ||
                chunks[b]->offsets[i] + chunks[b]->sizes[i] <= chunks[a]->offsets[i];
      }
      if (!apart) return overlap_text(*chunks[a], *chunks[b]);
    }
  }
  return std::nullopt;
}

// Sweeps along one dimension over intervals of another one: those open at a time must not touch. Without a second
// dimension every interval is the same. Takes n log n steps.
std::optional<std::string> sweep_overlap(const Chunks& chunks, const std::vector<std::size_t>& dimensions) {
  struct Event {
    std::int64_t position = 0;
    bool opens = false;  // at one position the closing events come first
    const DcpChunk* chunk = nullptr;
  };
  const std::size_t along = dimensions.front();
  const auto begin = [&](const DcpChunk& c) { return dimensions.size() > 1 ? c.offsets[dimensions[1]] : 0; };
  const auto end = [&](const DcpChunk& c) { return begin(c) + (dimensions.size() > 1 ? c.sizes[dimensions[1]] : 1); };
  std::vector<Event> events;
  for (const DcpChunk* chunk : chunks) {
    events.push_back({chunk->offsets[along], true, chunk});
    events.push_back({chunk->offsets[along] + chunk->sizes[along], false, chunk});
  }
  std::stable_sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return a.position != b.position ? a.position < b.position : a.opens < b.opens;
  });
  std::map<std::int64_t, const DcpChunk*> open;  // by the start of the interval
  for (const Event& event : events) {
    if (!event.opens) {
      open.erase(begin(*event.chunk));
      continue;
    }
    const auto next = open.lower_bound(begin(*event.chunk));
    if (next != open.end() && begin(*next->second) < end(*event.chunk)) {
      return overlap_text(*event.chunk, *next->second);
    }
    if (next != open.begin() && end(*std::prev(next)->second) > begin(*event.chunk)) {
      return overlap_text(*event.chunk, *std::prev(next)->second);
    }
    open.emplace(begin(*event.chunk), event.chunk);
  }
  return std::nullopt;
}

std::int64_t volume(const std::vector<std::int64_t>& sizes) {
  std::int64_t product = 1;
  for (const std::int64_t size : sizes) product *= size;
  return product;
}

std::optional<std::string> overlap_fault(const DcpTensor& tensor, const Chunks& chunks) {
  const auto dimensions = cut_dimensions(tensor, chunks);
  if (dimensions.size() > 2) return pairwise_overlap(chunks);
  if (!dimensions.empty()) return sweep_overlap(chunks, dimensions);
  return chunks.size() > 1 ? std::optional(overlap_text(*chunks[0], *chunks[1])) : std::nullopt;
}

// The elements from dimension `from` on.
std::size_t elements_from(const std::vector<std::int64_t>& sizes, std::size_t from) {
  std::size_t product = 1;
  for (std::size_t i = from; i < sizes.size(); ++i) product *= static_cast<std::size_t>(sizes[i]);
  return product;
}

// One past the last dimension along which the chunk is less than the whole; from there on it is one run of bytes.
std::size_t run_dimension(const DcpTensor& tensor, const DcpChunk& chunk) {
  std::size_t dimension = tensor.shape.size();
  while (dimension > 1 && chunk.sizes[dimension - 1] == tensor.shape[dimension - 1]) --dimension;
  return dimension;
}

}  // namespace

std::optional<std::string> tiling_fault(const DcpTensor& tensor) {
  if (!io::tensor_bytes(tensor.dtype, tensor.shape)) {
    return fmt::format("its shape [{}] is too large", fmt::join(tensor.shape, ", "));
  }
  if (auto fault = bounds_fault(tensor)) return fault;
  Chunks chunks;
  for (const DcpChunk& chunk : tensor.chunks) {
    if (!is_empty(chunk)) chunks.push_back(&chunk);
  }
  if (auto fault = overlap_fault(tensor, chunks)) return fault;
  std::int64_t covered = 0;  // no overflow: the chunks lie apart in a tensor whose size fits
  for (const DcpChunk* chunk : chunks) covered += volume(chunk->sizes);
  const bool is_void = std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end();
  const std::int64_t wanted = is_void ? 0 : volume(tensor.shape);
  if (covered != wanted) {
    return fmt::format("its parts hold {} of its {} elements; a part is missing", covered, wanted);
  }
  return std::nullopt;
}

void copy_chunk_rows(const DcpTensor& tensor, const DcpChunk& chunk, std::span<const std::byte> data, DcpRows rows,
                     std::span<std::byte> target) {
  if (data.empty() || target.empty()) return;
  if (tensor.shape.empty()) {
    std::memcpy(target.data(), data.data(), target.size());
    return;
  }
  const std::int64_t first = std::max(rows.first, chunk.offsets[0]);
  const std::int64_t last = std::min(rows.first + rows.count, chunk.offsets[0] + chunk.sizes[0]);
  if (first >= last) return;
  const std::size_t element = static_cast<std::size_t>(io::dtype_bits(tensor.dtype)) / 8;
  // The chunk's rows as a box of their own: `counts` runs, the innermost `run` bytes long.
  const std::size_t run_from = run_dimension(tensor, chunk);
  std::vector<std::int64_t> offsets = chunk.offsets;
  std::vector<std::int64_t> counts = chunk.sizes;
  offsets[0] = first - rows.first;
  counts[0] = last - first;
  const std::byte* source =
      data.data() + static_cast<std::size_t>(first - chunk.offsets[0]) * elements_from(chunk.sizes, 1) * element;
  const std::size_t inner = run_from - 1;  // the last dimension of the odometer belongs to the run
  const std::size_t run = elements_from(counts, inner) * element;
  std::vector<std::int64_t> index(inner, 0);
  while (true) {
    std::size_t place = 0;
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
      const std::int64_t at = offsets[i] + (i < inner ? index[i] : 0);
      place = (i == 0 ? 0 : place * static_cast<std::size_t>(tensor.shape[i])) + static_cast<std::size_t>(at);
    }
    std::memcpy(target.data() + place * element, source, run);
    source += run;
    std::size_t i = inner;
    while (i > 0 && ++index[i - 1] == counts[i - 1]) index[--i] = 0;
    if (i == 0) return;
  }
}

}  // namespace stft::checkpoint
