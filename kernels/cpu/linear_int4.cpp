// Linear layers over weights of 4 bits: out = x weight^T + bias, where a weight is (q - zero) * scale, q in [0, 15], and
// `group` inputs of an output share scale and zero.
//
// Inputs are rounded to 8 bits when they come, with a scale for each token and group ("dynamic"), and their products with
// q are added as whole numbers, exactly. Four bits become bytes by a mask, which a byte product then takes as they are;
// as floats they would cost four times the products and the conversions. A group's sum becomes a float once, and a token's
// output does not depend on its batch. What rounding the inputs adds is a tenth of what four bits cost.
//
// T tokens, N in, M out, G = N / group. Packed weights are records [M / BLOCK][G]: [group / 8][BLOCK, 4] bytes, then
// scales and zeros [BLOCK] in float16, so that they are one stream. The low halves of four bytes are inputs 0 to 3 of 8,
// the high ones 4 to 7. Outputs that fill the last block have a scale of 0. With `order`, input n of the weights is
// input order[n] of x: a checkpoint may group inputs that lie apart.
#include <cmath>

#include "linear.h"
#include "replay.h"

namespace {

constexpr int EIGHT = 8;                 // inputs of a step
constexpr int64_t STEP = BLOCK * 4;      // bytes of a step, and of a record's scales and zeros
constexpr int RUN = PADDED / 4;          // fours of a token that lie together, see copy_inputs
constexpr int MAX_GROUP = 128;           // whose sums a float still holds exactly: 128 * 15 * 127 < 2^24
constexpr float LARGEST = 127.0f, LEVELS = 15.0f;

// sums + the products of four inputs with the bytes `low` and of the next four with `high`, bytes in [0, 15]
#if defined(__AVX512VNNI__) && !defined(RAMET_LANES)
inline vi add_products(vi sums, vi first, vu low, vi next, vu high) {
    const __m512i some = _mm512_dpbusd_epi32((__m512i)sums, (__m512i)low, (__m512i)first);
    return (vi)_mm512_dpbusd_epi32(some, (__m512i)high, (__m512i)next);
}
#elif defined(__AVX512BW__) && !defined(RAMET_LANES)
inline vi add_products(vi sums, vi first, vu low, vi next, vu high) {  // four products of at most 15 * 127 fit into 16 bits
    const __m512i pairs = _mm512_add_epi16(_mm512_maddubs_epi16((__m512i)low, (__m512i)first), _mm512_maddubs_epi16((__m512i)high, (__m512i)next));
    return sums + (vi)_mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
}
#elif defined(__AVXVNNI__) && defined(__AVX2__) && !defined(__AVX512F__) && !defined(RAMET_LANES)
inline vi add_products(vi sums, vi first, vu low, vi next, vu high) {
    const __m256i some = _mm256_dpbusd_avx_epi32((__m256i)sums, (__m256i)low, (__m256i)first);
    return (vi)_mm256_dpbusd_avx_epi32(some, (__m256i)high, (__m256i)next);
}
#elif defined(__AVX2__) && !defined(__AVX512F__) && !defined(RAMET_LANES)
inline vi add_products(vi sums, vi first, vu low, vi next, vu high) {  // four products of at most 15 * 127 fit into 16 bits
    const __m256i pairs = _mm256_add_epi16(_mm256_maddubs_epi16((__m256i)low, (__m256i)first), _mm256_maddubs_epi16((__m256i)high, (__m256i)next));
    return sums + (vi)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}
#elif defined(__ARM_FEATURE_DOTPROD) && !defined(RAMET_LANES)
inline vi add_products(vi sums, vi first, vu low, vi next, vu high) {
    const int32x4_t some = vdotq_s32((int32x4_t)sums, (int8x16_t)first, (int8x16_t)low);
    return (vi)vdotq_s32(some, (int8x16_t)next, (int8x16_t)high);
}
#else
inline vi add_products(vi sums, vi first, vu low, vi next, vu high) {
    for (int byte = 0; byte < 4; byte++) {
        sums += (first << (24 - 8 * byte) >> 24) * (vi)(low << (24 - 8 * byte) >> 24);
        sums += (next << (24 - 8 * byte) >> 24) * (vi)(high << (24 - 8 * byte) >> 24);
    }
    return sums;
}
#endif

// Of packed weights.
struct Layout {
    int64_t num_in, group;
    int64_t num_groups() const { return num_in / group; }
    int64_t steps() const { return group / EIGHT; }
    int64_t block_bytes() const { return num_groups() * (steps() + 1) * STEP; }
};

template <class T>
struct Job {
    const uint8_t *weights;
    const int32_t *order;  // or null
    Output<T> out;
    Layout layout;
    int threads;
};

// A tile's tokens, R of them: whole numbers [N / PADDED][R][RUN] of four inputs each, and of each group [G][R] their scale and sum.
struct Inputs {
    const int32_t *wholes;
    const float *scales, *sums;
};

// ROWS tokens times VECTORS vectors of columns from `column` on
template <class T, int ROWS, int VECTORS>
__attribute__((noinline)) void tile(const Job<T> &job, Inputs x, int64_t first_row, int64_t column, Ahead ahead) {
    const uint8_t *weights = job.weights + column / BLOCK * job.layout.block_bytes();
    const int64_t offset = column % BLOCK, groups = job.layout.num_groups(), steps = job.layout.steps();
    vf totals[ROWS][VECTORS];
#pragma GCC unroll 12
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 8
        for (int v = 0; v < VECTORS; v++) totals[r][v] = vf{};
    for (int64_t g = 0; g < groups; g++, x.scales += ROWS, x.sums += ROWS) {
        vi sums[ROWS][VECTORS];
#pragma GCC unroll 12
        for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 8
            for (int v = 0; v < VECTORS; v++) sums[r][v] = vi{};
        for (const uint8_t *const group_end = weights + steps * STEP; weights < group_end; x.wholes += (ROWS - 1) * RUN)
#pragma GCC unroll 1
            for (const int32_t *const run_end = x.wholes + RUN; x.wholes < run_end; x.wholes += 2, weights += STEP, ahead.from += ahead.step) {
                ahead.ask<STEP>();
                vu low[VECTORS], high[VECTORS];
#pragma GCC unroll 8
                for (int v = 0; v < VECTORS; v++) {
                    std::memcpy(&high[v], weights + (offset + v * LANES) * 4, sizeof high[v]);
                    low[v] = high[v] & 0x0f0f0f0f, high[v] = (high[v] >> 4) & 0x0f0f0f0f;
                }
#pragma GCC unroll 12
                for (int r = 0; r < ROWS; r++) {
                    const vi first = x.wholes[r * RUN] - vi{}, next = x.wholes[r * RUN + 1] - vi{};
#pragma GCC unroll 8
                    for (int v = 0; v < VECTORS; v++) sums[r][v] = add_products(sums[r][v], first, low[v], next, high[v]);
                }
            }
        const f16 *const scales = reinterpret_cast<const f16 *>(weights) + offset, *const zeros = scales + BLOCK;
#pragma GCC unroll 8
        for (int v = 0; v < VECTORS; v++) {
            const vf scale = load(scales + v * LANES), zero = load(zeros + v * LANES);
#pragma GCC unroll 12
            for (int r = 0; r < ROWS; r++)
                totals[r][v] += (__builtin_convertvector(sums[r][v], vf) - zero * x.sums[r]) * (scale * x.scales[r]);
        }
        weights += STEP, ahead.from += ahead.step;
    }
    job.out.template put_tile<ROWS, VECTORS>(first_row, column, [&](int r, int v) { return totals[r][v]; });
}

// A token's inputs as whole numbers, in runs as those of copy_inputs, and of each group, every `stride`, its scale and sum.
template <class T>
void quantise(const Job<T> &job, const T *x, int8_t *to, float *scales, float *sums, int64_t stride) {
    const int64_t group = job.layout.group;
    const vf round = splat(12582912.0f);  // 1.5 * 2^23: what is added to it is rounded to a whole number
    for (int64_t start = 0; start < job.layout.num_in; start += group, scales += stride, sums += stride) {
        T gathered[MAX_GROUP];
        const T *from = x + start;
        if (job.order) {
            for (int64_t i = 0; i < group; i++) gathered[i] = x[job.order[start + i]];
            from = gathered;
        }
        vf most = {};
        for (int64_t i = 0; i < group; i += LANES) {
            const vf some = load(from + i);
            most = larger(most, larger(some, -some));
        }
        const float largest = max_of(most), inverse = largest > 0 ? LARGEST / largest : 0.0f;
        vi all = {};
        for (int64_t i = 0; i < group; i += LANES) {
            const vi whole = bit_cast<vi>(load(from + i) * inverse + round) - bit_cast<vi>(round);
            const vb bytes = to_bytes(whole);
            all += whole;
            std::memcpy(to + (start + i) / PADDED * stride * PADDED + i % PADDED, &bytes, sizeof bytes);
        }
        *scales = largest / LARGEST, *sums = sum_of(__builtin_convertvector(all, vf));
    }
}

template <class T>
void multiply_block(const Job<T> &job, const T *x, int64_t x_stride, int64_t first, int64_t tokens) {
    const Tiles tiles(tokens);
    const int64_t num_in = job.layout.num_in, quarters = num_in / 4, groups = job.layout.num_groups();
    int32_t *const wholes = reinterpret_cast<int32_t *>(scratch(tokens * (quarters + 2 * groups) * sizeof(int32_t)));
    float *const scales = reinterpret_cast<float *>(wholes + tokens * quarters), *const sums = scales + tokens * groups;
    each_token(job.threads, tiles, 2 * num_in, [&](int64_t token, int64_t start, int64_t r, int64_t rows) {
        int8_t *const to = reinterpret_cast<int8_t *>(wholes + start * quarters + r * RUN);
        quantise(job, x + (first + token) * x_stride, to, scales + start * groups + r, sums + start * groups + r, rows);
    });
    const int64_t values = std::max<int64_t>(1, BLOCK / 8 * num_in * (tokens + 8) / 8);  // four blocks of 768 inputs of a token: 5 us
    const Stream stream = {job.weights, job.out.num_out, job.layout.block_bytes(), STEP, values};
    each_tile(job.threads, tiles, stream, [&](auto rows, auto vectors, int64_t t, int64_t column, Ahead ahead) {
        const int64_t start = tiles.start(t);
        tile<T, rows, vectors>(job, {wholes + start * quarters, scales + start * groups, sums + start * groups}, first + start, column, ahead);
    });
}

// A group of inputs of a block of columns, in the packed weights.
struct Record {
    uint8_t *bytes;
    f16 *scales, *zeros;

    Record(Layout layout, uint8_t *packed, int64_t out, int64_t group)
        : bytes(packed + out / BLOCK * layout.block_bytes() + group * (layout.steps() + 1) * STEP),
          scales(reinterpret_cast<f16 *>(bytes + layout.steps() * STEP)), zeros(scales + BLOCK) {}
    uint8_t &byte(int64_t column, int64_t in) const { return bytes[in / EIGHT * STEP + column * 4 + in % 4]; }
    static int shift(int64_t in) { return in % EIGHT < 4 ? 0 : 4; }
    void put(int64_t column, int64_t in, int q) const { byte(column, in) |= uint8_t(q << shift(in)); }
    float value(int64_t column, int64_t in) const {
        return ((byte(column, in) >> shift(in) & 15) - load_some(zeros + column, 1)[0]) * load_some(scales + column, 1)[0];
    }
};

// Rounds a group of an output between its smallest and its largest weight; 0 stays 0.
template <class T>
void round_group(const T *weight, const Record &record, int64_t column, int64_t group) {
    float values[MAX_GROUP], low = 0, high = 0;
    for (int64_t i = 0; i < group; i += LANES) store(values + i, load(weight + i));
    for (int64_t i = 0; i < group; i++) low = std::min(low, values[i]), high = std::max(high, values[i]);
    store_some(record.scales + column, splat((high - low) / LEVELS), 1);
    const float scale = load_some(record.scales + column, 1)[0], zero = scale > 0 ? std::nearbyint(-low / scale) : 0.0f;
    store_some(record.zeros + column, splat(zero), 1);
    for (int64_t i = 0; scale > 0 && i < group; i++)
        record.put(column, i, int(std::clamp(std::nearbyint(values[i] / scale) + zero, 0.0f, LEVELS)));
}

// How a checkpoint packs the q of weights [M, N], eight in a word.
enum Words { AWQ = 0, GPTQ = 1 };

inline int q_of(int words, const uint32_t *at, int64_t num_out, int64_t out, int64_t in) {
    if (words == GPTQ) return at[in / EIGHT * num_out + out] >> (in % EIGHT * 4) & 15;
    return at[in * (num_out / EIGHT) + out / EIGHT] >> ((out % 2 * 4 + out % EIGHT / 2) * 4) & 15;  // first those of even outputs
}

}  // namespace

// Bytes that `packed` has room for.
extern "C" int64_t ramet_packed_int4_size(int64_t num_out, int64_t num_in, int64_t group) {
    return ceil_div(num_out, BLOCK) * Layout{num_in, group}.block_bytes();
}

// weight [M, N] with rows `stride` apart; packed is zero
extern "C" void ramet_pack_int4(int dtype, const void *weight, int64_t stride, int64_t num_out, int64_t num_in, int64_t group, void *packed,
                                int threads) {
    const Layout layout = {num_in, group};
    with_dtype(dtype, [&](auto value) {
        using T = decltype(value);
        pool::each_of_many(threads, num_out, num_in, [&](int64_t out) {
            for (int64_t g = 0; g < layout.num_groups(); g++)
                round_group((const T *)weight + out * stride + g * group, Record(layout, (uint8_t *)packed, out, g), out % BLOCK, group);
        });
    });
}

// q [N, M / 8] (AWQ) or [N / 8, M] (GPTQ) words as a checkpoint has them, scales and zeros [G, M] float16, order [N] or
// null; packed is zero
extern "C" void ramet_repack_int4(int words, const uint32_t *q, const f16 *scales, const f16 *zeros, const int32_t *order, int64_t num_out,
                                  int64_t num_in, int64_t group, void *packed, int threads) {
    const Layout layout = {num_in, group};
    pool::each(threads, ceil_div(num_out, BLOCK), [&](int64_t block) {
        const int64_t first = block * BLOCK, columns = std::min<int64_t>(BLOCK, num_out - first);
        for (int64_t g = 0; g < layout.num_groups(); g++) {
            const Record record(layout, (uint8_t *)packed, first, g);
            std::memcpy(record.scales, scales + g * num_out + first, columns * sizeof(f16));
            std::memcpy(record.zeros, zeros + g * num_out + first, columns * sizeof(f16));
            for (int64_t i = 0; i < group; i++) {
                const int64_t in = order ? order[g * group + i] : g * group + i;
                for (int64_t c = 0; c < columns; c++) record.put(c, i, q_of(words, q, num_out, first + c, in));
            }
        }
    });
}

// x [T, N] and out [T, M] with rows a stride apart; order [N] or null; bias [M] or null; out is float32 if `is_wide`
extern "C" void ramet_linear_int4(int dtype, const void *x, int64_t x_stride, const void *packed, const int32_t *order, int64_t group,
                                  const void *bias, void *out, int64_t out_stride, int64_t tokens, int64_t num_in, int64_t num_out, int is_wide,
                                  int threads) {
    with_dtype(dtype, [&](auto value) {
        using T = decltype(value);
        const Job<T> job = {(const uint8_t *)packed, order, {out, (const T *)bias, is_wide != 0, out_stride, num_out}, {num_in, group}, threads};
        each_block_of_tokens(tokens, num_in, [&](int64_t first, int64_t num) { multiply_block(job, (const T *)x, x_stride, first, num); });
    });
}
REPLAYABLE(ramet_linear_int4)

// out [num, N]: these rows of a packed weight, times `scale`
extern "C" void ramet_unpack_int4(int dtype, const void *packed, const int32_t *order, int64_t group, int64_t num_in, const int64_t *rows, int64_t num,
                                  float scale, void *out, int threads) {
    const Layout layout = {num_in, group};
    with_dtype(dtype, [&](auto value) {
        using T = decltype(value);
        pool::each_of_many(threads, num, 4 * num_in, [&](int64_t i) {
            for (int64_t in = 0; in < num_in; in++) {
                const Record record(layout, (uint8_t *)packed, rows[i], in / group);
                const int64_t to = order ? order[in] : in;
                store_some((T *)out + i * num_in + to, splat(record.value(rows[i] % BLOCK, in % group) * scale), 1);
            }
        });
    });
}
REPLAYABLE(ramet_unpack_int4)
