// What linear layers over weights of any storage share: blocks of columns, tiles of sums in registers, prefetching.
// T tokens, N in, M out.
#pragma once
#include <algorithm>
#include <cstdlib>
#include <memory>

#include "pool.h"
#include "vector.h"

constexpr int BLOCK = 32;                // columns
constexpr int64_t PADDED = 32;           // inputs of a tile register
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int MAX_SUMS = 24;             // vectors of sums that registers hold beside weights and an input: of 32
#else
constexpr int MAX_SUMS = 12;             // of 16
#endif
constexpr int MAX_ROWS = MAX_SUMS / 2;   // tokens of a tile: two vectors of weights share the work of reading inputs
constexpr int64_t AHEAD = 4096;          // bytes of weights: 5.3 ms instead of 9.5 for the 200 MB of a step of four tokens

// The vectors of columns that a tile of so many tokens has sums for: enough for the latency of a sum, within a block.
constexpr int vectors_of(int rows) {
    return rows <= 2 ? BLOCK / LANES : rows * 5 < MAX_SUMS + 5 ? std::min(4, BLOCK / LANES) : 2;
}

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t padded(int64_t num_in) { return ceil_div(num_in, PADDED) * PADDED; }

// A loop with many sums does not run far enough ahead by itself to keep the memory busy.
inline void prefetch(const void *p, int64_t ahead) { __builtin_prefetch(static_cast<const char *>(p) + ahead, 0, 3); }

// What a tile asks the memory for while it computes: where its first step's lines are, and how far it is to the next one's.
// The first tile of a block reads it from memory, the others from the cache: then each asks for a part of the next block.
// Weights that are read once are fetched into the second cache, from where a register is filled in time: 5 % faster.
struct Ahead {
    const char *from;
    int64_t step;
    bool once;

    // Lines of so many bytes.
    template <int64_t BYTES>
    inline void ask() const {
#pragma GCC unroll 4
        for (int64_t line = 0; line < BYTES; line += 64)
            once ? __builtin_prefetch(from + line, 0, 2) : __builtin_prefetch(from + line, 0, 3);
    }
};
inline Ahead ahead_of(const void *block, int64_t block_bytes, int64_t step_bytes, int64_t tile, int64_t tiles) {
    const int64_t start = tiles == 1 ? AHEAD : block_bytes + block_bytes * tile / tiles;
    return {static_cast<const char *>(block) + start, std::max<int64_t>(1, step_bytes / tiles), tiles == 1};
}

// A tile's tokens among `tokens`: tiles differ by one at most.
struct Tiles {
    int64_t tokens, num;
    explicit Tiles(int64_t tokens) : tokens(tokens), num(ceil_div(tokens, MAX_ROWS)) {}
    int64_t start(int64_t tile) const { return tokens * tile / num; }
    int rows(int64_t tile) const { return int(start(tile + 1) - start(tile)); }
};

template <class T>
inline void put(void *out, int64_t at, vf x, int64_t num) {
    T *to = static_cast<T *>(out) + at;
    num == LANES ? store(to, x) : store_some(to, x, num);
}

// Grows and stays with its thread: the caller's holds a block of inputs.
inline float *scratch(int64_t size) {
    static thread_local std::unique_ptr<float[], decltype(&std::free)> kept(nullptr, std::free);
    static thread_local int64_t room = 0;
    if (room < size) {
        room = ceil_div(size, 1 << 14) << 14;
        kept.reset(static_cast<float *>(std::aligned_alloc(64, room * sizeof(float))));
    }
    return kept.get();
}
