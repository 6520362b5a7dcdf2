// What adapters change in a linear layer's outputs and in embeddings, each token's by its own (Hu et al. 2021).
//
// A layer has a table: of each slot the changes that the adapter there makes to it. Tokens are sorted by slot, and those of
// one slot are taken a few at a time, so that what is read of an adapter serves them all. Both are found here, so a list of
// calls serves any adapters. Sums are float32 and rounded once.
//
// T tokens, N in, M out of a change, R its rank, S slots; slot 0 is the model itself.
#include <cmath>
#include <cstring>
#include <vector>

#include "linear.h"
#include "pool.h"
#include "replay.h"
#include "vector.h"

namespace {

constexpr int TOGETHER = 4;  // tokens
constexpr int64_t BLOCK_OF_ROWS = 16;

// Of columns [first, first + count) of the outputs. With a rank: `down` [R, N] (of an embedding [V, R]), `up` [R, M], and
// what they make is added. Without: `down` [M, N] (of an embedding [V, M]) and `up`, the bias [M] or null, stand for the
// model's own.
struct Change {
    int64_t rank, first, count, down, up;
};
struct Changes {
    int64_t num;
    Change first;
    const Change *begin() const { return &first; }
    const Change *end() const { return &first + num; }
};

// Tokens in the order of their slots: those of slot s end at ends[s].
struct Sorted {
    std::vector<int64_t> tokens, ends;
    Sorted(const int32_t *slots, int64_t num, int64_t num_slots) : tokens(num), ends(num_slots + 1) {
        for (int64_t t = 0; t < num; t++) ends[slots[t]]++;
        for (int64_t s = 1; s <= num_slots; s++) ends[s] += ends[s - 1];
        std::vector<int64_t> next(num_slots + 1);
        for (int64_t s = 1; s <= num_slots; s++) next[s] = ends[s - 1];
        for (int64_t t = 0; t < num; t++) tokens[next[slots[t]]++] = t;
    }
};

struct Group {
    const Changes *changes;
    const int64_t *tokens;
    int num;
};

std::vector<Group> groups_of(const Sorted &sorted, const Changes *const *table) {
    std::vector<Group> groups;
    for (size_t s = 1; s < sorted.ends.size(); s++)
        for (int64_t at = sorted.ends[s - 1]; table[s] && at < sorted.ends[s]; at += TOGETHER)
            groups.push_back({table[s], &sorted.tokens[at], int(std::min<int64_t>(TOGETHER, sorted.ends[s] - at))});
    return groups;
}

template <class T>
inline vf at_most(const T *p, int64_t num) {
    return num >= LANES ? load(p) : load_some(p, num);
}
template <class T>
inline void put_at_most(T *p, vf x, int64_t num) {
    num >= LANES ? store(p, x) : store_some(p, x, num);
}

// sums[r][t] = down[r] times x[t], of ROWS rows; x has zeros behind N
template <class T, int ROWS, int NUM>
inline void multiply_rows(const T *down, const float *x, int64_t stride, int64_t num_in, float *to) {
    vf sums[ROWS][NUM];
    for (int r = 0; r < ROWS; r++)
        for (int t = 0; t < NUM; t++) sums[r][t] = vf{};
    for (int64_t i = 0; i < num_in; i += LANES) {
        vf weights[ROWS];
#pragma GCC unroll 4
        for (int r = 0; r < ROWS; r++) weights[r] = at_most(down + r * num_in + i, num_in - i);
#pragma GCC unroll 4
        for (int t = 0; t < NUM; t++) {
            const vf input = load(x + t * stride + i);
#pragma GCC unroll 4
            for (int r = 0; r < ROWS; r++) add_product(sums[r][t], weights[r], input);
        }
    }
    for (int r = 0; r < ROWS; r++)
        for (int t = 0; t < NUM; t++) to[r * NUM + t] = sum_of(sums[r][t]);
}

// out[t][m] += sum over r of h[r][t] up[r][m], of VECTORS vectors of columns
template <class T, class To, int VECTORS, int NUM>
inline void add_columns(const T *up, int64_t rank, int64_t count, const float *h, To *const *out, int64_t column) {
    vf sums[VECTORS][NUM];
    const int64_t left = count - column;
    for (int v = 0; v < VECTORS; v++)
        for (int t = 0; t < NUM; t++) sums[v][t] = at_most(out[t] + column + v * LANES, left - v * LANES);
    for (int64_t r = 0; r < rank; r++) {
#pragma GCC unroll 2
        for (int v = 0; v < VECTORS; v++) {
            const vf weights = at_most(up + r * count + column + v * LANES, left - v * LANES);
#pragma GCC unroll 4
            for (int t = 0; t < NUM; t++) add_product(sums[v][t], weights, splat(h[r * NUM + t]));
        }
    }
    for (int v = 0; v < VECTORS; v++)
        for (int t = 0; t < NUM; t++) put_at_most(out[t] + column + v * LANES, sums[v][t], left - v * LANES);
}

template <class T, class To, int NUM>
void add_up(const Change &change, const float *h, To *const *out) {
    int64_t column = 0;
    for (; column + 2 * LANES <= change.count; column += 2 * LANES)
        add_columns<T, To, 2, NUM>((const T *)change.up, change.rank, change.count, h, out, column);
    for (; column < change.count; column += LANES)
        add_columns<T, To, 1, NUM>((const T *)change.up, change.rank, change.count, h, out, column);
}

template <class T, class To, int NUM>
void add_low_rank(const Group &group, const T *x, int64_t x_stride, int64_t num_in, To *out, int64_t out_stride) {
    const int64_t stride = ceil_div(num_in, LANES) * LANES;
    int64_t most = 0;
    for (const Change &change : *group.changes) most = std::max(most, change.rank);
    if (!most) return;
    float *const inputs = reinterpret_cast<float *>(scratch((NUM * stride + most * NUM) * sizeof(float))), *const h = inputs + NUM * stride;
    for (int t = 0; t < NUM; t++) {
        const T *from = x + group.tokens[t] * x_stride;
        for (int64_t i = 0; i < num_in; i += LANES) store(inputs + t * stride + i, at_most(from + i, num_in - i));
    }
    for (const Change &change : *group.changes) {
        if (!change.rank) continue;
        const T *const down = (const T *)change.down;
        int64_t r = 0;
        for (; r + 2 <= change.rank; r += 2) multiply_rows<T, 2, NUM>(down + r * num_in, inputs, stride, num_in, h + r * NUM);
        if (r < change.rank) multiply_rows<T, 1, NUM>(down + r * num_in, inputs, stride, num_in, h + r * NUM);
        To *to[NUM];
        for (int t = 0; t < NUM; t++) to[t] = out + group.tokens[t] * out_stride + change.first;
        add_up<T, To, NUM>(change, h, to);
    }
}

template <class T, class To, int NUM = TOGETHER>
void add_of(const Group &group, const T *x, int64_t x_stride, int64_t num_in, To *out, int64_t out_stride) {
    if constexpr (NUM > 0) {
        if (group.num < NUM) return add_of<T, To, NUM - 1>(group, x, x_stride, num_in, out, out_stride);
        add_low_rank<T, To, NUM>(group, x, x_stride, num_in, out, out_stride);
    }
}

// out = x weight^T + bias for those tokens of a slot whose layer is another
template <class T, class To>
void replace(const Change &change, const int64_t *tokens, int64_t num, const T *x, int64_t x_stride, int64_t num_in, To *out, int64_t out_stride,
             int threads) {
    const T *const weight = (const T *)change.down, *const bias = (const T *)change.up;
    pool::each_of_many(threads, ceil_div(change.count, BLOCK_OF_ROWS), BLOCK_OF_ROWS * num_in * num / 4, [&](int64_t block) {
        for (int64_t m = block * BLOCK_OF_ROWS; m < std::min(change.count, (block + 1) * BLOCK_OF_ROWS); m++)
            for (int64_t i = 0; i < num; i++) {
                const T *const from = x + tokens[i] * x_stride, *const row = weight + m * num_in;
                vf sums = {};
                for (int64_t n = 0; n < num_in; n += LANES) add_product(sums, at_most(from + n, num_in - n), at_most(row + n, num_in - n));
                const float shift = bias ? load_some(bias + m, 1)[0] : 0.0f;
                store_some(out + tokens[i] * out_stride + change.first + m, splat(sum_of(sums) + shift), 1);
            }
    });
}

template <class T, class To>
void adapt(const T *x, int64_t x_stride, const int32_t *slots, const Changes *const *table, int64_t num_slots, To *out, int64_t out_stride,
           int64_t tokens, int64_t num_in, int threads) {
    const Sorted sorted(slots, tokens, num_slots);
    for (int64_t s = 1; s <= num_slots; s++)
        if (const int64_t first = sorted.ends[s - 1], num = sorted.ends[s] - first; table[s] && num)
            for (const Change &change : *table[s])
                if (!change.rank) replace(change, &sorted.tokens[first], num, x, x_stride, num_in, out, out_stride, threads);
    const std::vector<Group> groups = groups_of(sorted, table);
    int64_t values = 0;
    for (const Group &group : groups)
        for (const Change &change : *group.changes) values = std::max(values, change.rank * (num_in + change.count));
    pool::each_of_many(threads, groups.size(), values, [&](int64_t g) { add_of<T, To>(groups[g], x, x_stride, num_in, out, out_stride); });
}

template <class T>
void adapt_row(const Changes &changes, int64_t id, T *out, float scale) {
    for (const Change &change : changes) {
        const T *const down = (const T *)change.down + id * (change.rank ? change.rank : change.count);
        for (int64_t m = 0; m < change.count; m += LANES) {
            const int64_t left = change.count - m;
            vf sum = {};
            for (int64_t r = 0; r < change.rank; r++)
                sum += at_most((const T *)change.up + r * change.count + m, left) * (load_some(down + r, 1)[0] * scale);
            put_at_most(out + m, change.rank ? at_most(out + m, left) + sum : at_most(down + m, left) * scale, left);
        }
    }
}

}  // namespace

// What the adapters in the slots [T] of its tokens change in a layer's outputs: WRITES out [T, M], rows a stride apart, which
// is float32 if `is_wide`, from the layer's inputs x [T, N]. table [S + 1] of Changes, null where there is none.
extern "C" void ramet_adapt(int dtype, const void *x, int64_t x_stride, const int32_t *slots, const void *table, int64_t num_slots, void *out,
                            int64_t out_stride, int is_wide, int64_t tokens, int64_t num_in, int threads) {
    with_dtype(dtype, [&](auto value) {
        using T = decltype(value);
        const auto run = [&](auto *to) {
            adapt((const T *)x, x_stride, slots, (const Changes *const *)table, num_slots, to, out_stride, tokens, num_in, threads);
        };
        is_wide ? run((float *)out) : run((T *)out);
    });
}
REPLAYABLE(ramet_adapt)

// The same of embeddings out [T, N] of token ids [T], which are multiplied by `scale`.
extern "C" void ramet_adapt_rows(int dtype, const int64_t *ids, const int32_t *slots, const void *table, void *out, int64_t tokens, int64_t size,
                                 float scale, int threads) {
    with_dtype(dtype, [&](auto value) {
        using T = decltype(value);
        pool::each_of_many(threads, tokens, size * 4, [&](int64_t t) {
            if (const Changes *const changes = ((const Changes *const *)table)[slots[t]]) adapt_row(*changes, ids[t], (T *)out + t * size, scale);
        });
    });
}
REPLAYABLE(ramet_adapt_rows)
