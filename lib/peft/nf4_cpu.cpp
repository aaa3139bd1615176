#include "peft/nf4_cpu.h"

namespace stft::peft {

const std::vector<CpuLevel>& cpu_levels() {
  static const std::vector<CpuLevel> kLevels = [] {
    std::vector<CpuLevel> levels = {CpuLevel::kScalar};
#ifdef STFT_X86_KERNELS
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c")) {
      levels.push_back(CpuLevel::kAvx2);
      if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
          __builtin_cpu_supports("avx512vl")) {
        levels.push_back(CpuLevel::kAvx512);
      }
    }
#endif
    return levels;
  }();
  return kLevels;
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

}  // namespace stft::peft
