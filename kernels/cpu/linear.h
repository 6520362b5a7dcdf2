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
constexpr bool FEW_REGISTERS = MAX_SUMS < 24;
constexpr int MAX_ROWS = MAX_SUMS / 2;   // tokens of a tile: two vectors of weights share the work of reading inputs
constexpr int64_t AHEAD = 4096;          // bytes of weights: 5.3 ms instead of 9.5 for the 200 MB of a step of four tokens

// The vectors of columns that a tile of so many tokens has sums for: enough for the latency of a sum, within a block.
constexpr int vectors_of(int rows) {
    return rows <= 2 ? BLOCK / LANES : rows * 5 < MAX_SUMS + 5 ? std::min(4, BLOCK / LANES) : 2;
}

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t padded(int64_t num_in) { return ceil_div(num_in, PADDED) * PADDED; }

// What lies at p is loaded again behind this, once `sum` is known. Where registers are few, compilers would rather keep in
// them all weights that a step widens, and sums in memory: 2.4 times as slow.
template <class T, class V>
__attribute__((always_inline)) inline void forget([[maybe_unused]] const T *&p, [[maybe_unused]] V &sum) {
#if RAMET_AVX2_ALONE
    V known = sum;
    asm("" : "+r"(p), "+x"(known));
    sum = known;
#endif
}

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
    __attribute__((always_inline)) void ask() const {
#pragma GCC unroll 4
        for (int64_t line = 0; line < BYTES; line += 64)
            once ? __builtin_prefetch(from + line, 0, 2) : __builtin_prefetch(from + line, 0, 3);
    }
};
inline Ahead ahead_of(const void *block, int64_t block_bytes, int64_t step_bytes, int64_t pass, int64_t passes) {
    const int64_t start = passes == 1 ? AHEAD : block_bytes + block_bytes * pass / passes;
    return {static_cast<const char *>(block) + start, std::max<int64_t>(1, step_bytes / passes), passes == 1};
}

// A tile's tokens among `tokens`: tiles differ by one at most.
struct Tiles {
    int64_t tokens, num;
    explicit Tiles(int64_t tokens) : tokens(tokens), num(ceil_div(tokens, MAX_ROWS)) {}
    int64_t start(int64_t tile) const { return tokens * tile / num; }
    int rows(int64_t tile) const { return int(start(tile + 1) - start(tile)); }
    int64_t of(int64_t token) const { return ((token + 1) * num - 1) / tokens; }
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
    __attribute__((always_inline)) void put_tile(int64_t first_row, int64_t column, SumOf sum_of) const {
        is_wide ? put_as<float, ROWS, VECTORS>(first_row, column, sum_of) : put_as<T, ROWS, VECTORS>(first_row, column, sum_of);
    }

  private:
    template <class To, int ROWS, int VECTORS, class SumOf>
    __attribute__((always_inline)) void put_as(int64_t first_row, int64_t column, SumOf sum_of) const {
        To *const first = static_cast<To *>(to) + first_row * stride;
#pragma GCC unroll 8
        for (int v = 0; v < VECTORS; v++) {
            const int64_t at = column + v * LANES, num = num_out - at;
            if (num < LANES) return put_last<To, ROWS, VECTORS>(first, at, num, v, sum_of);
            const vf shift = bias ? load(bias + at) : vf{};
            To *row = first + at;
#pragma GCC unroll 12
            for (int r = 0; r < ROWS; r++, row += stride) store(row, sum_of(r, v) + shift);
        }
    }
    template <class To, int ROWS, int VECTORS, class SumOf>
    __attribute__((always_inline)) void put_last(To *first, int64_t at, int64_t num, int v, SumOf sum_of) const {
        if (num <= 0) return;
        const vf shift = bias ? load_some(bias + at, num) : vf{};
        for (int r = 0; r < ROWS; r++) store_some(first + r * stride + at, sum_of(r, v) + shift, num);
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
            each_part(tiles.rows(t), block * BLOCK, stream.num_out, [&](auto rows, auto vectors, int64_t column) {
                constexpr int64_t parts = BLOCK / (vectors * LANES);
                const int64_t pass = t * parts + column % BLOCK / (vectors * LANES);
                body(rows, vectors, t, column, ahead_of(from, stream.block_bytes, stream.step_bytes, pass, tiles.num * parts));
            });
        }
    });
}

// body(token, first, r, rows): a token of a block is the r-th of a tile of so many, which begins at `first`. For its inputs.
template <class Body>
inline void each_token(int threads, const Tiles &tiles, int64_t values, Body &&body) {
    pool::each_of_many(threads, tiles.tokens, values, [&](int64_t token) {
        const int64_t tile = tiles.of(token), first = tiles.start(tile);
        body(token, first, token - first, tiles.rows(tile));
    });
}

// body(first, num) for blocks of tokens, whose inputs stay in cache; their sizes differ by one at most.
template <class Body>
inline void each_block_of_tokens(int64_t tokens, int64_t row_bytes, Body &&body) {
    const int64_t most = std::max<int64_t>(1, ROWS_BYTES / row_bytes / MAX_ROWS) * MAX_ROWS, blocks = ceil_div(tokens, most);
    for (int64_t b = 0; b < blocks; b++) body(tokens * b / blocks, tokens * (b + 1) / blocks - tokens * b / blocks);
}

// A tile's inputs are [padded N / PADDED][ROWS][PADDED]: a token's are copied in runs, and a step reads those of all tokens
// from a few lines. Here those of one token, with zeros behind N; it is `stride` inputs from one run to the next.
template <class T>
inline void copy_inputs(const T *x, int64_t num_in, float *to, int64_t stride) {
    for (int64_t start = 0; start < num_in; start += PADDED, to += stride)
#pragma GCC unroll 8
        for (int64_t n = 0; n < PADDED; n += LANES) {
            const int64_t num = std::clamp<int64_t>(num_in - start - n, 0, LANES);
            store(to + n, num == LANES ? load(x + start + n) : load_some(x + start + n, num));
        }
}
inline void copy_inputs(const bf16 *x, int64_t num_in, bf16 *to, int64_t stride) {
    const int64_t whole = num_in / PADDED * PADDED;
    for (int64_t start = 0; start < whole; start += PADDED, to += stride) std::memcpy(to, x + start, PADDED * sizeof(bf16));
    if (whole == num_in) return;
    std::memset(to, 0, PADDED * sizeof(bf16));
    std::memcpy(to, x + whole, (num_in - whole) * sizeof(bf16));
}

// Grows and stays with its thread: the caller's holds a block of inputs.
inline char *scratch(int64_t bytes) {
    static thread_local std::unique_ptr<char[], decltype(&std::free)> kept(nullptr, std::free);
    static thread_local int64_t room = 0;
    if (room < bytes) {
        room = ceil_div(bytes, 1 << 16) << 16;
        kept.reset(static_cast<char *>(std::aligned_alloc(64, room)));
    }
    return kept.get();
}
