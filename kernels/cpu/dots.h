// Sums of products of pairs of bfloat16, an operation of some CPUs: sums[i] += a[2i] b[2i] + a[2i + 1] b[2i + 1], in float32,
// where numbers that are subnormal count as zero. Whether it makes more products a second than float32 ones is a question
// of the CPU: as many on Intel's with AVX512_BF16 up to now, or half of them, twice as many on AMD's from Zen 4 on.
#pragma once
#include "vector.h"

#if defined(__AVX512BF16__) && !defined(RAMET_LANES)
#define RAMET_DOTS 1
namespace dots {
inline vf add(vf sums, vi a, vi b) { return (vf)_mm512_dpbf16_ps((__m512)sums, (__m512bh)a, (__m512bh)b); }
}  // namespace dots
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC) && !defined(RAMET_LANES)
#define RAMET_DOTS 1
namespace dots {
inline vf add(vf sums, vi a, vi b) { return (vf)vbfdotq_f32((float32x4_t)sums, bit_cast<bfloat16x8_t>(a), bit_cast<bfloat16x8_t>(b)); }
}  // namespace dots
#else
#if defined(RAMET_EMULATE_DOTS)
#define RAMET_DOTS 1
#else
#define RAMET_DOTS 0
#endif
namespace dots {
inline vf add(vf sums, vi a, vi b) {
    const vu x = bit_cast<vu>(a), y = bit_cast<vu>(b);
    sums += bit_cast<vf>(x & 0xffff0000u) * bit_cast<vf>(y & 0xffff0000u);
    return sums + bit_cast<vf>(x << 16) * bit_cast<vf>(y << 16);
}
}  // namespace dots
#endif
