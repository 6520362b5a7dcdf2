// Sums of products of four bytes, whole numbers in [-127, 127], by the operation that a CPU has for them: sums[i] += the products
// of inputs[4i .. 4i + 3] and weights[4i .. 4i + 3].
#pragma once
#include "vector.h"

namespace byte_products {

constexpr int GROUP = 4;  // bytes

// OFFSET is added to inputs when they are stored: some CPUs multiply unsigned by signed bytes.
#if defined(__AVX512VNNI__) && !defined(RAMET_LANES)
constexpr int OFFSET = 128;  // of stored inputs
inline vi add(vi sums, vi inputs, vi weights) { return (vi)_mm512_dpbusd_epi32((__m512i)sums, (__m512i)inputs, (__m512i)weights); }
#elif defined(__AVX512BW__) && !defined(RAMET_LANES)
constexpr int OFFSET = 0;
inline vi add(vi sums, vi inputs, vi weights) {  // two products of at most 127 * 127 fit into 16 bits
    const __m512i w = (__m512i)weights, x = (__m512i)inputs;
    const __m512i with_sign = _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(w), _mm512_setzero_si512(), x);
    return sums + (vi)_mm512_madd_epi16(_mm512_maddubs_epi16(_mm512_abs_epi8(w), with_sign), _mm512_set1_epi16(1));
}
#elif defined(__AVX2__) && !defined(RAMET_LANES)
constexpr int OFFSET = 0;
inline vi add(vi sums, vi inputs, vi weights) {  // two products of at most 127 * 127 fit into 16 bits
    const __m256i w = (__m256i)weights, pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8((__m256i)inputs, w));
    return sums + (vi)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}
#elif defined(__ARM_FEATURE_DOTPROD) && !defined(RAMET_LANES)
constexpr int OFFSET = 0;
inline vi add(vi sums, vi inputs, vi weights) { return (vi)vdotq_s32((int32x4_t)sums, (int8x16_t)inputs, (int8x16_t)weights); }
#else
constexpr int OFFSET = 0;
inline vi add(vi sums, vi inputs, vi weights) {
    for (int byte = 0; byte < GROUP; byte++) sums += (inputs << (24 - 8 * byte) >> 24) * (weights << (24 - 8 * byte) >> 24);
    return sums;
}
#endif

}  // namespace byte_products
