// As many floats at a time as a register of the CPU holds, in the compiler's own vector types: one source for any CPU.
// Loads widen to float, stores round to nearest even. Knows no tensor.
#pragma once
#include <cstdint>
#include <cstring>
#include <utility>
#if defined(__AVX512F__) || defined(__F16C__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

// RAMET_LANES: another width than that of the registers, to test what a CPU would compute that is not at hand
#if defined(RAMET_LANES)
constexpr int LANES = RAMET_LANES;
#elif defined(__AVX512F__)
constexpr int LANES = 16;
#elif defined(__AVX2__)
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif
constexpr int MAX_LANES = 16;

// 16 registers, for which GCC 12 has to be told what to keep in them
#if defined(__AVX2__) && !defined(__AVX512F__) && !defined(RAMET_LANES)
#define RAMET_AVX2_ALONE 1
#else
#define RAMET_AVX2_ALONE 0
#endif

typedef float vf __attribute__((vector_size(4 * LANES)));
typedef int32_t vi __attribute__((vector_size(4 * LANES)));
typedef uint32_t vu __attribute__((vector_size(4 * LANES)));
typedef uint16_t vh __attribute__((vector_size(2 * LANES)));
typedef int8_t vb __attribute__((vector_size(LANES)));

enum Dtype { FLOAT32 = 0, BFLOAT16 = 1, FLOAT16 = 2, INT8 = 3 };

struct bf16 {
    uint16_t bits;
};
struct f16 {  // by its bits: not every compiler has the type
    uint16_t bits;
};

// body(a value of the dtype's type)
template <class Body>
static inline void with_dtype(int dtype, Body body) {
    switch (dtype) {
        case FLOAT32: return body(float{});
        case BFLOAT16: return body(bf16{});
        case FLOAT16: return body(f16{});
    }
}

template <class To, class From>
static inline To bit_cast(From from) {
    static_assert(sizeof(To) == sizeof(From), "same size");
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}

static inline vf splat(float x) { return x - vf{}; }  // not x + 0, which would have to make +0 of -0

// float16 without an instruction for it. The products and sums with powers of two move the exponent, and round where
// the result is subnormal.
static inline vf widened(vh x) {
    const vu bits = __builtin_convertvector(x, vu), sign = (bits & 0x8000) << 16;
    const vf small = bit_cast<vf>((bits & 0x7fff) << 13) * 0x1p112f;
    const vi is_special = (bits & 0x7c00) == 0x7c00;  // infinity or NaN
    const vu special = bit_cast<vu>(small) | 0x7f800000;
    return bit_cast<vf>((is_special ? bit_cast<vi>(special) : bit_cast<vi>(small)) | bit_cast<vi>(sign));
}
static inline vh narrowed(vf x) {
    const vu bits = bit_cast<vu>(x), sign = (bits >> 16) & 0x8000, size = bits & 0x7fffffff;
    const vu normal = (size - 0x38000000 + 0xfff + ((size >> 13) & 1)) >> 13;
    const vu subnormal = bit_cast<vu>(bit_cast<vf>(size) + 0.5f) - 0x3f000000;
    const vi is_small = size < 0x38800000, is_large = size >= 0x47800000, is_nan = x != x;
    vi y = is_small ? bit_cast<vi>(subnormal) : bit_cast<vi>(normal);
    y = is_large ? vi{} + 0x7c00 : y;
    y = is_nan ? vi{} + 0x7e00 : y;
    return __builtin_convertvector(bit_cast<vu>(y) | sign, vh);
}

static inline vf from_f16_bits(vh x) {
#if defined(__AVX512F__) && !defined(RAMET_LANES)
    return (vf)_mm512_cvtph_ps((__m256i)x);
#elif defined(__F16C__) && !defined(RAMET_LANES)
    return (vf)_mm256_cvtph_ps((__m128i)x);
#elif defined(__aarch64__) && !defined(RAMET_LANES)
    return (vf)vcvt_f32_f16(bit_cast<float16x4_t>(x));
#else
    return widened(x);
#endif
}
static inline vh to_f16_bits(vf x) {
#if defined(__AVX512F__) && !defined(RAMET_LANES)
    return (vh)_mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif defined(__F16C__) && !defined(RAMET_LANES)
    return (vh)_mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif defined(__aarch64__) && !defined(RAMET_LANES)
    return bit_cast<vh>(vcvt_f16_f32((float32x4_t)x));
#else
    return narrowed(x);
#endif
}

static inline vf load(const float *p) {
    vf x;
    std::memcpy(&x, p, sizeof x);
    return x;
}
static inline vf load(const bf16 *p) {
    vh x;
    std::memcpy(&x, p, sizeof x);
    return bit_cast<vf>(__builtin_convertvector(x, vu) << 16);
}
static inline vf load(const f16 *p) {
    vh x;
    std::memcpy(&x, p, sizeof x);
    return from_f16_bits(x);
}

static inline vf load(const int8_t *p) {  // whole numbers; GCC 12 widens a vector of them one by one
#if defined(__AVX512F__) && !defined(RAMET_LANES)
    return (vf)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p))));
#elif defined(__AVX2__) && !defined(RAMET_LANES)
    return (vf)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(p))));
#elif defined(__aarch64__) && !defined(RAMET_LANES)
    int32_t bytes;
    std::memcpy(&bytes, p, sizeof bytes);
    return (vf)vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(bytes))))));
#else
    vb x;
    std::memcpy(&x, p, sizeof x);
    return __builtin_convertvector(__builtin_convertvector(x, vi), vf);
#endif
}

static inline vb to_bytes(vi x) {  // the low ones; GCC 12 takes them one by one in some places
#if defined(__AVX512F__) && !defined(RAMET_LANES)
    return bit_cast<vb>(_mm512_cvtepi32_epi8((__m512i)x));
#else
    return __builtin_convertvector(x, vb);
#endif
}

// Whether numbers that are subnormal stay as they are when they are rounded to a T. The operation that some CPUs have for
// bfloat16 makes them 0, as its products do.
template <class T>
constexpr bool KEEPS_SUBNORMALS = true;
#if defined(__AVX512BF16__) && !defined(RAMET_LANES)
template <>
inline constexpr bool KEEPS_SUBNORMALS<bf16> = false;
static inline vh to_bf16_bits(vf x) { return bit_cast<vh>(_mm512_cvtneps_pbh((__m512)x)); }
#else
// x as a bfloat16 with zeros behind it
static inline vu bf16_bits(vf x) {
    const vu bits = bit_cast<vu>(x);
    const vu nearest = bits + 0x7fff + ((bits >> 16) & 1);
    const vu quiet = bits | 0x400000;  // rounding must not turn a NaN into infinity
    const vi is_nan = x != x;
    return bit_cast<vu>(is_nan ? bit_cast<vi>(quiet) : bit_cast<vi>(nearest)) & 0xffff0000;
}
static inline vh to_bf16_bits(vf x) { return __builtin_convertvector(bf16_bits(x) >> 16, vh); }
#endif

static inline void store(float *p, vf x) { std::memcpy(p, &x, sizeof x); }
static inline void store(bf16 *p, vf x) {
    const vh y = to_bf16_bits(x);
    std::memcpy(p, &y, sizeof y);
}
static inline void store(f16 *p, vf x) {
    const vh y = to_f16_bits(x);
    std::memcpy(p, &y, sizeof y);
}

// the first n < LANES values, zeros behind them; and the way back
template <class T>
static inline vf load_some(const T *p, int64_t n) {
    T all[LANES] = {};
    std::memcpy(all, p, n * sizeof(T));
    return load(all);
}
template <class T>
static inline void store_some(T *p, vf x, int64_t n) {
    T all[LANES];
    store(all, x);
    std::memcpy(p, all, n * sizeof(T));
}

// x as it would be after a store and a load: what an op of this dtype rounds in between
template <class T>
static inline vf rounded(vf x) {
    T there[LANES];
    store(there, x);
    return load(there);
}
template <>
inline vf rounded<float>(vf x) {
    return x;
}
template <>
inline vf rounded<bf16>(vf x) {
#if defined(__AVX512BF16__) && !defined(RAMET_LANES)
    return bit_cast<vf>(__builtin_convertvector(to_bf16_bits(x), vu) << 16);
#else
    return bit_cast<vf>(bf16_bits(x));
#endif
}

// Two vectors in the order that is cheapest to widen: bfloat16 gives the even ones, then the odd ones, with one operation
// each. Sums of products do not care, as long as both factors are in the same order.
template <class T>
static inline void load_pair(const T *p, vf &a, vf &b) {
    a = load(p), b = load(p + LANES);
}
static inline void load_pair(const bf16 *p, vf &a, vf &b) {
    vu both;
    std::memcpy(&both, p, sizeof both);
    a = bit_cast<vf>(both << 16), b = bit_cast<vf>(both & 0xffff0000u);
}
template <class T>
static inline void store_pair(T *p, vf a, vf b) {
    store(p, a), store(p + LANES, b);
}
static inline void store_pair(bf16 *p, vf a, vf b) {
#if defined(__AVX512BF16__) && !defined(RAMET_LANES)
    alignas(64) static constexpr uint16_t merged[] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                      8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    const __m512i behind = (__m512i)_mm512_cvtne2ps_pbh((__m512)b, (__m512)a);
    _mm512_storeu_si512(p, _mm512_permutexvar_epi16(_mm512_load_si512(merged), behind));
#else
    const vu both = __builtin_convertvector(to_bf16_bits(a), vu) | __builtin_convertvector(to_bf16_bits(b), vu) << 16;
    std::memcpy(p, &both, sizeof both);
#endif
}

// Of 2 LANES numbers of two rows those of the same place side by side, a first: as words of bfloat16.
template <class T>
static inline void interleave(const T *a, const T *b, vf &first, vf &second) {
    first = bit_cast<vf>(bit_cast<vu>(load(a)) >> 16 | bit_cast<vu>(load(b)));
    second = bit_cast<vf>(bit_cast<vu>(load(a + LANES)) >> 16 | bit_cast<vu>(load(b + LANES)));
}
#if defined(__AVX512BW__) && !defined(RAMET_LANES)
static inline void interleave(const bf16 *a, const bf16 *b, vf &first, vf &second) {
    alignas(64) static constexpr uint16_t places[2][32] = {
        {0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6, 38, 7, 39, 8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47},
        {16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55, 24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63}};
    const __m512i x = _mm512_loadu_si512(a), y = _mm512_loadu_si512(b);
    first = (vf)_mm512_permutex2var_epi16(x, _mm512_load_si512(places[0]), y);
    second = (vf)_mm512_permutex2var_epi16(x, _mm512_load_si512(places[1]), y);
}
#endif

// What load_pair took apart, in order; and nothing to do for dtypes whose pairs are in order.
template <class T>
static inline void in_order(vf &, vf &) {}

static inline bool any(vi x) {
#if defined(__AVX512F__) && !defined(RAMET_LANES)
    return _mm512_test_epi32_mask((__m512i)x, (__m512i)x) != 0;
#else
    uint64_t words[LANES / 2], all = 0;
    std::memcpy(words, &x, sizeof x);
    for (const uint64_t word : words) all |= word;
    return all != 0;
#endif
}

// the lanes of x that are chosen, next to each other at p, where LANES values may be written; returns their number
static inline int64_t pack(float *p, vf x, vi chosen) {
#if defined(__AVX512F__) && !defined(RAMET_LANES)
    const __mmask16 lanes = _mm512_test_epi32_mask((__m512i)chosen, (__m512i)chosen);
    _mm512_storeu_ps(p, _mm512_maskz_compress_ps(lanes, (__m512)x));
    return __builtin_popcount(lanes);
#else
    int64_t num = 0;
    for (int lane = 0; lane < LANES; lane++) p[num] = x[lane], num -= chosen[lane];
    return num;
#endif
}

// sum += a * b, all in registers. In a loop that needs all 16 of AVX2, GCC 12 takes turns between three forms of this operation,
// and reads a factor from memory each time; one of them leaves each sum where it is.
__attribute__((always_inline)) static inline void add_product(vf &sum, vf a, vf b) {
#if RAMET_AVX2_ALONE
    vf all = sum;
    asm("vfmadd231ps %2, %1, %0" : "+x"(all) : "x"(a), "x"(b));
    sum = all;
#else
    sum += a * b;
#endif
}

static inline vf larger(vf a, vf b) { return a > b ? a : b; }

// Lane i of the result is lane FROM::lane(i) of a and b, one behind the other; GCC 11 and clang name this differently.
template <class FROM, class V, int... I>
static inline V lanes_of(V a, V b, std::integer_sequence<int, I...>) {
#ifdef __clang__
    return __builtin_shufflevector(a, b, FROM::lane(I)...);
#else
    return __builtin_shuffle(a, b, vi{FROM::lane(I)...});
#endif
}
typedef std::make_integer_sequence<int, LANES> AllLanes;

struct FirstMerged {
    static constexpr int lane(int i) { return i / 2 + (i & 1) * LANES; }
};
struct SecondMerged {
    static constexpr int lane(int i) { return LANES / 2 + FirstMerged::lane(i); }
};
template <>
inline void in_order<bf16>(vf &even, vf &odd) {
    const vf first = lanes_of<FirstMerged>(even, odd, AllLanes{});
    odd = lanes_of<SecondMerged>(even, odd, AllLanes{}), even = first;
}

template <int STEP>
struct Swapped {
    static constexpr int lane(int i) { return i ^ STEP; }
};
// From two rows, the blocks of STEP lanes that a transposition leaves in the first and in the second.
template <int STEP>
struct Low {
    static constexpr int lane(int i) { return (i & STEP) != 0 ? (i ^ STEP) + LANES : i; }
};
template <int STEP>
struct High {
    static constexpr int lane(int i) { return (i & STEP) != 0 ? i + LANES : i ^ STEP; }
};

template <int STEP = LANES / 2, class V>
static inline auto sum_of(V x) {
    if constexpr (STEP == 0)
        return +x[0];
    else
        return sum_of<STEP / 2>(x + lanes_of<Swapped<STEP>>(x, x, AllLanes{}));
}

template <int STEP = LANES / 2>
static inline float max_of(vf x) {
    if constexpr (STEP == 0)
        return x[0];
    else
        return max_of<STEP / 2>(larger(x, lanes_of<Swapped<STEP>>(x, x, AllLanes{})));
}

// rows[i][j] <-> rows[j][i]
template <int STEP = LANES / 2>
static inline void transpose(vf *rows) {
    if constexpr (STEP > 0) {
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++)
            if (!(i & STEP)) {
                const vf a = rows[i], b = rows[i + STEP];
                rows[i] = lanes_of<Low<STEP>>(a, b, AllLanes{});
                rows[i + STEP] = lanes_of<High<STEP>>(a, b, AllLanes{});
            }
        transpose<STEP / 2>(rows);
    }
}

// lane i of the result is the sum of rows[i]; rows is overwritten
template <int STEP = LANES / 2, class V>
static inline V sums_of(V *rows) {
    if constexpr (STEP == 0) {
        return rows[0];
    } else {  // 2 STEP rows become STEP rows
#pragma GCC unroll 16
        for (int i = 0; i < STEP; i++) {
            const V a = rows[i], b = rows[i + STEP];
            rows[i] = lanes_of<Low<STEP>>(a, b, AllLanes{}) + lanes_of<High<STEP>>(a, b, AllLanes{});
        }
        return sums_of<STEP / 2>(rows);
    }
}

static inline vi lane_numbers() {
    vi x;
    for (int i = 0; i < LANES; i++) x[i] = i;
    return x;
}

constexpr float LOG2_E = 1.44269504f;

// e^x to 2 units in the last place for x <= 0; below -87 it is 0
static inline vf exp_of(vf x) {
    const vi tiny = x < splat(-87.0f);
    const vf clipped = tiny ? splat(-87.0f) : x;  // a NaN stays one
    const vf shifted = clipped * LOG2_E + 12582912.0f;  // 1.5 * 2^23: the nearest integer in the low bits
    const vf whole = shifted - 12582912.0f;
    vf r = clipped - whole * 0.693359375f;
    r -= whole * -2.12194440e-4f;
    vf p = splat(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    const vi exponent = (bit_cast<vi>(shifted) - 0x4b400000) << 23;
    const vf y = bit_cast<vf>(bit_cast<vi>(p) + exponent);
    return tiny ? splat(0.0f) : y;
}

// 2^x to 3 units in the last place from -126 to 127; below it is 0 at last, above it is no less. Whole powers are exact, and
// no other polynomial of its degree that has them has a smaller largest error.
static inline vf exp2_of(vf x) {
#if defined(__AVX512DQ__) && !defined(RAMET_LANES)
    const vf r = (vf)_mm512_reduce_ps((__m512)x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
#else
    const vi tiny = x < -126.0f, huge = x > 127.0f;
    vf clipped = tiny ? splat(-126.0f) : x;
    clipped = huge ? splat(127.0f) : clipped;
    const vf shifted = clipped - 0.5f + 12582912.0f;  // 1.5 * 2^23: the whole number below in the low bits
    const vf r = clipped - (shifted - 12582912.0f);
#endif
    vf p = splat(1.87931862e-3f);
    p = p * r + 8.99099465e-3f;
    p = p * r + 5.58186769e-2f;
    p = p * r + 2.40159273e-1f;
    p = p * r + 6.93151712e-1f;
    p = p * r + 1.0f;
#if defined(__AVX512DQ__) && !defined(RAMET_LANES)
    return (vf)_mm512_scalef_ps((__m512)p, (__m512)x);
#else
    const vf y = bit_cast<vf>(bit_cast<vi>(p) + ((bit_cast<vi>(shifted) - 0x4b400000) << 23));
    return tiny ? splat(0.0f) : y;
#endif
}

// to 1e-7, absolute
static inline vf tanh_of(vf x) {
    const vi negative = x < 0;
    const vf small = exp_of((negative ? x : -x) * 2.0f), y = (1.0f - small) / (1.0f + small);
    return negative ? -y : y;
}
