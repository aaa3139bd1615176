#include "peft/adapter_init.h"

#include <cmath>
#include <numbers>

#include "base/error.h"
#include "base/rng.h"

namespace stft::peft {
namespace {

// FNV-1a over the name and the shape.
uint64_t identity_hash(const model::Parameter& parameter) {
  constexpr uint64_t kPrime = 1099511628211ULL;
  uint64_t hash = 14695981039346656037ULL;
  for (const char c : parameter.name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * kPrime;
  }
  for (const int64_t size : parameter.shape) {
    for (int byte = 0; byte < 8; ++byte) {
      hash = (hash ^ (static_cast<uint64_t>(size) >> (8 * byte) & 0xFF)) * kPrime;
    }
  }
  return hash;
}

// In (0, 1).
double unit(uint32_t high, uint32_t low) {
  const uint64_t bits = (uint64_t{high} << 32 | low) >> 11;
  return (static_cast<double>(bits) + 0.5) / 9007199254740992.0;
}

}  // namespace

void initialise_rows(const model::Parameter& parameter, AdapterStart start, InitialRows rows, at::Tensor destination) {
  STFT_CHECK(start.kind != AdapterTensorKind::kMagnitude, "a magnitude comes from the base");
  STFT_CHECK(destination.scalar_type() == at::kFloat, "adapters are fp32");
  const bool is_table_up = start.kind == AdapterTensorKind::kTableUp;
  if (start.kind != AdapterTensorKind::kDown && !is_table_up) {
    destination.zero_();
    return;
  }
  STFT_CHECK(start.init != LoraInit::kPissa, "this initialisation is available");
  const int64_t rank = parameter.shape[0];
  const int64_t in = parameter.shape[1];
  const uint64_t hash = identity_hash(parameter);
  const rng::Key key = {static_cast<uint32_t>(start.seed), static_cast<uint32_t>(start.seed >> 32)};
  const auto first = static_cast<uint64_t>(rows.first_row * in);
  auto* values = destination.data_ptr<float>();
  for (int64_t i = 0; i < rows.rows * in; ++i) {
    const uint64_t position = first + static_cast<uint64_t>(i);
    const auto drawn = rng::philox4x32({static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32),
                                        static_cast<uint32_t>(hash), static_cast<uint32_t>(hash >> 32)},
                                       key);
    const double a = unit(drawn[0], drawn[1]);
    if (start.init == LoraInit::kGaussian || is_table_up) {
      // Box and Muller, 1958.
      const double angle = 2 * std::numbers::pi * unit(drawn[2], drawn[3]);
      const double deviation = is_table_up ? 1.0 : 1.0 / static_cast<double>(rank);
      values[i] = static_cast<float>(std::sqrt(-2 * std::log(a)) * std::cos(angle) * deviation);
    } else {
      values[i] = static_cast<float>((2 * a - 1) / std::sqrt(static_cast<double>(in)));
    }
  }
}

}  // namespace stft::peft
