// Attention over a paged KV pool on the CPU: items of work, each a set of query tokens against one run of key positions.
//
// Decides how an item is computed, not which items there are (the caller plans them). One plan serves a decoding row, a
// long row cut in pieces, rows that share a prefix (its keys are read once for all of them) and short extends (each
// query stops at its own position). Keys are read a token at a time over all heads, so memory is read in long runs.
// Partial results of cut rows are merged by their log-sum-exp (Dao et al. 2022, FlashAttention; Ye et al. 2025,
// FlashInfer, for shared prefixes). Arithmetic is float32.
//
// T tokens, H query heads, G kv heads, D head size (a multiple of 16), S slots.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <type_traits>
#include <vector>

#include "plan.h"
#include "pool.h"
#include "replay.h"
#include "vector.h"

// What a layer does with its scores.
struct Rule {
    float scale;
    int32_t window;  // keys that a query sees, its own included; 0: all before it
    float softcap;   // scaled scores s become softcap * tanh(s / softcap); 0: they stay
};

namespace {

constexpr int TILE = 2 * LANES;  // keys computed at once
constexpr int MAX_HEAD_DIM = 256;
constexpr int CHUNK = 4;         // vectors of the head that are accumulated in registers
constexpr float LOWEST = -1e30f; // instead of minus infinity: differences stay finite

// One item's queries, weights and sums for all heads; grows once and stays with its thread.
struct Scratch {
    std::vector<float> q, out, best, sum;
    alignas(64) float keys[TILE * MAX_HEAD_DIM];   // [D][TILE], transposed
    alignas(64) float values[TILE * MAX_HEAD_DIM]; // [TILE][D]
    alignas(64) float weights[4 * TILE];
    void fit(size_t queries, size_t head_dim) {
        if (q.size() < queries * head_dim + LANES) q.resize(queries * head_dim + LANES), out.resize(queries * head_dim + LANES);
        if (best.size() < queries) best.resize(queries), sum.resize(queries);
    }
};

thread_local Scratch scratch;

// A head's values as floats in the order of load_pair, the last 16 of an odd size as they are.
template <class T>
inline void widen(const T *from, float *to, int head_dim, float scale = 1.0f) {
    int d = 0;
    for (; d + 2 * LANES <= head_dim; d += 2 * LANES) {
        vf a, b;
        load_pair(from + d, a, b);
        store_pair(to + d, a * scale, b * scale);
    }
    if (d < head_dim) store(to + d, load(from + d) * scale);
}

// The way back.
template <class T>
inline void narrow(const float *from, T *to, int head_dim, float scale) {
    int d = 0;
    for (; d + 2 * LANES <= head_dim; d += 2 * LANES) store_pair(to + d, load(from + d) * scale, load(from + d + LANES) * scale);
    if (d < head_dim) store(to + d, load(from + d) * scale);
}

template <class T>
void widen_rows(const T *const *rows, int count, int head_dim, float *to) {
    for (int j = 0; j < count; j++) widen(rows[j], to + j * head_dim, head_dim);
}

// [TILE, D] -> [D, TILE]
void turn(const float *rows, int head_dim, float *columns) {
    for (int d = 0; d < head_dim; d += LANES)
        for (int half = 0; half < TILE; half += LANES) {
            vf block[LANES];
#pragma GCC unroll 16
            for (int j = 0; j < LANES; j++) block[j] = load(rows + (half + j) * head_dim + d);
            transpose(block);
#pragma GCC unroll 16
            for (int j = 0; j < LANES; j++) store(columns + (d + j) * TILE + half, block[j]);
        }
}

// The keys [first, stop) of a tile, counted from its start, that one query sees; [0, TILE) is the most.
struct Seen {
    int first, stop;
};

inline Seen seen_of(int32_t limit, const Rule &rule, int start, int count) {
    return {rule.window ? std::max(0, limit - rule.window - start) : 0, std::min(count, limit - start)};
}

// Turn a query's scores of one tile into weights; rescale what it has summed when a larger score turns up.
inline void soften(vf low, vf high, Seen seen, float softcap, int head_dim, float &best, float &sum, float *out, float *weights) {
    const vi lane = lane_numbers();
    if (softcap > 0) low = tanh_of(low / softcap) * softcap, high = tanh_of(high / softcap) * softcap;
    if (seen.stop < TILE) {
        low = lane < seen.stop ? low : splat(LOWEST);
        high = lane + LANES < seen.stop ? high : splat(LOWEST);
    }
    if (seen.first > 0) {
        low = lane >= seen.first ? low : splat(LOWEST);
        high = lane + LANES >= seen.first ? high : splat(LOWEST);
    }
    const float top = max_of(larger(low, high));
    if (top > best) {
        const float shrink = std::exp(best - top);
        sum *= shrink;
        for (int d = 0; d < head_dim; d += LANES) store(out + d, load(out + d) * shrink);
        best = top;
    }
    low = exp_of(low - best), high = exp_of(high - best);
    sum += sum_of(low + high);
    store(weights, low), store(weights + LANES, high);
}

// `N` queries of one kv head against a widened tile, of which query i sees the keys seen[i]. For a query that sees none
// of them every weight is the same and wrong, until a tile that it does see shrinks them to nothing.
template <int N>
void attend_block(Scratch &s, size_t query, const Seen *seen, float softcap, int count, int head_dim) {
    vf low[N] = {}, high[N] = {};
    const float *q = s.q.data() + query * head_dim;
    for (int d = 0; d < head_dim; d++) {
        const vf k0 = load(s.keys + d * TILE), k1 = load(s.keys + d * TILE + LANES);
#pragma GCC unroll 4
        for (int i = 0; i < N; i++) low[i] += q[i * head_dim + d] * k0, high[i] += q[i * head_dim + d] * k1;
    }
    float *out = s.out.data() + query * head_dim;
#pragma GCC unroll 4
    for (int i = 0; i < N; i++)
        soften(low[i], high[i], seen[i], softcap, head_dim, s.best[query + i], s.sum[query + i], out + i * head_dim, s.weights + i * TILE);
    for (int d = 0; d < head_dim; d += CHUNK * LANES) {
        const int vectors = std::min(CHUNK, (head_dim - d) / LANES);
        auto accumulate = [&](auto width) {
            constexpr int W = decltype(width)::value;
            vf acc[N][W];
#pragma GCC unroll 4
            for (int i = 0; i < N; i++)
#pragma GCC unroll 4
                for (int w = 0; w < W; w++) acc[i][w] = load(out + i * head_dim + d + w * LANES);
            for (int j = 0; j < count; j++) {
                const float *v = s.values + j * head_dim + d;
#pragma GCC unroll 4
                for (int w = 0; w < W; w++) {
                    const vf x = load(v + w * LANES);
#pragma GCC unroll 4
                    for (int i = 0; i < N; i++) acc[i][w] += s.weights[i * TILE + j] * x;
                }
            }
#pragma GCC unroll 4
            for (int i = 0; i < N; i++)
#pragma GCC unroll 4
                for (int w = 0; w < W; w++) store(out + i * head_dim + d + w * LANES, acc[i][w]);
        };
        switch (vectors) {
            case 1: accumulate(std::integral_constant<int, 1>{}); break;
            case 2: accumulate(std::integral_constant<int, 2>{}); break;
            case 3: accumulate(std::integral_constant<int, 3>{}); break;
            default: accumulate(std::integral_constant<int, 4>{});
        }
    }
}

// out [W pairs of vectors] += weights * values, over one part of the head
template <class T, int W>
inline void add_values(const T *const *v, int count, int d, const float *weights, float *out) {
    vf even[2 * W], odd[2 * W];
#pragma GCC unroll 8
    for (int w = 0; w < 2 * W; w++) even[w] = load(out + d + w * LANES), odd[w] = vf{};
    int j = 0;
    for (; j + 1 < count; j += 2)
#pragma GCC unroll 4
        for (int w = 0; w < W; w++) {
            vf a, b;
            load_pair(v[j] + d + 2 * w * LANES, a, b);
            even[2 * w] += weights[j] * a, even[2 * w + 1] += weights[j] * b;
            load_pair(v[j + 1] + d + 2 * w * LANES, a, b);
            odd[2 * w] += weights[j + 1] * a, odd[2 * w + 1] += weights[j + 1] * b;
        }
    if (j < count)
#pragma GCC unroll 4
        for (int w = 0; w < W; w++) {
            vf a, b;
            load_pair(v[j] + d + 2 * w * LANES, a, b);
            even[2 * w] += weights[j] * a, even[2 * w + 1] += weights[j] * b;
        }
#pragma GCC unroll 8
    for (int w = 0; w < 2 * W; w++) store(out + d + w * LANES, even[w] + odd[w]);
}

// A single query needs no widened tile: keys are read where they lie. k and v point to TILE rows, the last ones repeated.
template <class T>
void attend_one(Scratch &s, size_t query, const T *const *k, const T *const *v, Seen seen, float softcap, int head_dim) {
    const int count = seen.stop;
    const float *q = s.q.data() + query * head_dim;
    const int paired = head_dim & ~(2 * LANES - 1);
    vf scores[2];
    for (int half = 0; half < 2; half++) {
        vf rows[LANES] = {};
        for (int d = 0; d < paired; d += 2 * LANES) {
            const vf x = load(q + d), y = load(q + d + LANES);
#pragma GCC unroll 16
            for (int j = 0; j < LANES; j++) {
                vf a, b;
                load_pair(k[half * LANES + j] + d, a, b);
                rows[j] += x * a, rows[j] += y * b;
            }
        }
        if (paired < head_dim)
            for (int j = 0; j < LANES; j++) rows[j] += load(q + paired) * load(k[half * LANES + j] + paired);
        scores[half] = sums_of(rows);
    }
    float *out = s.out.data() + query * head_dim;
    soften(scores[0], scores[1], seen, softcap, head_dim, s.best[query], s.sum[query], out, s.weights);
    int d = 0;
    for (; d + 4 * LANES <= head_dim; d += 4 * LANES) add_values<T, 2>(v, count, d, s.weights, out);
    for (; d + 2 * LANES <= head_dim; d += 2 * LANES) add_values<T, 1>(v, count, d, s.weights, out);
    if (d < head_dim) {
        vf total = load(out + d);
        for (int j = 0; j < count; j++) total += s.weights[j] * load(v[j] + d);
        store(out + d, total);
    }
}

template <class T>
inline void prefetch_row(const T *row, int64_t size) {
    for (int64_t i = 0; i < size; i += 64 / sizeof(T)) __builtin_prefetch(row + i, 0, 2);
}

template <class T>
void attend_tile(Scratch &s, const Plan &p, const Rule &rule, const Item &item, const T *keys, const T *values, int start, int count) {
    const int D = p.head_dim, group = p.heads / p.kv_heads, queries = item.num_members * group;
    const int64_t stride = (int64_t)p.kv_heads * D;
    const int32_t *slots = p.table + item.row * p.table_stride + start;
    const T *k[TILE], *v[TILE];
    const int ahead = std::min(item.stop - start - count, TILE);
    for (int j = 0; j < TILE; j++) {
        const int64_t at = slots[std::min(j, count - 1)] * stride;
        k[j] = keys + at, v[j] = values + at;
    }
    for (int g = 0; g < p.kv_heads; g++) {
        // the next tile, a token's whole row after the other: memory is read faster in the order of its addresses
        for (int j = ahead * g / p.kv_heads; j < ahead * (g + 1) / p.kv_heads; j++)
            prefetch_row(keys + slots[count + j] * stride, stride), prefetch_row(values + slots[count + j] * stride, stride);
        if (queries == 1) {
            const Seen seen = seen_of(p.limits[p.members[item.first_member]], rule, start, count);
            if (seen.stop > 0) attend_one(s, g, k, v, seen, rule.softcap, D);
        } else {
            widen_rows(k, TILE, D, s.values);
            turn(s.values, D, s.keys);
            widen_rows(v, count, D, s.values);
            for (int i = 0; i < queries; i += 4) {
                Seen seen[4];
                const int n = std::min(4, queries - i);
                bool any_seen = false;
                for (int j = 0; j < n; j++) {
                    seen[j] = seen_of(p.limits[p.members[item.first_member + (i + j) / group]], rule, start, count);
                    any_seen |= seen[j].first < seen[j].stop;
                }
                if (!any_seen) continue;  // the keys of this block's queries all lie before the tile or behind it
                const size_t query = (size_t)g * queries + i;
                switch (n) {
                    case 1: attend_block<1>(s, query, seen, rule.softcap, count, D); break;
                    case 2: attend_block<2>(s, query, seen, rule.softcap, count, D); break;
                    case 3: attend_block<3>(s, query, seen, rule.softcap, count, D); break;
                    default: attend_block<4>(s, query, seen, rule.softcap, count, D);
                }
            }
        }
        for (int j = 0; j < TILE; j++) k[j] += D, v[j] += D;
    }
}

// The first key of an item that one of its queries sees.
inline int first_key(const Plan &p, const Rule &rule, const Item &item) {
    if (!rule.window) return item.start;
    int32_t least = p.limits[p.members[item.first_member]];
    for (int m = 1; m < item.num_members; m++) least = std::min(least, p.limits[p.members[item.first_member + m]]);
    return std::max(item.start, least - rule.window);
}

// Query (member m, head g * group + h) is number (g * members + m) * group + h of the scratch.
template <class T>
void attend_item(const Plan &p, const Rule &rule, const Item &item, const T *q, int64_t q_stride, const T *keys, const T *values, T *out) {
    const int D = p.head_dim, group = p.heads / p.kv_heads, members = item.num_members;
    const size_t total = (size_t)members * p.heads;
    Scratch &s = scratch;
    s.fit(total, D);
    std::fill_n(s.best.begin(), total, LOWEST), std::fill_n(s.sum.begin(), total, 0.0f);
    std::fill_n(s.out.begin(), total * D, 0.0f);
    for (int m = 0; m < members; m++)
        for (int h = 0; h < p.heads; h++) {
            const T *from = q + p.members[item.first_member + m] * q_stride + h * D;
            float *to = s.q.data() + (((size_t)(h / group) * members + m) * group + h % group) * D;
            widen(from, to, D, rule.scale);
        }
    for (int start = first_key(p, rule, item); start < item.stop; start += TILE)
        attend_tile(s, p, rule, item, keys, values, start, std::min(TILE, item.stop - start));
    for (int m = 0; m < members; m++)
        for (int h = 0; h < p.heads; h++) {
            const size_t query = ((size_t)(h / group) * members + m) * group + h % group;
            const float *from = s.out.data() + query * D;
            const int64_t partial = p.partials[item.first_member + m];
            if (partial < 0) {
                T *to = out + ((int64_t)p.members[item.first_member + m] * p.heads + h) * D;
                narrow(from, to, D, 1.0f / s.sum[query]);
            } else {
                float *to = p.partial_out + (partial * p.heads + h) * D, *lse = p.partial_lse + (partial * p.heads + h) * 2;
                for (int d = 0; d < D; d += LANES) store(to + d, load(from + d));
                lse[0] = s.best[query], lse[1] = s.sum[query];
            }
        }
}

template <class T>
void merge(const Plan &p, const int32_t *job, T *out) {
    const int D = p.head_dim, H = p.heads;
    for (int h = 0; h < H; h++) {
        const float *parts = p.partial_out + ((int64_t)job[1] * H + h) * D, *lse = p.partial_lse + ((int64_t)job[1] * H + h) * 2;
        float best = LOWEST, sum = 0, total[MAX_HEAD_DIM] = {};
        for (int i = 0; i < job[2]; i++) best = std::max(best, lse[i * H * 2]);
        for (int i = 0; i < job[2]; i++) {
            const float weight = std::exp(lse[i * H * 2] - best);
            sum += lse[i * H * 2 + 1] * weight;
            for (int d = 0; d < D; d += LANES) store(total + d, load(total + d) + load(parts + (int64_t)i * H * D + d) * weight);
        }
        narrow(total, out + ((int64_t)job[0] * H + h) * D, D, 1.0f / sum);
    }
}

template <class T>
void run(const Plan &p, const Rule &rule, const void *q, int64_t q_stride, const void *keys, const void *values, void *out) {
    // a region that starts a second thread for one item, or for little merging, costs more than it saves
    pool::each(p.threads, p.num_items, [&](int64_t i) { attend_item(p, rule, p.items[i], (const T *)q, q_stride, (const T *)keys, (const T *)values, (T *)out); });
    pool::each_of_many(p.threads, p.num_merges, 4 * p.heads * p.head_dim, [&](int64_t i) { merge(p, p.merges + i * 3, (T *)out); });
}

template <class T>
void store_rows(const T *from, int64_t stride, T *to, const int64_t *slots, int64_t tokens, int64_t width, int threads) {
    pool::each_of_many(threads, tokens, width / 4, [&](int64_t t) { std::memcpy(to + slots[t] * width, from + t * stride, width * sizeof(T)); });
}

}  // namespace

// q [T, H, D] with rows q_stride elements apart, keys and values [S, G, D], out [T, H, D].
extern "C" void ramet_attention(const Plan *plan, const Rule *rule, int dtype, const void *q, int64_t q_stride, const void *keys, const void *values,
                                void *out) {
    switch (dtype) {
        case FLOAT32: return run<float>(*plan, *rule, q, q_stride, keys, values, out);
        case BFLOAT16: return run<bf16>(*plan, *rule, q, q_stride, keys, values, out);
        case FLOAT16: return run<f16>(*plan, *rule, q, q_stride, keys, values, out);
    }
}
REPLAYABLE(ramet_attention)

// k and v [T, width] with rows `stride` elements apart into keys and values [S, width] at slots [T].
extern "C" void ramet_store_kv(int element_bytes, const void *k, const void *v, int64_t k_stride, int64_t v_stride, void *keys, void *values,
                               const int64_t *slots, int64_t tokens, int64_t width, int threads) {
    if (element_bytes == 4) {
        store_rows((const float *)k, k_stride, (float *)keys, slots, tokens, width, threads);
        store_rows((const float *)v, v_stride, (float *)values, slots, tokens, width, threads);
    } else {
        store_rows((const bf16 *)k, k_stride, (bf16 *)keys, slots, tokens, width, threads);
        store_rows((const bf16 *)v, v_stride, (bf16 *)values, slots, tokens, width, threads);
    }
}
REPLAYABLE(ramet_store_kv)
