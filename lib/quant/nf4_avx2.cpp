// Compiled with AVX2 and F16C; called only where the processor has them.
#include <immintrin.h>

#include "quant/nf4_kernels.h"

namespace stft::quant::kernels {

namespace {

struct Float32 {
  static constexpr int kBytes = 4;
  static __m256 load(const char* from) { return _mm256_loadu_ps(reinterpret_cast<const float*>(from)); }
  static void store(char* to, __m256 first, __m256 second) {
    _mm256_storeu_ps(reinterpret_cast<float*>(to), first);
    _mm256_storeu_ps(reinterpret_cast<float*>(to) + 8, second);
  }
};

struct BFloat16 {
  static constexpr int kBytes = 2;
  static __m256 load(const char* from) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  static void store(char* to, __m256 first, __m256 second) {
    const __m256i halves = _mm256_packus_epi32(rounded(first), rounded(second));
    // Packing works in the two halves of a register.
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_permute4x64_epi64(halves, 0xd8));
  }
  static __m256i rounded(__m256 values) {
    const __m256i bits = _mm256_castps_si256(values);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    return _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
  }
};

struct Float16 {
  static constexpr int kBytes = 2;
  static __m256 load(const char* from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  static void store(char* to, __m256 first, __m256 second) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), rounded(first));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to) + 1, rounded(second));
  }
  static __m128i rounded(__m256 values) {
    return _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
};

// Bits of the largest magnitude.
template <class T>
int largest_bits(const char* values, std::int64_t count) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  __m256i a = _mm256_setzero_si256();
  __m256i b = a;
  for (std::int64_t i = 0; i < count; i += 16, values += 16 * T::kBytes) {
    a = _mm256_max_epi32(a, _mm256_and_si256(_mm256_castps_si256(T::load(values)), magnitude));
    b = _mm256_max_epi32(b, _mm256_and_si256(_mm256_castps_si256(T::load(values + 8 * T::kBytes)), magnitude));
  }
  a = _mm256_max_epi32(a, b);
  __m128i x = _mm_max_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  x = _mm_max_epi32(x, _mm_shuffle_epi32(x, 0x4e));
  x = _mm_max_epi32(x, _mm_shuffle_epi32(x, 0xb1));
  return _mm_cvtsi128_si32(x);
}

// The thresholds in the order of a binary search: each level's table is indexed by the comparisons so far.
struct Search {
  __m256 level1;
  __m256 level2;
  __m256 level3;
  __m256 level4;

  explicit Search(const float* t)
      : level1(_mm256_set1_ps(t[7])),
        level2(_mm256_setr_ps(t[3], t[11], 0, 0, 0, 0, 0, 0)),
        level3(_mm256_setr_ps(t[1], t[5], t[9], t[13], 0, 0, 0, 0)),
        level4(_mm256_setr_ps(t[0], t[2], t[4], t[6], t[8], t[10], t[12], t[14])) {}

  static __m256i above(__m256 x, __m256 threshold) {  // -1 where above, 0 elsewhere
    return _mm256_castps_si256(_mm256_cmp_ps(x, threshold, _CMP_GT_OQ));
  }
  static __m256i next(__m256i index, __m256i above) { return _mm256_sub_epi32(_mm256_add_epi32(index, index), above); }

  __m256i rank(__m256 x) const {
    __m256i index = _mm256_sub_epi32(_mm256_setzero_si256(), above(x, level1));
    index = next(index, above(x, _mm256_permutevar8x32_ps(level2, index)));
    index = next(index, above(x, _mm256_permutevar8x32_ps(level3, index)));
    return next(index, above(x, _mm256_permutevar8x32_ps(level4, index)));
  }
};

template <class T>
std::int64_t quantize(QuantizeTable table, Blocks blocks, const void* values, std::uint8_t* packed, float* absmax) {
  const Search search(table.thresholds);
  const __m256i code_of_rank =
      _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table.code_of_rank)));
  const __m256i in_order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  const __m256i join = _mm256_set1_epi16(0x0110);  // the first of two bytes times 16, the second times 1
  const char* from = static_cast<const char*>(values);
  for (std::int64_t b = 0; b < blocks.count; ++b) {
    const int bits = largest_bits<T>(from, blocks.size);
    if (bits >= 0x7f800000) {
      return b;
    }
    const float largest = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(bits)));
    absmax[b] = largest;
    const __m256 scale = _mm256_set1_ps(1.0F / (largest > 1e-38F ? largest : 1e-38F));
    for (std::int64_t i = 0; i < blocks.size; i += 32, from += 32 * T::kBytes, packed += 16) {
      const __m256i r0 = search.rank(_mm256_mul_ps(T::load(from), scale));
      const __m256i r1 = search.rank(_mm256_mul_ps(T::load(from + 8 * T::kBytes), scale));
      const __m256i r2 = search.rank(_mm256_mul_ps(T::load(from + 16 * T::kBytes), scale));
      const __m256i r3 = search.rank(_mm256_mul_ps(T::load(from + 24 * T::kBytes), scale));
      __m256i ranks = _mm256_packus_epi16(_mm256_packs_epi32(r0, r1), _mm256_packs_epi32(r2, r3));
      ranks = _mm256_permutevar8x32_epi32(ranks, in_order);  // packing works in the two halves of a register
      const __m256i pairs = _mm256_maddubs_epi16(_mm256_shuffle_epi8(code_of_rank, ranks), join);
      const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packus_epi16(pairs, pairs), 0x08);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(packed), _mm256_castsi256_si128(bytes));
    }
  }
  return blocks.count;
}

// What 8 codes stand for.
struct Lookup {
  __m256 lower;
  __m256 upper;
  __m256i shifts = _mm256_setr_epi32(4, 0, 12, 8, 20, 16, 28, 24);

  explicit Lookup(const float* values) : lower(_mm256_loadu_ps(values)), upper(_mm256_loadu_ps(values + 8)) {}

  // The permutation looks at 3 bits of a code; the fourth, moved to the sign, chooses the table.
  __m256 values(const std::uint8_t* packed) const {
    int word = 0;
    __builtin_memcpy(&word, packed, sizeof word);
    const __m256i codes = _mm256_srlv_epi32(_mm256_set1_epi32(word), shifts);
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(lower, codes), _mm256_permutevar8x32_ps(upper, codes),
                            _mm256_castsi256_ps(_mm256_slli_epi32(codes, 28)));
  }
};

template <class T>
void dequantize(const float* values, Blocks blocks, const std::uint8_t* packed, const float* absmax, void* to) {
  const Lookup lookup(values);
  char* out = static_cast<char*>(to);
  for (std::int64_t b = 0; b < blocks.count; ++b) {
    const __m256 scale = _mm256_set1_ps(absmax[b]);
    for (std::int64_t i = 0; i < blocks.size; i += 16, packed += 8, out += 16 * T::kBytes) {
      T::store(out, _mm256_mul_ps(lookup.values(packed), scale), _mm256_mul_ps(lookup.values(packed + 4), scale));
    }
  }
}

}  // namespace

Quantize avx2_quantize(Element element) {
  return element == Element::kFloat32    ? quantize<Float32>
         : element == Element::kBFloat16 ? quantize<BFloat16>
                                         : quantize<Float16>;
}

Dequantize avx2_dequantize(Element element) {
  return element == Element::kFloat32    ? dequantize<Float32>
         : element == Element::kBFloat16 ? dequantize<BFloat16>
                                         : dequantize<Float16>;
}

}  // namespace stft::quant::kernels
