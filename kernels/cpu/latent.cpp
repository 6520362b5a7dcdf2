// Attention whose keys and values differ in width, as heads that share latents have (DeepSeek-V2, 2024): queries and keys are
// of two parts, of which the second is rotated, and a value may be the first part of its key. Either all heads share the keys
// of a token, which is a latent and lies in the pool, or each has its own, which a latent was expanded to.
//
// Decides how an item of plan.cpp is computed: BLOCK queries at a time against WIDE_TILE keys, which are widened once for
// them. A lane is a query, as in attend_many.h. Arithmetic is float32, scores are exponents of 2.
//
// T tokens, H query heads, G heads of keys, D numbers of a key, W of a value, Q queries of a block, in whole vectors.
#include "attend_many.h"
#include "pool.h"
#include "replay.h"

// A part of queries, keys or values: what is there of row r and head h begins at r * row + h * head, in numbers.
struct Operand {
    const void *at;
    int64_t row, head, width;
};

struct Operands {
    Operand q, q_turned, keys, keys_turned, values;
    void *out;  // [T, H, W]
};

namespace {

using namespace attention;

constexpr int64_t BLOCK = 64;  // queries, whose numbers and sums stay in the core's second cache beside a tile

int64_t in_vectors(int64_t num) { return (num + LANES - 1) / LANES * LANES; }

// A thread's memory for one block. It grows once.
struct Memory {
    std::vector<float> q, out, best, sum, keys, values, weights, turned;
    std::vector<int32_t> limits;
    void fit(int64_t queries, int64_t key, int64_t value) {
        const int64_t longest = std::max(in_vectors(key), in_vectors(value));
        grow(q, in_vectors(key) * queries), grow(out, in_vectors(value) * queries), grow(best, queries), grow(sum, queries);
        grow(keys, WIDE_TILE * key + LANES), grow(values, WIDE_TILE * in_vectors(value));
        grow(weights, WIDE_TILE * 2 * LANES), grow(turned, LANES * longest + LANES);
        if (int64_t(limits.size()) < queries) limits.resize(queries);
    }
    static void grow(std::vector<float> &some, int64_t num) {
        if (int64_t(some.size()) < num) some.resize(num);
    }
};
thread_local Memory memory;

// A row of a part as floats, whole vectors: what is behind its end is for the next to overwrite.
template <class T>
void widen_part(const Operand &part, int64_t row, int64_t head, float by, float *to) {
    const T *const from = static_cast<const T *>(part.at) + row * part.row + head * part.head;
    int64_t d = 0;
    for (; d + LANES <= part.width; d += LANES) store(to + d, load(from + d) * by);
    if (d < part.width) store(to + d, load_some(from + d, part.width - d) * by);
}

template <class T>
struct Block {
    const Plan &p;
    const Operands &o;
    const Item &item;
    const int64_t g, from;  // head of keys, first query
    const int64_t group = p.heads / p.kv_heads, num = std::min(BLOCK, item.num_members * group - from), Q = in_vectors(num);
    const int64_t D = o.keys.width + o.keys_turned.width, W = o.values.width;
    const bool of_keys = o.values.at == o.keys.at;  // values are what keys begin with
    Memory &s = memory;

    int64_t member(int64_t i) const { return item.first_member + (from + std::min(i, num - 1)) / group; }
    int64_t token(int64_t i) const { return p.members[member(i)]; }
    int64_t head(int64_t i) const { return g * group + (from + std::min(i, num - 1)) % group; }

    void attend(float scale) {
        s.fit(Q, D, W);
        int32_t most = 0;
        for (int64_t i = 0; i < Q; i++) most = std::max(most, s.limits[i] = p.limits[token(i)]);
        place_queries(scale);
        std::fill_n(s.best.begin(), Q, LOWEST), std::fill_n(s.sum.begin(), Q, 0.0f), std::fill_n(s.out.begin(), in_vectors(W) * Q, 0.0f);
        const int stop = std::min(item.stop, most);
        for (int start = item.start; start < stop; start += WIDE_TILE) attend_tile(start, std::min(WIDE_TILE, stop - start));
        give();
    }

    // [D][Q]
    void place_queries(float scale) {
        const int64_t width = in_vectors(D);
        for (int64_t at = 0; at < Q; at += LANES) {
            for (int64_t i = 0; i < LANES; i++) {
                float *const to = s.turned.data() + i * width;
                widen_part<T>(o.q, token(at + i), head(at + i), scale, to);
                widen_part<T>(o.q_turned, token(at + i), head(at + i), scale, to + o.q.width);
            }
            for (int64_t d = 0; d < width; d += LANES) turn(s.turned.data() + d, width, s.q.data() + d * Q + at, Q);
        }
    }

    void attend_tile(int start, int count) {
        const int32_t *const slots = p.table + item.row * p.table_stride + start;
        for (int j = 0; j < count; j++) {
            float *const key = s.keys.data() + j * D;
            widen_part<T>(o.keys, slots[j], g, 1.0f, key), widen_part<T>(o.keys_turned, slots[j], g, 1.0f, key + o.keys.width);
        }
        if (!of_keys)
            for (int j = 0; j < count; j++) widen_part<T>(o.values, slots[j], g, 1.0f, s.values.data() + j * in_vectors(W));
        const Rule rule = {1.0f, 0, 0.0f};
        for (int64_t at = 0; at < Q;) {
            const int vectors = at + 2 * LANES <= Q ? 2 : 1;
            SeenBy seen[2];
            bool none = true;  // of these queries sees a key
            for (int w = 0; w < vectors; w++) {
                const int32_t *const limits = s.limits.data() + at + w * LANES;
                seen[w] = seen_by(limits, limits, rule, start, count), none &= seen[w].none;
            }
            if (!none) vectors == 2 ? attend_vectors<2>(at, seen, count) : attend_vectors<1>(at, seen, count);
            at += vectors * LANES;
        }
    }

    // V vectors of queries from `at` on against the tile. A query that sees none of its keys is as in attend_few.h.
    template <int V>
    void attend_vectors(int64_t at, const SeenBy *seen, int count) {
        constexpr int WIDTH = V * LANES;
        float *const weights = s.weights.data();  // [WIDE_TILE][WIDTH]
        vf top[V], shrink[V], total[V];
#pragma GCC unroll 2
        for (int w = 0; w < V; w++) top[w] = load(s.best.data() + at + w * LANES);
        for (int first = 0; first < count; first += NUMBERS) {
            vf sums[NUMBERS][V] = {};
            multiply<false, V>(s.keys.data() + first * D, D, 1, int(D), s.q.data() + at, Q, sums);
#pragma GCC unroll 8
            for (int n = 0; n < NUMBERS; n++)
#pragma GCC unroll 2
                for (int w = 0; w < V; w++) {
                    const int j = first + n;
                    vf &score = sums[n][w];
                    if (!seen[w].all || j >= count) score = j < seen[w].stop ? score : splat(LOWEST);
                    top[w] = larger(top[w], score);
                    store(weights + j * WIDTH + w * LANES, score);
                }
        }
#pragma GCC unroll 2
        for (int w = 0; w < V; w++) {
            float *const best = s.best.data() + at + w * LANES;
            shrink[w] = exp2_of(load(best) - top[w]), total[w] = load(s.sum.data() + at + w * LANES) * shrink[w];
            store(best, top[w]);
        }
        for (int j = 0; j < count; j++)
#pragma GCC unroll 2
            for (int w = 0; w < V; w++) {
                float *const to = weights + j * WIDTH + w * LANES;
                const vf weight = exp2_of(load(to) - top[w]);
                total[w] += weight;
                store(to, weight);
            }
#pragma GCC unroll 2
        for (int w = 0; w < V; w++) store(s.sum.data() + at + w * LANES, total[w]);
        const float *const values = of_keys ? s.keys.data() : s.values.data();
        for (int64_t d = 0; d < W; d += NUMBERS) {
            float *const to = s.out.data() + d * Q + at;
            vf sums[NUMBERS][V];
#pragma GCC unroll 8
            for (int n = 0; n < NUMBERS; n++)
#pragma GCC unroll 2
                for (int w = 0; w < V; w++) sums[n][w] = load(to + n * Q + w * LANES) * shrink[w];
            multiply<false, V>(values + d, 1, of_keys ? D : in_vectors(W), count, weights, WIDTH, sums);
#pragma GCC unroll 8
            for (int n = 0; n < NUMBERS; n++)
#pragma GCC unroll 2
                for (int w = 0; w < V; w++) store(to + n * Q + w * LANES, sums[n][w]);
        }
    }

    void give() {
        const int64_t width = in_vectors(W);
        for (int64_t at = 0; at < Q; at += LANES) {
            for (int64_t d = 0; d < width; d += LANES) turn(s.out.data() + d * Q + at, Q, s.turned.data() + d, width);
            for (int64_t i = at; i < std::min(at + LANES, num); i++) give_one(i, s.turned.data() + (i - at) * width);
        }
    }
    void give_one(int64_t i, const float *from) {
        const int64_t partial = p.partials[member(i)], h = head(i);
        if (partial < 0) {
            put(from, 1.0f / s.sum[i], static_cast<T *>(o.out) + (token(i) * p.heads + h) * W, W);
        } else {
            float *const lse = p.partial_lse + (partial * p.heads + h) * 2;
            std::memcpy(p.partial_out + (partial * p.heads + h) * W, from, W * sizeof(float));
            lse[0] = s.best[i], lse[1] = s.sum[i];
        }
    }
    static void put(const float *from, float by, T *to, int64_t width) {
        int64_t d = 0;
        for (; d + LANES <= width; d += LANES) store(to + d, load(from + d) * by);
        if (d < width) store_some(to + d, load_some(from + d, width - d) * by, width - d);
    }
};

// What is attended to of a token is the sum of its parts, weighted by how much of the softmax each has.
template <class T>
void merge_parts(const Plan &p, const int32_t *job, T *out) {
    const int64_t W = p.head_dim, H = p.heads;
    std::vector<float> &total = memory.turned;
    Memory::grow(total, W);
    for (int64_t h = 0; h < H; h++) {
        const float *const parts = p.partial_out + (job[1] * H + h) * W, *const lse = p.partial_lse + (job[1] * H + h) * 2;
        float best = LOWEST, sum = 0;
        for (int i = 0; i < job[2]; i++) best = std::max(best, lse[i * H * 2]);
        std::fill_n(total.begin(), W, 0.0f);
        for (int i = 0; i < job[2]; i++) {
            const float weight = std::exp2(lse[i * H * 2] - best);
            sum += lse[i * H * 2 + 1] * weight;
            for (int64_t d = 0; d < W; d++) total[d] += parts[i * H * W + d] * weight;
        }
        Block<T>::put(total.data(), 1.0f / sum, out + (job[0] * H + h) * W, W);
    }
}

template <class T>
void attend_all(const Plan &p, float scale, const Operands &o) {
    const int64_t group = p.heads / p.kv_heads;
    int64_t most = 0;
    for (int i = 0; i < p.num_items; i++) most = std::max<int64_t>(most, p.items[i].num_members);
    const int64_t blocks = (most * group + BLOCK - 1) / BLOCK;
    pool::each(p.threads, p.num_items * p.kv_heads * blocks, [&](int64_t job) {
        const Item &item = p.items[job / (p.kv_heads * blocks)];
        const int64_t g = job / blocks % p.kv_heads, from = job % blocks * BLOCK;
        if (from < item.num_members * group) Block<T>{p, o, item, g, from}.attend(scale);
    });
    pool::each_of_many(p.threads, p.num_merges, 4 * p.heads * p.head_dim, [&](int64_t i) { merge_parts(p, p.merges + i * 3, static_cast<T *>(o.out)); });
}

}  // namespace

// The operands are of `dtype`. The plan's head_dim is W, its kv_heads G.
extern "C" void ramet_latent_attention(const Plan *plan, float scale, int dtype, const Operands *operands) {
    with_dtype(dtype, [&](auto value) { attend_all<decltype(value)>(*plan, scale * LOG2_E, *operands); });
}
REPLAYABLE(ramet_latent_attention)

// latents [T, L] and turned [T, P], whose rows are so many bytes apart, side by side into keys [S, L + P] at slots [T]. Sizes
// are bytes of a row.
extern "C" void ramet_store_latents(const char *latents, int64_t latent_stride, int64_t latent_bytes, const char *turned, int64_t turned_stride,
                                    int64_t turned_bytes, char *keys, const int64_t *slots, int64_t tokens, int threads) {
    const int64_t bytes = latent_bytes + turned_bytes;
    pool::each_of_many(threads, tokens, bytes / 16, [&](int64_t t) {
        std::memcpy(keys + slots[t] * bytes, latents + t * latent_stride, latent_bytes);
        std::memcpy(keys + slots[t] * bytes + latent_bytes, turned + t * turned_stride, turned_bytes);
    });
}
REPLAYABLE(ramet_store_latents)
