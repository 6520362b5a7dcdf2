// What tokens do to the state of one head of values (kernels/reference_delta.py has the arithmetic). They go through it one
// after the other, so what a token gets depends on no cut of its prompt. Some of them go through one block of a state's
// columns before the next block has its turn: it stays in the first cache meanwhile, and each token passes over it once.
#pragma once
#include <cstdint>
#include <cstring>

#include "vector.h"

namespace {

constexpr int BLOCK = 4;             // vectors of a state's columns at a time
constexpr int64_t MIN_COPIED = 4;  // tokens for which a block is copied: rows of 512 bytes share few places of a cache

// Some tokens of a row in one head of values, one behind the other.
struct Tokens {
    int64_t num, rows, width;  // K and V
    const float *q, *k, *v;    // of the first token
    int64_t stride;            // to those of the next
    const float *decay, *beta;
    float *o;
    int64_t o_stride;
};

// N vectors of a state's columns forget, are corrected by `missing` at k, and are read at q; and at `next`, if it is there,
// as the token behind this one does first.
template <int N, bool NEXT>
inline void correct(float *state, int64_t stride, int64_t rows, const float *q, const float *k, const float *next, float decay,
                    const vf (&missing)[N], vf (&read)[N], vf (&sums)[N]) {
    vf at_q[N] = {}, at_next[N] = {};
    for (int64_t r = 0; r < rows; r++) {
        float *to = state + r * stride;
        const vf key = splat(k[r]), query = splat(q[r]);
        vf behind = {};
        if constexpr (NEXT) behind = splat(next[r]);
#pragma GCC unroll 4
        for (int i = 0; i < N; i++) {
            vf value = load(to + i * LANES) * decay;
            add_product(value, missing[i], key);
            store(to + i * LANES, value);
            add_product(at_q[i], value, query);
            if constexpr (NEXT) add_product(at_next[i], value, behind);
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < N; i++) read[i] = at_q[i], sums[i] = at_next[i];
}

// All tokens go through N vectors of columns, from column `at` on. `state` is their first row, `stride` from one to the next.
template <int N>
void columns(float *state, int64_t stride, int64_t at, const Tokens &of) {
    vf sums[N] = {}, missing[N], read[N];
    for (int64_t r = 0; r < of.rows; r++)
#pragma GCC unroll 4
        for (int i = 0; i < N; i++) add_product(sums[i], load(state + r * stride + i * LANES), splat(of.k[r]));
    for (int64_t t = 0; t < of.num; t++) {
        const float *q = of.q + t * of.stride, *k = of.k + t * of.stride, *v = of.v + t * of.stride + at;
#pragma GCC unroll 4
        for (int i = 0; i < N; i++) missing[i] = (load(v + i * LANES) - sums[i] * of.decay[t]) * of.beta[t];
        if (t + 1 < of.num)
            correct<N, true>(state, stride, of.rows, q, k, k + of.stride, of.decay[t], missing, read, sums);
        else
            correct<N, false>(state, stride, of.rows, q, k, nullptr, of.decay[t], missing, read, sums);
#pragma GCC unroll 4
        for (int i = 0; i < N; i++) store(of.o + t * of.o_stride + at + i * LANES, read[i]);
    }
}

// The same with `some` columns of a state in a block [K, N LANES] of their own.
template <int N>
void copied(float *state, int64_t at, int64_t some, const Tokens &of, float *block) {
    constexpr int64_t WIDE = N * LANES;
    for (int64_t r = 0; r < of.rows; r++) std::memcpy(block + r * WIDE, state + r * of.width + at, some * sizeof(float));
    columns<N>(block, WIDE, at, of);
    for (int64_t r = 0; r < of.rows; r++) std::memcpy(state + r * of.width + at, block + r * WIDE, some * sizeof(float));
}

// state [K, V]; block [K, BLOCK LANES]
void advance(float *state, const Tokens &of, float *block) {
    const bool copies = of.num >= MIN_COPIED;
    int64_t at = 0;
    for (; at + BLOCK * LANES <= of.width; at += BLOCK * LANES)
        copies ? copied<BLOCK>(state, at, BLOCK * LANES, of, block) : columns<BLOCK>(state + at, of.width, at, of);
    for (; at + LANES <= of.width; at += LANES) copies ? copied<1>(state, at, LANES, of, block) : columns<1>(state + at, of.width, at, of);
    if (at < of.width) copied<1>(state, at, of.width - at, of, block);
}

}  // namespace
