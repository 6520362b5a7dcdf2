// What both ways to attend share: the rule, the tile, a thread's scratch, and which keys a query sees.
//
// T tokens, H query heads, G kv heads, D head size (a multiple of 16), S slots. Keys and values are of the type C: the
// queries' own, or int8_t, whose heads are D whole numbers and the float that they are multiplied by.
#pragma once
#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "plan.h"
#include "vector.h"

// What a layer does with its scores.
struct Rule {
    float scale;
    int32_t window;      // keys that a query sees, its own included; 0: all before it
    float softcap;       // scaled scores s become softcap * tanh(s / softcap); 0: they stay
    const float *sinks = nullptr;  // [H] scores that take their part of the weights and have no value, or null
};

namespace attention {

constexpr int TILE = 16;             // keys computed at once for few queries, which wait for them to come from memory
constexpr int WIDE_TILE = 2 * TILE;  // and for many
constexpr int PARTS = TILE / LANES;
constexpr int MAX_HEAD_DIM = 512;
constexpr float LOWEST = -1e30f; // instead of minus infinity: differences stay finite
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int SUMS = 16;  // vectors of sums that stay in registers, beside their factors
#else
constexpr int SUMS = 8;
#endif

// How products are made: with DOTS two bfloat16 numbers of each lane at once, with TILES by tile registers.
enum Products { IN_FLOATS, IN_DOTS, IN_TILES };

template <class C>
constexpr bool OF_BYTES = std::is_same_v<C, int8_t>;

template <class C>
constexpr int64_t head_bytes(int head_dim) {
    return head_dim * int64_t(sizeof(C)) + (OF_BYTES<C> ? int64_t(sizeof(float)) : 0);
}

inline float scale_of(const int8_t *head, int64_t head_dim) {
    float scale;
    std::memcpy(&scale, head + head_dim, sizeof scale);
    return scale;
}

template <class C>
float scale_of(const C *, int64_t) {
    return 1.0f;
}

// The keys or values of one kv head in the tile that is computed.
template <class C>
struct Rows {
    const char *at[WIDE_TILE];  // the last of them repeated
    int num;                    // TILE of few queries, WIDE_TILE of many
    const C *operator[](int j) const { return reinterpret_cast<const C *>(at[j]); }
    // those of the next kv head
    void next(int head_dim) {
        for (int j = 0; j < TILE; j++) at[j] += head_bytes<C>(head_dim);
        if (num == WIDE_TILE)
            for (int j = TILE; j < WIDE_TILE; j++) at[j] += head_bytes<C>(head_dim);
    }
};

// The keys and values that come next, fetched into the core's second cache before the products of each kv head: all heads of
// a token after the other, because memory is read faster in the order of its addresses. Lines that are asked for one by one
// between the products, or for the first cache, come slower. Of a few queries keys are fetched while keys are read, and
// values while values are, so that either is asked for as long before it is used.
struct Ahead {
    const char *keys, *values;
    const int32_t *slots;
    int num;
    int64_t row_bytes;

    // The `part`th of so many parts. Where it is a call, GCC leaves it out, because it has no effect that it knows.
    __attribute__((always_inline)) void fetch(const char *rows, int part, int parts) const {
        for (int j = num * part / parts; j < num * (part + 1) / parts; j++) {
            const char *const row = rows + slots[j] * row_bytes, *const end = row + row_bytes;
            for (const char *line = row - uintptr_t(row) % 64; line < end; line += 64) __builtin_prefetch(line, 0, 2);
        }
    }
    __attribute__((always_inline)) void fetch(int part, int parts) const { fetch(keys, part, parts), fetch(values, part, parts); }
};

// A block of LANES rows and columns, turned.
inline void turn(const float *from, int64_t from_stride, float *to, int64_t to_stride) {
    vf block[LANES];
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++) block[i] = load(from + i * from_stride);
    transpose(block);
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++) store(to + i * to_stride, block[i]);
}

// A thread's memory: queries, sums and weights of one item for all heads. It grows once.
struct Scratch {
    std::vector<float> q, out, best, sum, weights_of;  // the last: [Q][TILE], of a few queries, which have sum [Q][LANES]
    std::vector<int32_t> limits, owns;
    alignas(64) float keys[WIDE_TILE * MAX_HEAD_DIM];    // [WIDE_TILE][D]
    alignas(64) float values[WIDE_TILE * MAX_HEAD_DIM];  // [WIDE_TILE][D]
    alignas(64) float turned_values[WIDE_TILE / 2 * MAX_HEAD_DIM];
    alignas(64) float weights[WIDE_TILE * 2 * MAX_LANES];
    alignas(64) float turned[MAX_LANES * MAX_HEAD_DIM];
    void fit(size_t queries, size_t head_dim) {
        const size_t num = queries * head_dim + MAX_LANES;
        if (q.size() < num) q.resize(num), out.resize(num);
        if (best.size() >= queries) return;
        best.resize(queries), sum.resize(queries * LANES), weights_of.resize(queries * TILE);
    }
};

// A whole number that such scores exceed by a thousandth at most, and lie less than one below. Weights less their largest
// score would be rounded to bfloat16 differently with each tile that has a larger one; less this they are rounded alike by
// all, however many queries and keys are computed together.
inline vf whole_above(vf top) {
    const vf whole = top + 0.499f + 12582912.0f - 12582912.0f;  // 1.5 * 2^23: the nearest integer
    return top * top < 1e12f ? whole : top;  // beyond, rounding would take it away from the score
}

// The keys [first, stop) of a tile, counted from its start, that one query sees; [0, TILE) is the most.
struct Seen {
    int first, stop;
    bool any() const { return first < stop; }
};

inline Seen seen_of(int32_t limit, int32_t own, const Rule &rule, int start, int count) {
    return {rule.window ? std::max(0, own - rule.window - start) : 0, std::min(count, limit - start)};
}

}  // namespace attention
