// Sixteen floats at a time, in the compiler's own vector types: one source for any CPU, AVX-512 registers where there
// are some. Loads widen to float, stores round to nearest even. Knows no tensor.
#pragma once
#include <cstdint>
#include <cstring>
#if defined(__AVX512F__) || defined(__F16C__)
#include <immintrin.h>
#endif

typedef float v16f __attribute__((vector_size(64)));
typedef int32_t v16i __attribute__((vector_size(64)));
typedef uint32_t v16u __attribute__((vector_size(64)));
typedef uint16_t v16h __attribute__((vector_size(32)));

constexpr int LANES = 16;
enum Dtype { FLOAT32 = 0, BFLOAT16 = 1, FLOAT16 = 2 };

struct bf16 {
    uint16_t bits;
};
struct f16 {  // by its bits: not every compiler has the type
    uint16_t bits;
};

template <class To, class From>
static inline To bit_cast(From from) {
    static_assert(sizeof(To) == sizeof(From), "same size");
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}

static inline v16f splat(float x) { return v16f{} + x; }

// float16 without an instruction for it. The products and sums with powers of two move the exponent, and round where
// the result is subnormal.
static inline v16f widened(v16h x) {
    const v16u bits = __builtin_convertvector(x, v16u), sign = (bits & 0x8000) << 16;
    const v16f small = bit_cast<v16f>((bits & 0x7fff) << 13) * 0x1p112f;
    const v16i is_special = (bits & 0x7c00) == 0x7c00;  // infinity or NaN
    const v16u special = bit_cast<v16u>(small) | 0x7f800000;
    return bit_cast<v16f>((is_special ? bit_cast<v16i>(special) : bit_cast<v16i>(small)) | bit_cast<v16i>(sign));
}
static inline v16h narrowed(v16f x) {
    const v16u bits = bit_cast<v16u>(x), sign = (bits >> 16) & 0x8000, size = bits & 0x7fffffff;
    const v16u normal = (size - 0x38000000 + 0xfff + ((size >> 13) & 1)) >> 13;
    const v16u subnormal = bit_cast<v16u>(bit_cast<v16f>(size) + 0.5f) - 0x3f000000;
    const v16i is_small = size < 0x38800000, is_large = size >= 0x47800000, is_nan = x != x;
    v16i y = is_small ? bit_cast<v16i>(subnormal) : bit_cast<v16i>(normal);
    y = is_large ? v16i{} + 0x7c00 : y;
    y = is_nan ? v16i{} + 0x7e00 : y;
    return __builtin_convertvector(bit_cast<v16u>(y) | sign, v16h);
}

static inline v16f from_f16_bits(v16h x) {
#if defined(__AVX512F__)
    return (v16f)_mm512_cvtph_ps((__m256i)x);
#elif defined(__F16C__)
    __m128i halves[2];
    std::memcpy(halves, &x, sizeof x);
    const __m256 wide[2] = {_mm256_cvtph_ps(halves[0]), _mm256_cvtph_ps(halves[1])};
    v16f y;
    std::memcpy(&y, wide, sizeof y);
    return y;
#else
    return widened(x);
#endif
}
static inline v16h to_f16_bits(v16f x) {
#if defined(__AVX512F__)
    return (v16h)_mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif defined(__F16C__)
    __m256 wide[2];
    std::memcpy(wide, &x, sizeof x);
    const __m128i halves[2] = {_mm256_cvtps_ph(wide[0], 0), _mm256_cvtps_ph(wide[1], 0)};
    v16h y;
    std::memcpy(&y, halves, sizeof y);
    return y;
#else
    return narrowed(x);
#endif
}

static inline v16f load(const float *p) {
    v16f x;
    std::memcpy(&x, p, sizeof x);
    return x;
}
static inline v16f load(const bf16 *p) {
    v16h x;
    std::memcpy(&x, p, sizeof x);
    return bit_cast<v16f>(__builtin_convertvector(x, v16u) << 16);
}
static inline v16f load(const f16 *p) {
    v16h x;
    std::memcpy(&x, p, sizeof x);
    return from_f16_bits(x);
}

static inline v16h to_bf16_bits(v16f x) {
    const v16u bits = bit_cast<v16u>(x);
    const v16u rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    const v16u quiet = (bits >> 16) | 0x40;  // rounding must not turn a NaN into infinity
    const v16i is_nan = x != x;
    return __builtin_convertvector(bit_cast<v16u>(is_nan ? bit_cast<v16i>(quiet) : bit_cast<v16i>(rounded)), v16h);
}

static inline void store(float *p, v16f x) { std::memcpy(p, &x, sizeof x); }
static inline void store(bf16 *p, v16f x) {
    const v16h y = to_bf16_bits(x);
    std::memcpy(p, &y, sizeof y);
}
static inline void store(f16 *p, v16f x) {
    const v16h y = to_f16_bits(x);
    std::memcpy(p, &y, sizeof y);
}

// the first n < 16 values, zeros behind them; and the way back
template <class T>
static inline v16f load_some(const T *p, int64_t n) {
    T all[LANES] = {};
    std::memcpy(all, p, n * sizeof(T));
    return load(all);
}
template <class T>
static inline void store_some(T *p, v16f x, int64_t n) {
    T all[LANES];
    store(all, x);
    std::memcpy(p, all, n * sizeof(T));
}

// x as it would be after a store and a load: what an op of this dtype rounds in between
template <class T>
static inline v16f rounded(v16f x) {
    T there[LANES];
    store(there, x);
    return load(there);
}
template <>
inline v16f rounded<float>(v16f x) {
    return x;
}
template <>
inline v16f rounded<bf16>(v16f x) {
    return bit_cast<v16f>(__builtin_convertvector(to_bf16_bits(x), v16u) << 16);
}

// 32 values in the order that is cheapest to widen: bfloat16 gives the even ones, then the odd ones, with one operation
// each. Sums of products do not care, as long as both factors are in the same order.
template <class T>
static inline void load_pair(const T *p, v16f &a, v16f &b) {
    a = load(p), b = load(p + LANES);
}
static inline void load_pair(const bf16 *p, v16f &a, v16f &b) {
    v16u both;
    std::memcpy(&both, p, sizeof both);
    a = bit_cast<v16f>(both << 16), b = bit_cast<v16f>(both & 0xffff0000u);
}
template <class T>
static inline void store_pair(T *p, v16f a, v16f b) {
    store(p, a), store(p + LANES, b);
}
static inline void store_pair(bf16 *p, v16f a, v16f b) {
    const v16u both = __builtin_convertvector(to_bf16_bits(a), v16u) | __builtin_convertvector(to_bf16_bits(b), v16u) << 16;
    std::memcpy(p, &both, sizeof both);
}

static inline bool any(v16i x) {
#ifdef __AVX512F__
    return _mm512_test_epi32_mask((__m512i)x, (__m512i)x) != 0;
#else
    uint64_t words[8], all = 0;
    std::memcpy(words, &x, sizeof x);
    for (const uint64_t word : words) all |= word;
    return all != 0;
#endif
}

// the lanes of x that are chosen, next to each other at p, where 16 values may be written; returns their number
static inline int64_t pack(float *p, v16f x, v16i chosen) {
#ifdef __AVX512F__
    const __mmask16 lanes = _mm512_test_epi32_mask((__m512i)chosen, (__m512i)chosen);
    _mm512_storeu_ps(p, _mm512_maskz_compress_ps(lanes, (__m512)x));
    return __builtin_popcount(lanes);
#else
    int64_t num = 0;
    for (int lane = 0; lane < LANES; lane++) p[num] = x[lane], num -= chosen[lane];
    return num;
#endif
}

static inline v16f larger(v16f a, v16f b) { return a > b ? a : b; }

// Lanes i of the result are lanes F(i) of a and b, one behind the other; GCC 11 and clang name this differently.
#ifdef __clang__
#define LANES_OF(a, b, F)                                                                                          \
    __builtin_shufflevector(a, b, F(0), F(1), F(2), F(3), F(4), F(5), F(6), F(7), F(8), F(9), F(10), F(11), F(12), \
                            F(13), F(14), F(15))
#else
#define LANES_OF(a, b, F)                                                                                             \
    __builtin_shuffle(a, b, v16i{F(0), F(1), F(2), F(3), F(4), F(5), F(6), F(7), F(8), F(9), F(10), F(11), F(12), F(13), \
                                 F(14), F(15)})
#endif

template <int STEP>
static inline v16f swapped(v16f x) {
#define SWAPPED(i) ((i) ^ STEP)
    return LANES_OF(x, x, SWAPPED);
#undef SWAPPED
}

static inline float sum_of(v16f x) {
    x += swapped<8>(x);
    x += swapped<4>(x);
    x += swapped<2>(x);
    x += swapped<1>(x);
    return x[0];
}

static inline float max_of(v16f x) {
    x = larger(x, swapped<8>(x));
    x = larger(x, swapped<4>(x));
    x = larger(x, swapped<2>(x));
    x = larger(x, swapped<1>(x));
    return x[0];
}

// From two rows, the blocks of STEP lanes that a transposition leaves in the first and in the second.
template <int STEP>
static inline v16f keep_low(v16f a, v16f b) {
#define LOW(i) (((i) & STEP) != 0 ? ((i) ^ STEP) + LANES : (i))
    return LANES_OF(a, b, LOW);
#undef LOW
}
template <int STEP>
static inline v16f keep_high(v16f a, v16f b) {
#define HIGH(i) (((i) & STEP) != 0 ? (i) + LANES : ((i) ^ STEP))
    return LANES_OF(a, b, HIGH);
#undef HIGH
}
#undef LANES_OF

template <int STEP>
static inline void transpose_step(v16f *rows) {
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++)
        if (!(i & STEP)) {
            const v16f a = rows[i], b = rows[i + STEP];
            rows[i] = keep_low<STEP>(a, b);
            rows[i + STEP] = keep_high<STEP>(a, b);
        }
}

// rows[i][j] <-> rows[j][i]
static inline void transpose(v16f *rows) {
    transpose_step<8>(rows);
    transpose_step<4>(rows);
    transpose_step<2>(rows);
    transpose_step<1>(rows);
}

template <int STEP>
static inline void sum_step(v16f *rows) {  // 2 STEP rows become STEP rows
#pragma GCC unroll 16
    for (int i = 0; i < STEP; i++) {
        const v16f a = rows[i], b = rows[i + STEP];
        rows[i] = keep_low<STEP>(a, b) + keep_high<STEP>(a, b);
    }
}

// lane i of the result is the sum of rows[i]; rows is overwritten
static inline v16f sums_of(v16f *rows) {
    sum_step<8>(rows);
    sum_step<4>(rows);
    sum_step<2>(rows);
    sum_step<1>(rows);
    return rows[0];
}

// e^x to 2 units in the last place for x <= 0; below -87 it is 0
static inline v16f exp_of(v16f x) {
    const v16i tiny = x < splat(-87.0f);
    const v16f clipped = tiny ? splat(-87.0f) : x;  // a NaN stays one
    const v16f shifted = clipped * 1.44269504f + 12582912.0f;  // 1.5 * 2^23: the nearest integer in the low bits
    const v16f whole = shifted - 12582912.0f;
    v16f r = clipped - whole * 0.693359375f;
    r -= whole * -2.12194440e-4f;
    v16f p = splat(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    const v16i exponent = (bit_cast<v16i>(shifted) - 0x4b400000) << 23;
    const v16f y = bit_cast<v16f>(bit_cast<v16i>(p) + exponent);
    return tiny ? splat(0.0f) : y;
}

// to 1e-7, absolute
static inline v16f tanh_of(v16f x) {
    const v16i negative = x < 0;
    const v16f small = exp_of((negative ? x : -x) * 2.0f), y = (1.0f - small) / (1.0f + small);
    return negative ? -y : y;
}
