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
#elif defined(__AVXVNNI__) && !defined(__AVX512F__) && !defined(RAMET_LANES)
constexpr int OFFSET = 128;
inline vi add(vi sums, vi inputs, vi weights) { return (vi)_mm256_dpbusd_avx_epi32((__m256i)sums, (__m256i)inputs, (__m256i)weights); }
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

// Bytes as inputs, a register full.
inline vi inputs_of(const int8_t *p) {
    vi x;
    std::memcpy(&x, p, sizeof x);
    return OFFSET ? x ^ vi(vu{} + 0x80808080u) : x;
}

// Four rows of bytes, a register full each: those of the same place side by side, in lane l of all[w] those of place_of(w, l).
#if (defined(__AVX512BW__) || defined(__AVX2__)) && !defined(RAMET_LANES)
constexpr int place_of(int w, int lane) { return lane / 4 * 16 + w * 4 + lane % 4; }
inline void interleave(const int8_t *const (&rows)[GROUP], vi (&all)[GROUP]) {
#if defined(__AVX512BW__)
#define EACH(name, type) _mm512_##name##_##type
    typedef __m512i Bytes;
#else
#define EACH(name, type) _mm256_##name##_##type
    typedef __m256i Bytes;
#endif
    Bytes row[GROUP];
#pragma GCC unroll 4
    for (int i = 0; i < GROUP; i++) std::memcpy(&row[i], rows[i], sizeof row[i]);
    const Bytes low[] = {EACH(unpacklo, epi8)(row[0], row[1]), EACH(unpacklo, epi8)(row[2], row[3])};
    const Bytes high[] = {EACH(unpackhi, epi8)(row[0], row[1]), EACH(unpackhi, epi8)(row[2], row[3])};
    all[0] = (vi)EACH(unpacklo, epi16)(low[0], low[1]), all[1] = (vi)EACH(unpackhi, epi16)(low[0], low[1]);
    all[2] = (vi)EACH(unpacklo, epi16)(high[0], high[1]), all[3] = (vi)EACH(unpackhi, epi16)(high[0], high[1]);
#undef EACH
}
#else
constexpr int place_of(int w, int lane) { return lane * GROUP + w; }
inline void interleave(const int8_t *const (&rows)[GROUP], vi (&all)[GROUP]) {
    vu row[GROUP];
    for (int i = 0; i < GROUP; i++) std::memcpy(&row[i], rows[i], sizeof row[i]);
    for (int w = 0; w < GROUP; w++) {
        vu bytes = {};
        for (int i = 0; i < GROUP; i++) bytes |= (row[i] >> (8 * w) & 255u) << (8 * i);
        all[w] = (vi)bytes;
    }
}
#endif

}  // namespace byte_products
