// Attention over a paged KV pool on the CPU: items of work, each a set of query tokens against one run of key positions.
//
// Decides how an item is computed, not which items there are (the caller plans them). One plan serves a decoding row, a
// long row cut in pieces, rows that share a prefix (its keys are read once for all of them) and short extends (each
// query stops at its own position). Keys are read a token at a time over all heads, so memory is read in long runs.
// Partial results of cut rows are merged by their log-sum-exp (Dao et al. 2022, FlashAttention; Ye et al. 2025,
// FlashInfer, for shared prefixes). Scores are exponents of 2, which takes fewer operations than those of e.
//
// Arithmetic is float32; with `ramet_choose_attention` products with bfloat16 queries are made in pairs, or by tile registers.
// Products of many queries' weights with values are as well, so all weights are rounded to bfloat16 alike, however many
// queries there are: what a token is given depends on what is computed with it by the order of sums alone, and beside keys of 8
// bits by what attend_bytes.h rounds.
//
// T tokens, H query heads, G kv heads, D head size (a multiple of 16), S slots.
#include "attend_few.h"
#include "attend_many.h"
#include "pool.h"
#include "replay.h"

namespace {

using namespace attention;

thread_local Scratch scratch;
[[maybe_unused]] bool with_dots = false, with_tiles = false;

// What one call computes. T: of queries and results. C: of keys and values.
template <class T, class C>
struct Call {
    const Plan &p;
    const Rule &rule;
    const T *q;
    int64_t q_stride;
    const char *keys, *values;
    T *out;
    int64_t row_bytes() const { return p.kv_heads * head_bytes<C>(p.head_dim); }
};

// A query as floats: in the order of load_pair where its keys are of the same type, the last 16 of an odd size as they are. The first
// `whole` are split_query's.
template <class C, class T>
inline void widen(const T *from, float *to, int head_dim, float scale, int whole = 0) {
    int d = whole;
    if constexpr (OF_BYTES<C>) split_query(from, to, whole, scale);
    if constexpr (std::is_same_v<C, T>)
        for (; d + 2 * LANES <= head_dim; d += 2 * LANES) {
            vf a, b;
            load_pair(from + d, a, b);
            store_pair(to + d, a * scale, b * scale);
        }
    for (; d < head_dim; d += LANES) store(to + d, load(from + d) * scale);
}

// Sums in the order of load_pair -> in order.
template <class C>
inline void put_in_order(const float *from, float *to, int head_dim, int whole) {
    int d = whole;
    if constexpr (OF_BYTES<C>) order_bytes(from, to, whole);
    for (; d + 2 * LANES <= head_dim; d += 2 * LANES) {
        vf a = load(from + d), b = load(from + d + LANES);
        in_order<C>(a, b);
        store_pair(to + d, a, b);
    }
    for (; d < head_dim; d += LANES) store(to + d, load(from + d));
}

// Of a head's sink, which like a score has its part of the weights; `best` is the largest score, an exponent of 2.
inline float weight_of_sink(const Rule &rule, int h, float best) { return rule.sinks ? std::exp2(rule.sinks[h] * LOG2_E - best) : 0.0f; }

// The first key of an item that one of its queries sees.
inline int first_key(const Plan &p, const Rule &rule, const Item &item) {
    if (!rule.window) return item.start;
    int32_t least = p.owns[p.members[item.first_member]];
    for (int m = 1; m < item.num_members; m++) least = std::min(least, p.owns[p.members[item.first_member + m]]);
    return std::max(item.start, least - rule.window);
}

// An item while it is computed. Query (member m, head g * group + h) is number m * group + h of kv head g.
template <class T, class C, bool DOTS, Products MADE>
struct Work {
    const Call<T, C> &call;
    const Item &item;
    const Plan &p = call.p;
    Scratch &s = scratch;
    const int head_dim = p.head_dim, group = p.heads / p.kv_heads, queries = item.num_members * group;
    const bool few = queries <= FEW;
    const int tile = few ? TILE : WIDE_TILE;
    static constexpr bool DOTS_OF_FEW = DOTS && std::is_same_v<C, T>;  // keys of 8 bits would be widened for one query
    static constexpr bool ROUNDED = MADE != IN_FLOATS;                 // weights, for any number of queries
    // A float32 query keeps its bits: only one of 16 bits is split into bytes, whose rounding is coarser by itself.
    const int whole = OF_BYTES<C> && sizeof(T) == 2 ? whole_of(head_dim, queries) : 0;
    const int num = few ? queries : (queries + UNIT<MADE> - 1) / UNIT<MADE> * UNIT<MADE>;  // with those that fill up the last vectors

    int32_t token(int i) const { return p.members[item.first_member + std::min(i, queries - 1) / group]; }
    float *queries_of(int g) const { return s.q.data() + (int64_t)g * num * head_dim; }
    float *sums_of(int g) const { return s.out.data() + (int64_t)g * num * head_dim; }
    const T *query(int g, int i) const { return call.q + token(i) * call.q_stride + (g * group + std::min(i, queries - 1) % group) * (int64_t)head_dim; }

    // Keys and values of the first tile come while the queries are placed.
    void begin(int start) {
#if RAMET_TILES
        if (!few && MADE == IN_TILES) tiles::shape(tiles::SIDE, tiles::SIDE);
#endif
        ahead_of(start).fetch(0, 1);
        s.fit((size_t)num * p.kv_heads, head_dim);
        std::fill_n(s.best.begin(), num * p.kv_heads, LOWEST), std::fill_n(s.sum.begin(), num * p.kv_heads * (few ? LANES : 1), 0.0f);
        std::fill_n(s.out.begin(), (size_t)num * p.kv_heads * head_dim, 0.0f);
        s.limits.resize(num), s.owns.resize(num);
        for (int i = 0; i < num; i++) s.limits[i] = p.limits[token(i)], s.owns[i] = p.owns[token(i)];
        for (int g = 0; g < p.kv_heads; g++) few ? place_rows(g) : place_columns(g);
    }
    void place_rows(int g) {
        for (int i = 0; i < num; i++) place(query(g, i), queries_of(g) + i * head_dim);
    }
    void place(const T *from, float *to) {
        if constexpr (DOTS_OF_FEW)
            std::memcpy(to, from, head_dim * sizeof(T));
        else
            widen<C>(from, to, head_dim, call.rule.scale, whole);
    }
    void place_columns(int g) {
        const int width = MADE == IN_FLOATS ? head_dim : inputs_of(head_dim) / 2;
        for (int at = 0; at < num; at += LANES) {
            for (int i = 0; i < LANES; i++) {
                float *const to = s.turned + i * width;
                if constexpr (MADE == IN_FLOATS) {
                    widen<void>(query(g, at + i), to, head_dim, call.rule.scale);
                } else {
                    std::memcpy(to, query(g, at + i), head_dim * sizeof(T));
                    std::fill(to + head_dim / 2, to + width, 0.0f);
                }
            }
            for (int d = 0; d < width; d += LANES) turn(s.turned + d, width, queries_of(g) + (int64_t)d * num + at, num);
        }
    }

    // The tile that begins at `start`; none behind the item's end.
    Ahead ahead_of(int start) const {
        const int32_t *slots = p.table + item.row * p.table_stride + start;
        return {call.keys, call.values, slots, std::min(item.stop - start, tile), call.row_bytes()};
    }

    void attend_tile(int start, int count) {
        const int64_t row_bytes = call.row_bytes();
        const int32_t *slots = p.table + item.row * p.table_stride + start;
        Rows<C> k, v;
        const Ahead ahead = ahead_of(start + count);
        k.num = v.num = tile;
        for (int j = 0; j < tile; j++) {
            const int64_t at = slots[std::min(j, count - 1)] * row_bytes;
            k.at[j] = call.keys + at, v.at[j] = call.values + at;
        }
        if (few) return attend_rows(k, v, ahead, start, count);
        for (int g = 0; g < p.kv_heads; g++) {
            const size_t first = (size_t)g * num;
            ahead.fetch(g, p.kv_heads);
            attend_many<C, MADE>(s, k, v, num, s.limits.data(), s.owns.data(), queries_of(g), sums_of(g), s.best.data() + first, s.sum.data() + first, call.rule, start, count, head_dim);
            k.next(head_dim), v.next(head_dim);
        }
    }
    // Some kv heads together, first all scores, then all weights, then all sums: weights of a query wait for one another, not
    // for those of the other queries.
    void attend_rows(Rows<C> &k, Rows<C> &v, const Ahead &ahead, int start, int count) {
        Seen seen[FEW];
        for (int i = 0; i < queries; i++) seen[i] = seen_of(s.limits[i], s.owns[i], call.rule, start, count);
        for (int first = 0, stop; first < p.kv_heads; first = stop) {
            stop = std::min(first + TOGETHER, p.kv_heads);
            for (int g = first; g < stop; g++, k.next(head_dim)) {
                ahead.fetch(ahead.keys, g, p.kv_heads);
                each_few(seen, [&](auto n, int i) { scores<n>(g * num + i, k); });
            }
            for (int g = first; g < stop; g++)
                each_few(seen, [&](auto n, int from) {
                    for (int i = from; i < from + n; i++) weights(g * num + i, seen[i]);
                });
            for (int g = first; g < stop; g++, v.next(head_dim)) {
                ahead.fetch(ahead.values, g, p.kv_heads);
                each_few(seen, [&](auto n, int i) { values<n>(g * num + i, v, count); });
            }
        }
    }
    // body(n, i): the queries of a kv head from i on, n at a time, of which one sees a key at least. n is a type.
    template <class Body>
    void each_few(const Seen *seen, Body body) {
        for (int i = 0; i < queries;) {
            const int n = queries - i >= 4 ? 4 : queries - i >= 2 ? 2 : 1;
            if (std::any_of(seen + i, seen + i + n, [](Seen some) { return some.any(); })) switch (n) {
                    case 1: body(std::integral_constant<int, 1>{}, i); break;
                    case 2: body(std::integral_constant<int, 2>{}, i); break;
                    default: body(std::integral_constant<int, 4>{}, i);
                }
            i += n;
        }
    }
    template <int N>
    void scores(int query, const Rows<C> &k) {
        scores_of<C, DOTS_OF_FEW, N>(s.q.data() + query * head_dim, head_dim, whole, k, call.rule.scale, s.weights_of.data() + query * TILE);
    }
    void weights(int query, Seen seen) {
        float *const all = s.weights_of.data() + query * TILE;
        soften<ROUNDED>(all, seen, call.rule.softcap, head_dim, s.best[query], s.sum.data() + query * LANES, s.out.data() + query * head_dim);
    }
    template <int N>
    void values(int query, const Rows<C> &v, int count) {
        add_all_values<C, N, ROUNDED>(v, count, s.weights_of.data() + query * TILE, head_dim, whole, s.out.data() + query * head_dim);
    }

    void finish() {
#if RAMET_TILES
        if (!few && MADE == IN_TILES) tiles::done();
#endif
        for (int g = 0; g < p.kv_heads; g++)
            for (int at = 0; at < queries; at += LANES) {
                const int some = std::min(LANES, queries - at);
                if (few)
                    for (int i = 0; i < some; i++) put_in_order<C>(sums_of(g) + (at + i) * head_dim, s.turned + i * head_dim, head_dim, whole);
                else
                    for (int d = 0; d < head_dim; d += LANES) turn(sums_of(g) + (int64_t)d * num + at, num, s.turned + d, head_dim);
                for (int i = 0; i < some; i++) give(g, at + i, s.turned + i * head_dim);
            }
    }
    void give(int g, int i, const float *from) {
        const int h = g * group + i % group;
        const size_t query = (size_t)g * num + i;
        const float best = s.best[query], of_keys = few ? sum_of(load(s.sum.data() + query * LANES)) : s.sum[query];
        const int64_t partial = p.partials[item.first_member + i / group];
        if (partial < 0) {
            T *to = call.out + ((int64_t)token(i) * p.heads + h) * head_dim;
            const float sum = of_keys + weight_of_sink(call.rule, h, best);
            for (int d = 0; d < head_dim; d += LANES) store(to + d, load(from + d) * (1.0f / sum));
        } else {
            float *to = p.partial_out + (partial * p.heads + h) * head_dim, *lse = p.partial_lse + (partial * p.heads + h) * 2;
            std::memcpy(to, from, head_dim * sizeof(float));
            lse[0] = best, lse[1] = of_keys;
        }
    }
};

template <bool DOTS, Products MADE, class T, class C>
void attend_item(const Call<T, C> &call, const Item &item) {
    Work<T, C, DOTS, MADE> work{call, item};
    const int first = first_key(call.p, call.rule, item);
    work.begin(first);
    for (int start = first; start < item.stop; start += work.tile) work.attend_tile(start, std::min(work.tile, item.stop - start));
    work.finish();
}

template <class T>
void merge(const Plan &p, const Rule &rule, const int32_t *job, T *out) {
    const int D = p.head_dim, H = p.heads;
    for (int h = 0; h < H; h++) {
        const float *parts = p.partial_out + ((int64_t)job[1] * H + h) * D, *lse = p.partial_lse + ((int64_t)job[1] * H + h) * 2;
        float best = LOWEST, sum = 0, total[MAX_HEAD_DIM] = {};
        for (int i = 0; i < job[2]; i++) best = std::max(best, lse[i * H * 2]);
        for (int i = 0; i < job[2]; i++) {
            const float weight = std::exp2(lse[i * H * 2] - best);
            sum += lse[i * H * 2 + 1] * weight;
            for (int d = 0; d < D; d += LANES) store(total + d, load(total + d) + load(parts + (int64_t)i * H * D + d) * weight);
        }
        sum += weight_of_sink(rule, h, best);
        T *to = out + ((int64_t)job[0] * H + h) * D;
        for (int d = 0; d < D; d += LANES) store(to + d, load(total + d) * (1.0f / sum));
    }
}

template <class T, class C>
void run(const Call<T, C> &call) {
    const Plan &p = call.p;
    // a region that starts a second thread for one item, or for little merging, costs more than it saves
    pool::each(p.threads, p.num_items, [&](int64_t i) {
        if constexpr (std::is_same_v<T, bf16>) {
#if RAMET_TILES
            if (with_tiles) return with_dots ? attend_item<true, IN_TILES>(call, p.items[i]) : attend_item<false, IN_TILES>(call, p.items[i]);
#endif
#if RAMET_DOTS
            if (with_dots) return attend_item<true, IN_DOTS>(call, p.items[i]);
#endif
        }
        attend_item<false, IN_FLOATS>(call, p.items[i]);
    });
    pool::each_of_many(p.threads, p.num_merges, 4 * p.heads * p.head_dim, [&](int64_t i) { merge(p, call.rule, p.merges + i * 3, call.out); });
}

template <class T>
void store_rows(const T *from, int64_t stride, T *to, const int64_t *slots, int64_t tokens, int64_t width, int threads) {
    pool::each_of_many(threads, tokens, width / 4, [&](int64_t t) { std::memcpy(to + slots[t] * width, from + t * stride, width * sizeof(T)); });
}

// A head as whole numbers in [-127, 127], and behind them the float that they are multiplied by: NaN where one is not finite.
template <class T>
void quantise(const T *from, int8_t *to, int64_t head_dim) {
    const auto some_of = [&](int64_t d) { return head_dim - d >= LANES ? load(from + d) : load_some(from + d, head_dim - d); };
    vf most = {}, zeros = {};
    for (int64_t d = 0; d < head_dim; d += LANES) {
        const vf some = some_of(d);
        most = larger(most, larger(some, -some)), zeros += some * 0.0f;
    }
    const float largest = max_of(most), scale = largest / 127.0f + sum_of(zeros), inverse = largest > 0 ? 127.0f / largest : 0.0f;
    for (int64_t d = 0; d < head_dim; d += LANES) {
        const vb bytes = to_bytes(bit_cast<vi>(some_of(d) * inverse + NEAREST));
        std::memcpy(to + d, &bytes, std::min<int64_t>(LANES, head_dim - d));
    }
    std::memcpy(to + head_dim, &scale, sizeof scale);
}

template <class T>
void quantise_rows(const T *from, int64_t stride, int8_t *to, const int64_t *slots, int64_t tokens, int64_t heads, int64_t head_dim, int threads) {
    pool::each_of_many(threads, tokens, heads * head_dim, [&](int64_t t) {
        for (int64_t h = 0; h < heads; h++)
            quantise(from + t * stride + h * head_dim, to + (slots[t] * heads + h) * head_bytes<int8_t>(int(head_dim)), head_dim);
    });
}

}  // namespace

// How products with bfloat16 queries are made from now on: in pairs, and, where queries are many, by tile registers. What the CPU
// does not have is float32, as all is at first.
extern "C" void ramet_choose_attention(int dots, [[maybe_unused]] int tiles) {
    with_dots = RAMET_DOTS && dots;
#if RAMET_TILES
    with_tiles = tiles && tiles::allowed();
#endif
}

// q [T, H, D] with rows q_stride elements apart, keys and values [S, G, D] of `dtype`, or of INT8 [S, G, D + 4] (see
// ramet_store_kv_int8), out [T, H, D].
extern "C" void ramet_attention(const Plan *plan, const Rule *rule, int dtype, int cache, const void *q, int64_t q_stride, const void *keys,
                                const void *values, void *out) {
    with_dtype(dtype, [&](auto value) {
        using T = decltype(value);
        const char *k = (const char *)keys, *v = (const char *)values;
        const Rule in_base_2 = {rule->scale * LOG2_E, rule->window, rule->softcap * LOG2_E, rule->sinks};
        if (cache == INT8)
            run(Call<T, int8_t>{*plan, in_base_2, (const T *)q, q_stride, k, v, (T *)out});
        else
            run(Call<T, T>{*plan, in_base_2, (const T *)q, q_stride, k, v, (T *)out});
    });
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

// k and v [T, G, D] with rows `stride` elements apart into keys and values [S, G, D + 4] at slots [T]: each head as D whole
// numbers of 8 bits and the float32 that they are multiplied by.
extern "C" void ramet_store_kv_int8(int dtype, const void *k, const void *v, int64_t k_stride, int64_t v_stride, int8_t *keys, int8_t *values,
                                    const int64_t *slots, int64_t tokens, int64_t heads, int64_t head_dim, int threads) {
    with_dtype(dtype, [&](auto value) {
        using T = decltype(value);
        quantise_rows((const T *)k, k_stride, keys, slots, tokens, heads, head_dim, threads);
        quantise_rows((const T *)v, v_stride, values, slots, tokens, heads, head_dim, threads);
    });
}
REPLAYABLE(ramet_store_kv_int8)
