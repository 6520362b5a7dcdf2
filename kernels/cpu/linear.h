// What linear layers over weights of any storage share: blocks of columns, tiles of sums in registers, prefetching.
// T tokens, N in, M out.
#pragma once
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <type_traits>

#include "pool.h"
#include "vector.h"

constexpr int BLOCK = 32;                // columns
constexpr int64_t ROWS_BYTES = 1 << 19;  // of inputs that stay in the cache of a core while all weights pass by
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

typedef int8_t vb __attribute__((vector_size(LANES)));

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

// Results [T, M] with rows `stride` apart, of T, or of float if they are wide. A narrow one is rounded once.
template <class T>
struct Output {
    void *to;
    const T *bias;  // [M], or null
    bool is_wide;
    int64_t stride, num_out;

    // sum_of(row, vector) of a tile of ROWS tokens times VECTORS vectors of columns from `column` on
    template <int ROWS, int VECTORS, class SumOf>
    inline void put_tile(int64_t first_row, int64_t column, SumOf sum_of) const {
#pragma GCC unroll 8
        for (int v = 0; v < VECTORS; v++) {
            const int64_t at = column + v * LANES, num = std::min<int64_t>(LANES, num_out - at);
            if (num <= 0) break;
            const vf shift = bias ? load_some(bias + at, num) : vf{};
#pragma GCC unroll 12
            for (int r = 0; r < ROWS; r++) {
                const vf sum = sum_of(r, v) + shift;
                const int64_t place = (first_row + r) * stride + at;
                is_wide ? put<float>(to, place, sum, num) : put<T>(to, place, sum, num);
            }
        }
    }
};

// body(rows, vectors, column) for the parts of a block of columns that a tile of so many tokens is computed in; the numbers
// of its tokens and vectors are types, known when it is compiled.
template <int ROWS = 1, class Body>
inline void each_part(int rows, int64_t column, int64_t num_out, Body &&body) {
    if constexpr (ROWS <= MAX_ROWS) {
        if (rows != ROWS) return each_part<ROWS + 1>(rows, column, num_out, body);
        constexpr int VECTORS = vectors_of(ROWS);
        for (const int64_t end = std::min(column + BLOCK, num_out); column < end; column += VECTORS * LANES)
            body(std::integral_constant<int, ROWS>{}, std::integral_constant<int, VECTORS>{}, column);
    }
}

// Packed weights: blocks of columns, each a stream of steps. `values` of a block are as pool::each_of_many counts them.
struct Stream {
    const void *weights;
    int64_t num_out, block_bytes, step_bytes, values;
};

// body(rows, vectors, tile, column, ahead) for all parts of all blocks
template <class Body>
inline void each_tile(int threads, const Tiles &tiles, const Stream &stream, Body &&body) {
    pool::each_of_many(threads, ceil_div(stream.num_out, BLOCK), stream.values, [&](int64_t block) {
        const void *const from = static_cast<const char *>(stream.weights) + block * stream.block_bytes;
        for (int64_t t = 0; t < tiles.num; t++) {
            const Ahead ahead = ahead_of(from, stream.block_bytes, stream.step_bytes, t, tiles.num);
            each_part(tiles.rows(t), block * BLOCK, stream.num_out, [&](auto rows, auto vectors, int64_t column) { body(rows, vectors, t, column, ahead); });
        }
    });
}

// body(first, num) for blocks of tokens, whose inputs stay in cache; their sizes differ by one at most.
template <class Body>
inline void each_block_of_tokens(int64_t tokens, int64_t row_bytes, Body &&body) {
    const int64_t most = std::max<int64_t>(1, ROWS_BYTES / row_bytes / MAX_ROWS) * MAX_ROWS, blocks = ceil_div(tokens, most);
    for (int64_t b = 0; b < blocks; b++) body(tokens * b / blocks, tokens * (b + 1) / blocks - tokens * b / blocks);
}

// A vector of inputs from n on, with zeros behind the last; as words, a pair of bfloat16 each.
template <class T>
inline vf inputs_at(const T *x, int64_t n, int64_t num_in, float) {
    const int64_t num = std::clamp<int64_t>(num_in - n, 0, LANES);
    return num == LANES ? load(x + n) : load_some(x + n, num);
}
inline vf inputs_at(const bf16 *x, int64_t n, int64_t num_in, int32_t) {
    const int64_t num = std::clamp<int64_t>(num_in - n, 0, 2 * LANES);
    vf words = {};
    if (num == 2 * LANES) std::memcpy(&words, x + n, sizeof words);
    else std::memcpy(&words, x + n, num * sizeof(bf16));
    return words;
}

// x [rows, N] with rows `stride` apart -> [padded N, or half of it][rows]; MAX_LANES behind it may be written.
template <class T, class Input>
void turn(const T *x, int64_t stride, int rows, int64_t num_in, Input *to) {
    constexpr int GROUPS = (MAX_ROWS + LANES - 1) / LANES;
    constexpr int64_t VALUES = std::is_same_v<Input, float> ? 1 : 2;  // of an Input
    for (int64_t n = 0; n < padded(num_in); n += VALUES * LANES) {
        vf parts[GROUPS][LANES];
        for (int g = 0; g * LANES < rows; g++) {
            for (int r = 0; r < LANES; r++)
                parts[g][r] = g * LANES + r >= rows ? vf{} : inputs_at(x + (g * LANES + r) * stride, n, num_in, Input{});
            transpose(parts[g]);
        }
        for (int64_t i = 0; i < LANES; i++)  // what a store writes too much is written over by the next
            for (int g = 0; g * LANES < rows; g++) std::memcpy(to + (n / VALUES + i) * rows + g * LANES, &parts[g][i], sizeof(vf));
    }
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
