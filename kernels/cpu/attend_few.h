// A few queries of one kv head, as a decoding row has: keys and values are read where they lie, and each is used for all of
// the queries while it is in registers. A lane is a part of the head.
#pragma once
#include "attend_bytes.h"
#include "dots.h"

namespace attention {

constexpr int TOGETHER = 4;     // kv heads
constexpr int FEW = LANES / 2;  // queries of a kv head, at most; more fill a vector

// Those of the numbers of 8 bits that lie `place` bytes behind the rows.
inline void scales_of(const Rows<int8_t> &rows, int64_t place, vf (&scales)[PARTS]) {
    alignas(64) float all[TILE];
    for (int j = 0; j < TILE; j++) all[j] = scale_of(rows[j], place);
    for (int part = 0; part < PARTS; part++) scales[part] = load(all + part * LANES);
}

// Scores [N][TILE] of N queries q [N][D] and the tile's keys. DOTS: the queries are bfloat16 as well, and not yet scaled. Of keys
// of 8 bits the first `whole` numbers are multiplied as bytes.
template <class C, bool DOTS, int N>
inline void scores_of(const float *q, int head_dim, int whole, const Rows<C> &k, float scale, float *scores) {
    [[maybe_unused]] vf k_scales[PARTS];
    if constexpr (OF_BYTES<C>) scales_of(k, head_dim, k_scales);
    constexpr int KEYS = std::min(LANES, SUMS / N);
    constexpr bool IS_SPLIT = OF_BYTES<C> && N <= IN_BYTES;
    const int begin = IS_SPLIT ? whole : 0, paired = begin + ((head_dim - begin) & ~(2 * LANES - 1));
#pragma GCC unroll 1
    for (int part = 0; part < PARTS; part++) {
        [[maybe_unused]] vf of_bytes[N] = {};
        if constexpr (IS_SPLIT) {
            if (whole) scores_of_bytes(q, head_dim, whole, k, part * LANES, of_bytes);
            if (whole == head_dim) {
                for (int i = 0; i < N; i++) store(scores + i * TILE + part * LANES, of_bytes[i] * k_scales[part]);
                continue;
            }
        }
        vf rows[N][LANES];
#pragma GCC unroll 1
        for (int first = 0; first < LANES; first += KEYS) {
            const int at = part * LANES + first;
            vf sums[N][KEYS] = {};
#pragma GCC unroll 1
            for (int d = begin; d < paired; d += 2 * LANES) {
#pragma GCC unroll 16
                for (int j = 0; j < KEYS; j++) {
                    if constexpr (DOTS) {
                        vi key;
                        std::memcpy(&key, k[at + j] + d, sizeof key);
#pragma GCC unroll 4
                        for (int i = 0; i < N; i++) sums[i][j] = dots::add(sums[i][j], bit_cast<vi>(load(q + i * head_dim + d / 2)), key);
                    } else {
                        vf a, b;
                        load_pair(k[at + j] + d, a, b);
#pragma GCC unroll 4
                        for (int i = 0; i < N; i++) sums[i][j] += load(q + i * head_dim + d) * a, sums[i][j] += load(q + i * head_dim + d + LANES) * b;
                    }
                }
            }
            if (paired < head_dim)
#pragma GCC unroll 16
                for (int j = 0; j < KEYS; j++)
#pragma GCC unroll 4
                    for (int i = 0; i < N; i++) {
                        const float *from = q + i * head_dim;
                        const vf rest = DOTS ? load(reinterpret_cast<const bf16 *>(from) + paired) : load(from + paired);
                        sums[i][j] += rest * load(k[at + j] + paired);
                    }
#pragma GCC unroll 4
            for (int i = 0; i < N; i++)
#pragma GCC unroll 16
                for (int j = 0; j < KEYS; j++) rows[i][first + j] = sums[i][j];
        }
#pragma GCC unroll 4
        for (int i = 0; i < N; i++) {
            vf sums = sums_of(rows[i]);
            if constexpr (DOTS) sums *= scale;
            if constexpr (IS_SPLIT) sums += of_bytes[i];
            if constexpr (OF_BYTES<C>) sums *= k_scales[part];
            store(scores + i * TILE + part * LANES, sums);
        }
    }
}

// Turn a query's scores of one tile into weights [TILE]; rescale what it has summed when a larger score turns up. For a query
// that sees none of the keys every weight is the same and wrong, until a tile that it does see shrinks them to nothing. `sums`
// [LANES] are of its weights, and `best` is the exponent that is taken off all.
template <bool ROUNDED>
inline void soften(float *weights, Seen seen, float softcap, int head_dim, float &best, float *sums, float *out) {
    vf scores[PARTS];
    const vi lane = lane_numbers();
    vf most = splat(LOWEST);
#pragma GCC unroll 8
    for (int part = 0; part < PARTS; part++) {
        vf &some = scores[part];
        some = load(weights + part * LANES);
        if (softcap > 0) some = tanh_of(some / softcap) * softcap;
        if (seen.stop < TILE) some = lane + part * LANES < seen.stop ? some : splat(LOWEST);
        if (seen.first > 0) some = lane + part * LANES >= seen.first ? some : splat(LOWEST);
        most = larger(most, some);
    }
    if (any(most > best)) {
        float top = max_of(most);
        if constexpr (ROUNDED) top = whole_above(splat(top))[0];
        const float shrink = std::exp2(best - top);
        store(sums, load(sums) * shrink);
        for (int d = 0; d < head_dim; d += LANES) store(out + d, load(out + d) * shrink);
        best = top;
    }
    vf all = load(sums);
#pragma GCC unroll 8
    for (int part = 0; part < PARTS; part++) {
        const vf some = exp2_of(scores[part] - best);
        all += some;
        store(weights + part * LANES, some);
    }
    store(sums, all);
}

// out [N][D] += weights [N][TILE] * values, over PAIRS pairs of vectors of the head
template <class C, int N, int PAIRS>
inline void add_values(const Rows<C> &v, int count, int d, const float *weights, int head_dim, float *out) {
    constexpr int CHAINS = N == 1 ? 2 : 1;  // of sums: one would have each wait for the one before
    vf sums[CHAINS][N][2 * PAIRS] = {};
    const auto add = [&](int chain, int j) {
#pragma GCC unroll 4
        for (int w = 0; w < PAIRS; w++) {
            vf a, b;
            load_pair(v[j] + d + 2 * w * LANES, a, b);
#pragma GCC unroll 4
            for (int i = 0; i < N; i++) {
                sums[chain][i][2 * w] += weights[i * TILE + j] * a;
                sums[chain][i][2 * w + 1] += weights[i * TILE + j] * b;
            }
        }
    };
    int j = 0;
    for (; j + CHAINS <= count; j += CHAINS) {
#pragma GCC unroll 2
        for (int chain = 0; chain < CHAINS; chain++) add(chain, j + chain);
    }
    if (j < count) add(0, j);
#pragma GCC unroll 4
    for (int i = 0; i < N; i++)
#pragma GCC unroll 4
        for (int w = 0; w < 2 * PAIRS; w++) {
            float *to = out + i * head_dim + d + w * LANES;
            vf all = load(to);
#pragma GCC unroll 2
            for (int chain = 0; chain < CHAINS; chain++) all += sums[chain][i][w];
            store(to, all);
        }
}

// out [N][D] += weights [N][TILE] * values. Weights of values that have scales are multiplied by those. ROUNDED: to bfloat16, as
// those of many queries are.
template <class C, int N, bool ROUNDED>
inline void add_all_values(const Rows<C> &v, int count, float *weights, int head_dim, int whole, float *out) {
    if constexpr (OF_BYTES<C>) {
        vf v_scales[PARTS];
        scales_of(v, head_dim, v_scales);
        for (int part = 0; part < N * PARTS; part++) store(weights + part * LANES, load(weights + part * LANES) * v_scales[part % PARTS]);
    }
    if constexpr (ROUNDED)
        for (int part = 0; part < N * PARTS; part++) store(weights + part * LANES, rounded<bf16>(load(weights + part * LANES)));
    constexpr int PAIRS = std::max(1, std::min(2, SUMS / 2 / N));
    int d = 0;
    if constexpr (OF_BYTES<C> && N <= IN_BYTES) {
        d = whole;
        constexpr int SOME = std::min(N, SUMS / 8);  // what is summed of a query takes eight registers
        if (whole)
            for (int i = 0; i < N; i += SOME) add_byte_values<SOME>(v, count, weights + i * TILE, head_dim, whole, out + i * head_dim);
    }
    for (; d + 2 * PAIRS * LANES <= head_dim; d += 2 * PAIRS * LANES) add_values<C, N, PAIRS>(v, count, d, weights, head_dim, out);
    for (; d + 2 * LANES <= head_dim; d += 2 * LANES) add_values<C, N, 1>(v, count, d, weights, head_dim, out);
    if (d < head_dim)
        for (int i = 0; i < N; i++) {
            vf total = load(out + i * head_dim + d);
            for (int j = 0; j < count; j++) total += weights[i * TILE + j] * load(v[j] + d);
            store(out + i * head_dim + d, total);
        }
}

}  // namespace attention
