// Compiled with AVX-512 F and BW; called only where the processor has them.
#include <immintrin.h>

#include "quant/nf4_kernels.h"

namespace stft::quant::kernels {

namespace {

struct Float32 {
  static constexpr int kBytes = 4;
  static __m512 load(const char* from) { return _mm512_loadu_ps(from); }
  static void store(char* to, __m512 values) { _mm512_storeu_ps(to, values); }
};

struct BFloat16 {
  static constexpr int kBytes = 2;
  static __m512 load(const char* from) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
  static void store(char* to, __m512 values) {
    const __m512i bits = _mm512_castps_si512(values);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
  }
};

struct Float16 {
  static constexpr int kBytes = 2;
  static __m512 load(const char* from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  static void store(char* to, __m512 values) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                        _mm512_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
};

template <class T>
int largest_bits(const char* values, std::int64_t count) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  __m512i a = _mm512_setzero_si512();
  __m512i b = a;
  for (std::int64_t i = 0; i < count; i += 32, values += 32 * T::kBytes) {
    a = _mm512_max_epi32(a, _mm512_and_si512(_mm512_castps_si512(T::load(values)), magnitude));
    b = _mm512_max_epi32(b, _mm512_and_si512(_mm512_castps_si512(T::load(values + 16 * T::kBytes)), magnitude));
  }
  return _mm512_reduce_max_epi32(_mm512_max_epi32(a, b));
}

// Binary search: the rank so far is an index into the thresholds shifted by the half-width that is left.
struct Search {
  __m512 level1;
  __m512 level2_low;
  __m512 level2_high;
  __m512 level3;
  __m512 level4;

  explicit Search(const float* t)
      : level1(_mm512_set1_ps(t[7])),
        level2_low(_mm512_set1_ps(t[3])),
        level2_high(_mm512_set1_ps(t[11])),
        level3(_mm512_maskz_loadu_ps(0x3fff, t + 1)),
        level4(_mm512_maskz_loadu_ps(0x7fff, t)) {}

  static __m512i add(__m512i rank, __mmask16 above, int step) {
    return _mm512_mask_add_epi32(rank, above, rank, _mm512_set1_epi32(step));
  }

  __m128i ranks(__m512 x) const {
    const __mmask16 upper = _mm512_cmp_ps_mask(x, level1, _CMP_GT_OQ);
    __m512i rank = _mm512_maskz_set1_epi32(upper, 8);
    rank = add(rank, _mm512_cmp_ps_mask(x, _mm512_mask_blend_ps(upper, level2_low, level2_high), _CMP_GT_OQ), 4);
    rank = add(rank, _mm512_cmp_ps_mask(x, _mm512_permutexvar_ps(rank, level3), _CMP_GT_OQ), 2);
    rank = add(rank, _mm512_cmp_ps_mask(x, _mm512_permutexvar_ps(rank, level4), _CMP_GT_OQ), 1);
    return _mm512_cvtepi32_epi8(rank);
  }
};

template <class T>
std::int64_t quantize(QuantizeTable table, Blocks blocks, const void* values, std::uint8_t* packed, float* absmax) {
  const Search search(table.thresholds);
  const __m128i code_of_rank = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table.code_of_rank));
  const __m128i join = _mm_set1_epi16(0x0110);  // the first of two bytes times 16, the second times 1
  const char* from = static_cast<const char*>(values);
  for (std::int64_t b = 0; b < blocks.count; ++b) {
    const int bits = largest_bits<T>(from, blocks.size);
    if (bits >= 0x7f800000) {
      return b;
    }
    const float largest = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(bits)));
    absmax[b] = largest;
    const __m512 scale = _mm512_set1_ps(1.0F / (largest > 1e-38F ? largest : 1e-38F));
    for (std::int64_t i = 0; i < blocks.size; i += 32, from += 32 * T::kBytes, packed += 16) {
      const __m128i first = search.ranks(_mm512_mul_ps(T::load(from), scale));
      const __m128i second = search.ranks(_mm512_mul_ps(T::load(from + 16 * T::kBytes), scale));
      const __m128i pairs1 = _mm_maddubs_epi16(_mm_shuffle_epi8(code_of_rank, first), join);
      const __m128i pairs2 = _mm_maddubs_epi16(_mm_shuffle_epi8(code_of_rank, second), join);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(packed), _mm_packus_epi16(pairs1, pairs2));
    }
  }
  return blocks.count;
}

template <class T>
void dequantize(const float* values, Blocks blocks, const std::uint8_t* packed, const float* absmax, void* to) {
  const __m512 table = _mm512_loadu_ps(values);
  const __m512i halves = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
  const __m512i shifts = _mm512_setr_epi32(4, 0, 12, 8, 20, 16, 28, 24, 4, 0, 12, 8, 20, 16, 28, 24);
  char* out = static_cast<char*>(to);
  for (std::int64_t b = 0; b < blocks.count; ++b) {
    const __m512 scale = _mm512_set1_ps(absmax[b]);
    for (std::int64_t i = 0; i < blocks.size; i += 16, packed += 8, out += 16 * T::kBytes) {
      const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(packed));
      const __m512i words = _mm512_permutexvar_epi32(halves, _mm512_castsi128_si512(bytes));
      const __m512i codes = _mm512_srlv_epi32(words, shifts);  // the permutation looks at 4 bits of a code
      T::store(out, _mm512_mul_ps(_mm512_permutexvar_ps(codes, table), scale));
    }
  }
}

}  // namespace

Quantize avx512_quantize(Element element) {
  return element == Element::kFloat32    ? quantize<Float32>
         : element == Element::kBFloat16 ? quantize<BFloat16>
                                         : quantize<Float16>;
}

Dequantize avx512_dequantize(Element element) {
  return element == Element::kFloat32    ? dequantize<Float32>
         : element == Element::kBFloat16 ? dequantize<BFloat16>
                                         : dequantize<Float16>;
}

}  // namespace stft::quant::kernels
