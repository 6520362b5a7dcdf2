// One or two queries of 16 bits of one kv head with keys and values of 8 bits, by products of whole numbers: a query is rounded to 15
// bits and its weights to 14, in two bytes each, which is far less than the keys and values were rounded.
//
// Of a head only the first `whole` numbers are computed here, which fill vectors. The rest are widened to floats in attend_few.h,
// as all are of more queries: they share what widening takes.
#pragma once
#include "attention.h"
#include "byte_products.h"

namespace attention {

constexpr int IN_BYTES = 2;          // queries, at most
constexpr int BITS = 7;              // of a low byte
constexpr float MOST = 127 << BITS;  // of a query
constexpr float LEAST = 0x1p-100f;   // below, what it would be divided by is infinite
constexpr float NEAREST = 12582912.0f;  // 1.5 * 2^23: added to a float, it leaves the nearest integer in the low bits
constexpr int32_t NEAREST_BITS = 0x4b400000;

inline int whole_of(int head_dim, int queries) {
    constexpr int bytes = 4 * LANES;
    return queries <= IN_BYTES ? head_dim / bytes * bytes : 0;
}

// A query's whole numbers lie before what is not rounded: [whole] high bytes, [whole] low ones, then these two.
struct Rounding {
    float scale;     // of its scores
    int32_t offset;  // of sums, where the keys are stored with one
};

// Of a query from [D] the first `whole` numbers in bytes. What is not finite makes its scores NaN.
template <class T>
inline void split_query(const T *from, float *to, int whole, float scale) {
    if (!whole) return;
    vf largest = {}, zeros = {};
    for (int d = 0; d < whole; d += LANES) {
        const vf some = load(from + d);
        largest = larger(largest, larger(some, -some)), zeros += some * 0.0f;
    }
    const float top = max_of(largest), inverse = top > LEAST ? MOST / top : 0.0f;
    int8_t *const high = reinterpret_cast<int8_t *>(to), *const low = high + whole;
    vi total = {};
    for (int d = 0; d < whole; d += LANES) {
        const vi x = bit_cast<vi>(load(from + d) * inverse + NEAREST) - NEAREST_BITS, upper = (x + (1 << (BITS - 1))) >> BITS;
        const vb bytes[] = {to_bytes(upper), to_bytes(x - (upper << BITS))};
        std::memcpy(high + d, &bytes[0], sizeof bytes[0]), std::memcpy(low + d, &bytes[1], sizeof bytes[1]);
        total += x;
    }
    const Rounding rounding = {(top / MOST + sum_of(zeros)) * scale, byte_products::OFFSET * sum_of(total)};
    std::memcpy(low + whole, &rounding, sizeof rounding);
}

// Scores of N queries q [N][D] and LANES keys from `at` on, by their first `whole` numbers and without the keys' scales.
template <int N>
inline void scores_of_bytes(const float *q, int head_dim, int whole, const Rows<int8_t> &k, int at, vf (&scores)[N]) {
    constexpr int KEYS = std::min(LANES, SUMS / N), BYTES = 4 * LANES;
    vi rows[N][LANES];
#pragma GCC unroll 1
    for (int first = 0; first < LANES; first += KEYS) {
        vi sums[N][KEYS] = {};
#pragma GCC unroll 1
        for (int half = 0; half < 2; half++) {
            if (half)
#pragma GCC unroll 4
                for (int i = 0; i < N; i++)
#pragma GCC unroll 16
                    for (int j = 0; j < KEYS; j++) sums[i][j] <<= BITS;
#pragma GCC unroll 1
            for (int d = 0; d < whole; d += BYTES) {
                vi query[N];
#pragma GCC unroll 4
                for (int i = 0; i < N; i++) std::memcpy(&query[i], reinterpret_cast<const int8_t *>(q + i * head_dim) + half * whole + d, sizeof query[i]);
#pragma GCC unroll 16
                for (int j = 0; j < KEYS; j++) {
                    const vi key = byte_products::inputs_of(k[at + first + j] + d);
#pragma GCC unroll 4
                    for (int i = 0; i < N; i++) sums[i][j] = byte_products::add(sums[i][j], key, query[i]);
                }
            }
        }
#pragma GCC unroll 4
        for (int i = 0; i < N; i++)
#pragma GCC unroll 16
            for (int j = 0; j < KEYS; j++) rows[i][first + j] = sums[i][j];
    }
#pragma GCC unroll 4
    for (int i = 0; i < N; i++) {
        Rounding rounding;
        std::memcpy(&rounding, reinterpret_cast<const int8_t *>(q + i * head_dim) + 2 * whole, sizeof rounding);
        scores[i] = __builtin_convertvector(sums_of(rows[i]) - rounding.offset, vf) * rounding.scale;
    }
}

// out [N][D] += weights [N][TILE] * values in their first `whole` numbers, in the order of byte_products::place_of.
template <int N>
inline void add_byte_values(const Rows<int8_t> &v, int count, const float *weights, int head_dim, int whole, float *out) {
    using byte_products::GROUP;
    constexpr int BYTES = GROUP * LANES;
    alignas(64) int8_t high[N][TILE], low[N][TILE];
    float sizes[N];
#pragma GCC unroll 2
    for (int i = 0; i < N; i++) {
        const float *const of = weights + i * TILE;
        vf largest = load(of);
        for (int part = 1; part < PARTS; part++) largest = larger(largest, load(of + part * LANES));
        // by powers of two: the largest has 14 bits, or a tenth of a thousandth more, which it loses
        const int32_t exponent = bit_cast<int32_t>(std::max(max_of(largest), LEAST)) >> 23;
        sizes[i] = bit_cast<float>((exponent + 1 - 2 * BITS) << 23);
        const float inverse = bit_cast<float>((253 - exponent + 2 * BITS) << 23);
        for (int part = 0; part < PARTS; part++) {
            const vf some = load(of + part * LANES);
            if (any(some - some != 0.0f)) sizes[i] = NAN;
            const vi nearest = bit_cast<vi>(some * inverse + NEAREST) - NEAREST_BITS, x = nearest - (nearest >> (2 * BITS));
            const vb bytes[] = {to_bytes(x >> BITS), to_bytes(x & 127)};
            std::memcpy(high[i] + part * LANES, &bytes[0], sizeof bytes[0]), std::memcpy(low[i] + part * LANES, &bytes[1], sizeof bytes[1]);
        }
    }
    const auto four = [](const int8_t *from) {
        int32_t bytes;
        std::memcpy(&bytes, from, sizeof bytes);
        return vi{} + bytes;
    };
    for (int d = 0; d < whole; d += BYTES) {
        vi sums[N][2][GROUP] = {};
#pragma GCC unroll 1
        for (int j = 0; j < count; j += GROUP) {
            vi values[GROUP];
            byte_products::interleave({v[j] + d, v[j + 1] + d, v[j + 2] + d, v[j + 3] + d}, values);
#pragma GCC unroll 4
            for (int i = 0; i < N; i++) {
                const vi upper = four(high[i] + j), lower = four(low[i] + j);
#pragma GCC unroll 4
                for (int w = 0; w < GROUP; w++) {
                    sums[i][0][w] = byte_products::add(sums[i][0][w], upper, values[w]);
                    sums[i][1][w] = byte_products::add(sums[i][1][w], lower, values[w]);
                }
            }
        }
#pragma GCC unroll 4
        for (int i = 0; i < N; i++)
#pragma GCC unroll 4
            for (int w = 0; w < GROUP; w++) {
                float *const to = out + i * head_dim + d + w * LANES;
                store(to, load(to) + __builtin_convertvector((sums[i][0][w] << BITS) + sums[i][1][w], vf) * sizes[i]);
            }
    }
}

// What add_byte_values has summed, in order.
inline void order_bytes(const float *from, float *to, int whole) {
    for (int d = 0; d < whole; d += byte_products::GROUP * LANES)
        for (int w = 0; w < byte_products::GROUP; w++)
            for (int lane = 0; lane < LANES; lane++) to[d + byte_products::place_of(w, lane)] = from[d + w * LANES + lane];
}

}  // namespace attention
