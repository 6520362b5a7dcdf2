// Many queries of one kv head, as extends and rows that share a prefix have: a lane is a query. Keys and values are
// widened once for all of them and then need no turning, because each of their numbers meets all queries of a vector.
//
// Q queries of the kv head, rounded up to whole vectors. Queries and sums are [D][Q]. With dots and tiles two numbers of bfloat16
// are in each lane: of neighbours in the head for scores, so that queries are [D / 2][Q], and of neighbouring keys for values.
#pragma once
#include "attend_tiles.h"
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

// The queries of a kv head are computed by so many, or twice as many.
template <Products MADE>
constexpr int UNIT = MADE == IN_TILES ? 16 : LANES;

// Numbers of a key that registers are filled with: zeros are behind the head's.
inline int inputs_of(int head_dim) { return (head_dim + 31) / 32 * 32; }

// Keys as bfloat16 [WIDE_TILE][width], which has room for all of the bits of 8-bit numbers; without their scales.
template <class C>
void copy_rows(const Rows<C> &rows, int head_dim, int width, float *to) {
    for (int j = 0; j < WIDE_TILE; j++) {
        bf16 *const key = reinterpret_cast<bf16 *>(to) + j * width;
        for (int d = 0; d < head_dim; d += LANES) store(key + d, load(rows[j] + d));
        std::memset(key + head_dim, 0, (width - head_dim) * sizeof(bf16));
    }
}

// Values as pairs of neighbouring keys [WIDE_TILE / 2][D], without scales.
template <class C>
void pair_rows(const Rows<C> &rows, int count, int head_dim, float *to) {
    for (int j = 0; j < count; j += 2, to += head_dim) {
        int d = 0;
        for (; d + 2 * LANES <= head_dim; d += 2 * LANES) {
            vf first, second;
            interleave(rows[j] + d, rows[j + 1] + d, first, second);
            store(to + d, first), store(to + d + LANES, second);
        }
        if (d < head_dim) store(to + d, bit_cast<vf>(bit_cast<vu>(load(rows[j] + d)) >> 16 | bit_cast<vu>(load(rows[j + 1] + d))));
    }
}

// Such pairs [WIDE_TILE / 2][D], turned.
inline void turn_pairs(const float *from, int head_dim, float *to) {
    constexpr int pairs = WIDE_TILE / 2;
    for (int pair = 0; pair < pairs; pair += LANES)
        for (int d = 0; d < head_dim; d += LANES) turn(from + pair * head_dim + d, head_dim, to + d * pairs + pair, pairs);
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
                for (int w = 0; w < W; w++) add_product(sums[n][w], splat(*number), factors[w]);
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

inline SeenBy seen_by(const int32_t *limits, const int32_t *owns, const Rule &rule, int start, int count) {
    SeenBy seen;
    vi limit, own;
    std::memcpy(&limit, limits, sizeof limit), std::memcpy(&own, owns, sizeof own);
    seen.stop = limit - start;
    seen.stop = seen.stop < count ? seen.stop : vi{} + count;
    seen.first = rule.window ? own - rule.window - start : vi{};
    seen.none = !any((seen.first < seen.stop) & (seen.stop > 0));
    seen.all = !any((seen.first > 0) | (seen.stop < count));
    return seen;
}

// W vectors of queries against a tile that is widened: weights of all keys, then their sums of values. Queries that see no
// key of it are as in attend_few.
template <class C, Products MADE, int W>
void attend_vectors(Scratch &s, const Rows<C> &k, [[maybe_unused]] const Rows<C> &v, int64_t num_queries, const float *q, float *out, float *best, float *sum,
                    const SeenBy *seen, const Rule &rule, int count, int head_dim) {
    constexpr int WIDTH = W * LANES;
    constexpr bool PAIRED = MADE != IN_FLOATS, IS_INT8 = std::is_same_v<C, int8_t>;
    float *const weights = s.weights;  // [WIDE_TILE][WIDTH]
    vf top[W];
#pragma GCC unroll 2
    for (int w = 0; w < W; w++) top[w] = load(best + w * LANES);
    const auto put_score = [&](int j, int w, vf score) {
        if constexpr (PAIRED) score *= rule.scale * scale_of(k[j], head_dim);
        if (rule.softcap > 0) score = tanh_of(score / rule.softcap) * rule.softcap;
        if (!seen[w].all || j >= count) score = (j >= seen[w].first) & (j < seen[w].stop) ? score : splat(LOWEST);
        top[w] = larger(top[w], score);
        store(weights + j * WIDTH + w * LANES, score);
    };
    if constexpr (MADE == IN_TILES) {
#if RAMET_TILES
        scores_by_tiles<WIDTH>(reinterpret_cast<const bf16 *>(s.keys), inputs_of(head_dim), q, num_queries, weights);
        for (int j = 0; j < count; j++)
#pragma GCC unroll 8
            for (int w = 0; w < W; w++) put_score(j, w, load(weights + j * WIDTH + w * LANES));
#endif
    } else {
        const int rows = (count + NUMBERS - 1) / NUMBERS * NUMBERS, width = PAIRED ? head_dim / 2 : head_dim;
        for (int first = 0; first < rows; first += NUMBERS) {
            vf sums[NUMBERS][W] = {};
            if constexpr (PAIRED && !IS_INT8)
                multiply_rows<W>(k, first, width, q, num_queries, sums);
            else
                multiply<PAIRED, W>(s.keys + first * width, width, 1, width, q, num_queries, sums);
#pragma GCC unroll 8
            for (int n = 0; n < NUMBERS; n++)
#pragma GCC unroll 2
                for (int w = 0; w < W; w++) put_score(first + n, w, sums[n][w]);
        }
    }
    vf shrink[W], total[W];
#pragma GCC unroll 2
    for (int w = 0; w < W; w++) {
        if constexpr (PAIRED) top[w] = whole_above(top[w]);
        shrink[w] = exp2_of(load(best + w * LANES) - top[w]), total[w] = load(sum + w * LANES) * shrink[w];
        store(best + w * LANES, top[w]);
    }
    if constexpr (PAIRED)
        for (int j = 0; j < count; j += 2)
#pragma GCC unroll 2
            for (int w = 0; w < W; w++) {
                const float *const at = weights + j * WIDTH + w * LANES;
                vf even = exp2_of(load(at) - top[w]), odd = j + 1 < count ? exp2_of(load(at + WIDTH) - top[w]) : vf{};
                total[w] += even + odd;
                if constexpr (IS_INT8) even *= scale_of(v[j], head_dim), odd *= scale_of(v[j + 1], head_dim);
                store_pair(reinterpret_cast<bf16 *>(weights + j / 2 * WIDTH + w * LANES), even, odd);
            }
    else
        for (int j = 0; j < count; j++)
#pragma GCC unroll 2
            for (int w = 0; w < W; w++) {
                float *const at = weights + j * WIDTH + w * LANES;
                const vf weight = exp2_of(load(at) - top[w]);
                total[w] += weight;
                store(at, weight);
            }
#pragma GCC unroll 2
    for (int w = 0; w < W; w++) store(sum + w * LANES, total[w]);
    if constexpr (MADE == IN_TILES) {
#if RAMET_TILES
        const int used = (count + 1) / 2 * WIDTH;
        std::fill(weights + used, weights + WIDE_TILE / 2 * WIDTH, 0.0f);
        add_values_by_tiles<WIDTH>(s.values, head_dim, weights, shrink, out, num_queries);
#endif
        return;
    }
    for (int d = 0; d < head_dim; d += NUMBERS) {
        vf sums[NUMBERS][W];
#pragma GCC unroll 8
        for (int n = 0; n < NUMBERS; n++)
#pragma GCC unroll 2
            for (int w = 0; w < W; w++) sums[n][w] = load(out + (d + n) * num_queries + w * LANES) * shrink[w];
        multiply<PAIRED, W>(s.values + d, 1, head_dim, PAIRED ? (count + 1) / 2 : count, weights, WIDTH, sums);
#pragma GCC unroll 8
        for (int n = 0; n < NUMBERS; n++)
#pragma GCC unroll 2
            for (int w = 0; w < W; w++) store(out + (d + n) * num_queries + w * LANES, sums[n][w]);
    }
}

// All queries of one kv head. limits, owns [Q]; q, out [D][Q]; best, sum [Q]
template <class C, Products MADE>
void attend_many(Scratch &s, const Rows<C> &k, const Rows<C> &v, int64_t num_queries, const int32_t *limits, const int32_t *owns, const float *q, float *out,
                 float *best, float *sum, const Rule &rule, int start, int count, int head_dim) {
    if constexpr (MADE == IN_TILES) {
        copy_rows(k, head_dim, inputs_of(head_dim), s.keys);
        pair_rows(v, WIDE_TILE, head_dim, s.turned_values);
        turn_pairs(s.turned_values, head_dim, s.values);
    } else if constexpr (MADE == IN_DOTS) {
        if constexpr (std::is_same_v<C, int8_t>) copy_rows(k, head_dim, head_dim, s.keys);
        pair_rows(v, count, head_dim, s.values);
    } else {
        widen_rows(k, WIDE_TILE, head_dim, s.keys), widen_rows(v, count, head_dim, s.values);
    }
    constexpr int VECTORS = UNIT<MADE> / LANES;
    for (int64_t at = 0; at < num_queries;) {
        SeenBy seen[2 * VECTORS];
        const bool two = at + 2 * UNIT<MADE> <= num_queries;
        const int num = two ? 2 * VECTORS : VECTORS;
        bool none = true;  // of these queries sees a key: all lie before what they see, or behind it
        for (int w = 0; w < num; w++) seen[w] = seen_by(limits + at + w * LANES, owns + at + w * LANES, rule, start, count), none &= seen[w].none;
        if (!none) {
            if (two)
                attend_vectors<C, MADE, 2 * VECTORS>(s, k, v, num_queries, q + at, out + at, best + at, sum + at, seen, rule, count, head_dim);
            else
                attend_vectors<C, MADE, VECTORS>(s, k, v, num_queries, q + at, out + at, best + at, sum + at, seen, rule, count, head_dim);
        }
        at += num * LANES;
    }
}

}  // namespace attention
