// Which instructions of the processor the 4-bit kernels use. All levels give the same bits.
#pragma once

#include <string_view>
#include <vector>

namespace stft::quant {

enum class CpuLevel { kScalar, kAvx2, kAvx512 };

CpuLevel best_cpu_level();                  // the last of cpu_levels()
const std::vector<CpuLevel>& cpu_levels();  // those this processor has, in ascending order
std::string_view cpu_level_name(CpuLevel level);

}  // namespace stft::quant
