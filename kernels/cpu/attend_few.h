// A few queries of one kv head, as a decoding row has: keys and values are read where they lie, and each is used for all of
// the queries while it is in registers. A lane is a part of the head.
#pragma once
#include "attention.h"
#include "dots.h"

namespace attention {

constexpr int FEW = LANES / 2;  // queries of a kv head, at most; more fill a vector

// Scores of N queries q [N][D] and the tile's keys. DOTS: the queries are bfloat16 as well.
template <class C, bool DOTS, int N>
inline void scores_of(const float *q, int head_dim, const Rows<C> &k, vf (&scores)[N][PARTS]) {
    constexpr int KEYS = std::min(LANES, SUMS / N);
    const int paired = head_dim & ~(2 * LANES - 1);
#pragma GCC unroll 1
    for (int part = 0; part < PARTS; part++) {
        vf rows[N][LANES];
#pragma GCC unroll 1
        for (int first = 0; first < LANES; first += KEYS) {
            const int at = part * LANES + first;
            vf sums[N][KEYS] = {};
#pragma GCC unroll 1
            for (int d = 0; d < paired; d += 2 * LANES) {
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
        for (int i = 0; i < N; i++) scores[i][part] = sums_of(rows[i]);
    }
}

// Turn a query's scores of one tile into weights; rescale what it has summed when a larger score turns up.
inline void soften(vf (&scores)[PARTS], Seen seen, float softcap, int head_dim, float &best, float &sum, float *out) {
    const vi lane = lane_numbers();
    vf most = splat(LOWEST);
#pragma GCC unroll 8
    for (int part = 0; part < PARTS; part++) {
        vf &some = scores[part];
        if (softcap > 0) some = tanh_of(some / softcap) * softcap;
        if (seen.stop < TILE) some = lane + part * LANES < seen.stop ? some : splat(LOWEST);
        if (seen.first > 0) some = lane + part * LANES >= seen.first ? some : splat(LOWEST);
        most = larger(most, some);
    }
    const float top = max_of(most);
    if (top > best) {
        const float shrink = std::exp(best - top);
        sum *= shrink;
        for (int d = 0; d < head_dim; d += LANES) store(out + d, load(out + d) * shrink);
        best = top;
    }
    vf all = {};
#pragma GCC unroll 8
    for (int part = 0; part < PARTS; part++) scores[part] = exp_of(scores[part] - best), all += scores[part];
    sum += sum_of(all);
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

// N queries, of which query i sees the keys seen[i]. For a query that sees none of them every weight is the same and wrong,
// until a tile that it does see shrinks them to nothing.
template <class C, bool DOTS, int N>
inline void attend_few(Scratch &s, size_t query, const Rows<C> &k, const Rows<C> &v, const Seen *seen, const Rule &rule, int count, int head_dim) {
    vf scores[N][PARTS];
    float *out = s.out.data() + query * head_dim;
    scores_of<C, DOTS, N>(s.q.data() + query * head_dim, head_dim, k, scores);
    alignas(64) float v_scales[TILE];
    if constexpr (std::is_same_v<C, int8_t>) {
        alignas(64) float k_scales[TILE];
        for (int j = 0; j < TILE; j++) k_scales[j] = scale_of(k[j], head_dim), v_scales[j] = scale_of(v[j], head_dim);
        for (int i = 0; i < N; i++)
            for (int part = 0; part < PARTS; part++) scores[i][part] *= load(k_scales + part * LANES);
    }
    for (int i = 0; i < N; i++) {
        if constexpr (DOTS)
            for (int part = 0; part < PARTS; part++) scores[i][part] *= rule.scale;
        soften(scores[i], seen[i], rule.softcap, head_dim, s.best[query + i], s.sum[query + i], out + i * head_dim);
        for (int part = 0; part < PARTS; part++)
            store(s.weights + i * TILE + part * LANES, std::is_same_v<C, int8_t> ? scores[i][part] * load(v_scales + part * LANES) : scores[i][part]);
    }
    constexpr int PAIRS = std::max(1, std::min(2, SUMS / 2 / N));
    int d = 0;
    for (; d + 2 * PAIRS * LANES <= head_dim; d += 2 * PAIRS * LANES) add_values<C, N, PAIRS>(v, count, d, s.weights, head_dim, out);
    for (; d + 2 * LANES <= head_dim; d += 2 * LANES) add_values<C, N, 1>(v, count, d, s.weights, head_dim, out);
    if (d < head_dim)
        for (int i = 0; i < N; i++) {
            vf total = load(out + i * head_dim + d);
            for (int j = 0; j < count; j++) total += s.weights[i * TILE + j] * load(v[j] + d);
            store(out + i * head_dim + d, total);
        }
}

}  // namespace attention
