// Many queries of one kv head, as extends and rows that share a prefix have: a lane is a query. Keys and values are
// widened once for all of them and then need no turning, because each of their numbers meets all queries of a vector.
//
// Q queries of the kv head, rounded up to whole vectors. Queries and sums are [D][Q]. With DOTS two numbers of bfloat16 are in
// each lane: of neighbours in the head for scores, so that queries are [D / 2][Q], and of neighbouring keys for values.
#pragma once
#include "attention.h"
#include "dots.h"

namespace attention {

constexpr int NUMBERS = SUMS / 2;  // of a key, or of a head, whose sums for two vectors of queries are made at once

// Rows of a tile as floats [WIDE_TILE][D].
template <class C>
void widen_rows(const Rows<C> &rows, int count, int head_dim, float *to) {
    for (int j = 0; j < count; j++) {
        float scale = 1.0f;
        if constexpr (std::is_same_v<C, int8_t>) scale = scale_of(rows[j], head_dim);
        for (int d = 0; d < head_dim; d += LANES) store(to + j * head_dim + d, load(rows[j] + d) * scale);
    }
}

// Keys of 8 bits as bfloat16 [WIDE_TILE][D], which has room for all of their bits, and without their scales.
inline void narrow_rows(const Rows<int8_t> &rows, int head_dim, float *to) {
    for (int j = 0; j < WIDE_TILE; j++)
        for (int d = 0; d < head_dim; d += LANES) store(reinterpret_cast<bf16 *>(to) + j * head_dim + d, load(rows[j] + d));
}

// Values as pairs of neighbouring keys [WIDE_TILE / 2][D], without scales.
template <class C>
void pair_rows(const Rows<C> &rows, int count, int head_dim, float *to) {
    for (int j = 0; j < count; j += 2)
        for (int d = 0; d < head_dim; d += LANES) {
            const vf first = load(rows[j] + d), second = load(rows[j + 1] + d);
            store(to + j / 2 * head_dim + d, bit_cast<vf>(bit_cast<vu>(first) >> 16 | bit_cast<vu>(second)));
        }
}

// Sums of `num` steps for NUMBERS numbers and W vectors of queries: step by step, numbers[n * number_stride + step *
// step_stride] times the queries at x + step * x_stride. With DOTS numbers and queries are pairs.
template <bool DOTS, int W>
inline void multiply(const float *numbers, int64_t number_stride, int64_t step_stride, int num, const float *x, int64_t x_stride, vf (&sums)[NUMBERS][W]) {
#pragma GCC unroll 1
    for (int step = 0; step < num; step++) {
        vf factors[W];
#pragma GCC unroll 2
        for (int w = 0; w < W; w++) factors[w] = load(x + step * x_stride + w * LANES);
#pragma GCC unroll 8
        for (int n = 0; n < NUMBERS; n++) {
            const float *const number = numbers + n * number_stride + step * step_stride;
            if constexpr (DOTS) {
                int32_t pair;
                std::memcpy(&pair, number, sizeof pair);
#pragma GCC unroll 2
                for (int w = 0; w < W; w++) sums[n][w] = dots::add(sums[n][w], bit_cast<vi>(factors[w]), pair + vi{});
            } else {
#pragma GCC unroll 2
                for (int w = 0; w < W; w++) sums[n][w] += *number * factors[w];
            }
        }
    }
}

// The same of a tile's bfloat16 keys where they lie: of those from `first` on, `num` pairs.
template <int W, class C>
inline void multiply_rows(const Rows<C> &k, int first, int num, const float *q, int64_t num_queries, vf (&sums)[NUMBERS][W]) {
    for (int d = 0; d < num; d++) {
        vi factors[W];
#pragma GCC unroll 2
        for (int w = 0; w < W; w++) factors[w] = bit_cast<vi>(load(q + d * num_queries + w * LANES));
#pragma GCC unroll 8
        for (int n = 0; n < NUMBERS; n++) {
            int32_t pair;
            std::memcpy(&pair, k[first + n] + 2 * d, sizeof pair);
#pragma GCC unroll 2
            for (int w = 0; w < W; w++) sums[n][w] = dots::add(sums[n][w], factors[w], pair + vi{});
        }
    }
}

// Which queries of a vector see which keys of a tile.
struct SeenBy {
    vi first, stop;
    bool none, all;
};

inline SeenBy seen_by(const int32_t *limits, const Rule &rule, int start, int count) {
    SeenBy seen;
    vi limit;
    std::memcpy(&limit, limits, sizeof limit);
    seen.stop = limit - start;
    seen.stop = seen.stop < count ? seen.stop : vi{} + count;
    seen.first = rule.window ? limit - rule.window - start : vi{};
    seen.none = !any((seen.first < seen.stop) & (seen.stop > 0));
    seen.all = !any((seen.first > 0) | (seen.stop < count));
    return seen;
}

// W vectors of queries against a tile that is widened: weights of all keys, then their sums of values. Queries that see no
// key of it are as in attend_few.
template <class C, bool DOTS, int W>
void attend_vectors(Scratch &s, const Rows<C> &k, [[maybe_unused]] const Rows<C> &v, int64_t num_queries, const float *q, float *out, float *best, float *sum,
                    const SeenBy *seen, const Rule &rule, int count, int head_dim) {
    constexpr int WIDTH = W * LANES;
    constexpr bool IS_INT8 = std::is_same_v<C, int8_t>;
    const int key_size = DOTS ? head_dim / 2 : head_dim;
    float *const weights = s.weights;  // [WIDE_TILE][WIDTH]
    vf top[W];
#pragma GCC unroll 2
    for (int w = 0; w < W; w++) top[w] = load(best + w * LANES);
    const int rows = (count + NUMBERS - 1) / NUMBERS * NUMBERS;
    for (int first = 0; first < rows; first += NUMBERS) {
        vf sums[NUMBERS][W] = {};
        if constexpr (DOTS && !IS_INT8)
            multiply_rows<W>(k, first, head_dim / 2, q, num_queries, sums);
        else
            multiply<DOTS, W>(s.keys + first * key_size, key_size, 1, key_size, q, num_queries, sums);
#pragma GCC unroll 8
        for (int n = 0; n < NUMBERS; n++)
#pragma GCC unroll 2
            for (int w = 0; w < W; w++) {
                vf score = sums[n][w];
                if constexpr (DOTS) score *= rule.scale * scale_of(k[first + n], head_dim);
                if (rule.softcap > 0) score = tanh_of(score / rule.softcap) * rule.softcap;
                if (!seen[w].all || first + n >= count) score = (first + n >= seen[w].first) & (first + n < seen[w].stop) ? score : splat(LOWEST);
                top[w] = larger(top[w], score);
                store(weights + (first + n) * WIDTH + w * LANES, score);
            }
    }
    vf shrink[W], total[W];
#pragma GCC unroll 2
    for (int w = 0; w < W; w++) {
        if constexpr (DOTS) top[w] = whole_power(top[w]);
        shrink[w] = exp_of(load(best + w * LANES) - top[w]), total[w] = load(sum + w * LANES) * shrink[w];
        store(best + w * LANES, top[w]);
    }
    if constexpr (DOTS)
        for (int j = 0; j < count; j += 2)
#pragma GCC unroll 2
            for (int w = 0; w < W; w++) {
                const float *const at = weights + j * WIDTH + w * LANES;
                vf even = exp_of(load(at) - top[w]), odd = j + 1 < count ? exp_of(load(at + WIDTH) - top[w]) : vf{};
                total[w] += even + odd;
                if constexpr (IS_INT8) even *= scale_of(v[j], head_dim), odd *= scale_of(v[j + 1], head_dim);
                store_pair(reinterpret_cast<bf16 *>(weights + j / 2 * WIDTH + w * LANES), even, odd);
            }
    else
        for (int j = 0; j < count; j++)
#pragma GCC unroll 2
            for (int w = 0; w < W; w++) {
                float *const at = weights + j * WIDTH + w * LANES;
                const vf weight = exp_of(load(at) - top[w]);
                total[w] += weight;
                store(at, weight);
            }
#pragma GCC unroll 2
    for (int w = 0; w < W; w++) store(sum + w * LANES, total[w]);
    for (int d = 0; d < head_dim; d += NUMBERS) {
        vf sums[NUMBERS][W];
#pragma GCC unroll 8
        for (int n = 0; n < NUMBERS; n++)
#pragma GCC unroll 2
            for (int w = 0; w < W; w++) sums[n][w] = load(out + (d + n) * num_queries + w * LANES) * shrink[w];
        multiply<DOTS, W>(s.values + d, 1, head_dim, DOTS ? (count + 1) / 2 : count, weights, WIDTH, sums);
#pragma GCC unroll 8
        for (int n = 0; n < NUMBERS; n++)
#pragma GCC unroll 2
            for (int w = 0; w < W; w++) store(out + (d + n) * num_queries + w * LANES, sums[n][w]);
    }
}

// All queries of one kv head. limits [Q]; q, out [D][Q]; best, sum [Q]
template <class C, bool DOTS>
void attend_many(Scratch &s, const Rows<C> &k, const Rows<C> &v, int64_t num_queries, const int32_t *limits, const float *q, float *out, float *best, float *sum,
                 const Rule &rule, int start, int count, int head_dim) {
    if constexpr (DOTS) {
        if constexpr (std::is_same_v<C, int8_t>) narrow_rows(k, head_dim, s.keys);
        pair_rows(v, count, head_dim, s.values);
    } else {
        widen_rows(k, WIDE_TILE, head_dim, s.keys), widen_rows(v, count, head_dim, s.values);
    }
    for (int64_t at = 0; at < num_queries;) {
        SeenBy seen[2];
        const bool two = at + 2 * LANES <= num_queries;
        seen[0] = seen_by(limits + at, rule, start, count);
        if (two) seen[1] = seen_by(limits + at + LANES, rule, start, count);
        if (!(seen[0].none && (!two || seen[1].none))) {  // else all keys lie before what these queries see, or behind it
            if (two)
                attend_vectors<C, DOTS, 2>(s, k, v, num_queries, q + at, out + at, best + at, sum + at, seen, rule, count, head_dim);
            else
                attend_vectors<C, DOTS, 1>(s, k, v, num_queries, q + at, out + at, best + at, sum + at, seen, rule, count, head_dim);
        }
        at += two ? 2 * LANES : LANES;
    }
}

}  // namespace attention
