#include "quant/nf4_cpu.h"

#ifdef STFT_X86_KERNELS
#include <cpuid.h>
#endif

namespace stft::quant {

#ifdef STFT_X86_KERNELS
namespace {

// __builtin_cpu_supports does not know F16C everywhere.
bool has_f16c() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

}  // namespace
#endif

const std::vector<CpuLevel>& cpu_levels() {
  static const std::vector<CpuLevel> known = [] {
    std::vector<CpuLevel> levels = {CpuLevel::kScalar};
#ifdef STFT_X86_KERNELS
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && has_f16c()) {
      levels.push_back(CpuLevel::kAvx2);
      if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
          __builtin_cpu_supports("avx512vl")) {
        levels.push_back(CpuLevel::kAvx512);
      }
    }
#endif
    return levels;
  }();
  return known;
}

CpuLevel best_cpu_level() {
  return cpu_levels().back();
}

std::string_view cpu_level_name(CpuLevel level) {
  switch (level) {
    case CpuLevel::kAvx2:
      return "avx2";
    case CpuLevel::kAvx512:
      return "avx512";
    default:
      return "scalar";
  }
}

}  // namespace stft::quant
