// Linear layers over weights of 8 bits and inputs as they are ("weight-only"): out = (x weight^T) * scales + bias, in
// float32. Whole numbers are widened in registers; packed weights and their scales are those of linear_int8.cpp.
//
// T tokens, N in, M out. A sum goes over the inputs in their order, whatever the number of tokens.
#include "linear.h"
#include "replay.h"

namespace {

constexpr int GROUP = 4;                 // inputs whose weights for an output lie together
constexpr int64_t STEP = BLOCK * GROUP;  // weights of a group of inputs
constexpr int64_t ROWS_BYTES = 1 << 19;  // of widened inputs that are kept in the cache of a core

struct Job {
    const int8_t *weights;
    const float *scales;
    const void *bias;  // of T, or null
    void *out;         // of T, or of float
    bool is_wide;
    int64_t out_stride, num_in, num_out;
    int threads;
    int64_t block_bytes() const { return padded(num_in) / GROUP * STEP; }
};

// ROWS tokens times VECTORS vectors of columns from `column` on; x is [padded N][ROWS].
template <class T, int ROWS, int VECTORS>
void tile(const Job &job, const float *x, int64_t first_row, int64_t column, Ahead ahead) {
    const int8_t *weights = job.weights + column / BLOCK * job.block_bytes() + column % BLOCK * GROUP;
    const int8_t *const end = weights + job.block_bytes();
    vf sums[ROWS][VECTORS];
#pragma GCC unroll 12
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 8
        for (int v = 0; v < VECTORS; v++) sums[r][v] = vf{};
    for (; weights < end; weights += STEP, ahead.from += ahead.step) {
        ahead.ask<STEP>();
        vi packed[VECTORS];
#pragma GCC unroll 8
        for (int v = 0; v < VECTORS; v++) std::memcpy(&packed[v], weights + v * LANES * GROUP, sizeof packed[v]);
#pragma GCC unroll 4
        for (int byte = 0; byte < GROUP; byte++, x += ROWS) {
            vf widened[VECTORS];
#pragma GCC unroll 8
            for (int v = 0; v < VECTORS; v++) widened[v] = __builtin_convertvector(packed[v] << (24 - 8 * byte) >> 24, vf);
#pragma GCC unroll 12
            for (int r = 0; r < ROWS; r++) {
                const vf input = splat(x[r]);
#pragma GCC unroll 8
                for (int v = 0; v < VECTORS; v++) sums[r][v] += input * widened[v];
            }
        }
    }
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; v++) {
        const int64_t at = column + v * LANES, num = std::min<int64_t>(LANES, job.num_out - at);
        if (num <= 0) break;
        const vf scales = load(job.scales + at), bias = job.bias ? load_some((const T *)job.bias + at, num) : vf{};
#pragma GCC unroll 12
        for (int r = 0; r < ROWS; r++) {
            const vf sum = sums[r][v] * scales + bias;
            const int64_t to = (first_row + r) * job.out_stride + at;
            job.is_wide ? put<float>(job.out, to, sum, num) : put<T>(job.out, to, sum, num);
        }
    }
}

template <class T, int ROWS = 1>
void block_of(int rows, const Job &job, const float *x, int64_t first_row, int64_t column, Ahead ahead) {
    if constexpr (ROWS <= MAX_ROWS) {
        if (rows != ROWS) return block_of<T, ROWS + 1>(rows, job, x, first_row, column, ahead);
        constexpr int VECTORS = vectors_of(ROWS);
        const int64_t end = std::min(column + BLOCK, job.num_out);
        for (; column < end; column += VECTORS * LANES) tile<T, ROWS, VECTORS>(job, x, first_row, column, ahead);
    }
}

// A token's inputs as floats, every `stride`.
template <class T>
void widen(const T *x, int64_t num_in, float *to, int64_t stride) {
    for (int64_t n = 0; n < padded(num_in); n += LANES) {
        const int64_t num = std::clamp<int64_t>(num_in - n, 0, LANES);
        const vf some = num == LANES ? load(x + n) : load_some(x + n, num);
        for (int i = 0; i < LANES; i++) to[(n + i) * stride] = some[i];
    }
}

template <class T>
void multiply_block(const Job &job, const T *x, int64_t x_stride, int64_t first, int64_t tokens) {
    const Tiles tiles(tokens);
    const int64_t num_in = padded(job.num_in), block_bytes = job.block_bytes();
    float *const inputs = scratch(tokens * num_in);
    pool::each_of_many(job.threads, tiles.num, num_in * tokens / tiles.num, [&](int64_t t) {
        for (int r = 0; r < tiles.rows(t); r++)
            widen(x + (first + tiles.start(t) + r) * x_stride, job.num_in, inputs + tiles.start(t) * num_in + r, tiles.rows(t));
    });
    const int64_t values = std::max<int64_t>(1, BLOCK / 4 * num_in * (tokens + 8) / 8);
    pool::each_of_many(job.threads, ceil_div(job.num_out, BLOCK), values, [&](int64_t block) {
        for (int64_t t = 0; t < tiles.num; t++) {
            const Ahead ahead = ahead_of(job.weights + block * block_bytes, block_bytes, STEP, t, tiles.num);
            block_of<T>(tiles.rows(t), job, inputs + tiles.start(t) * num_in, first + tiles.start(t), block * BLOCK, ahead);
        }
    });
}

template <class T>
void multiply(const Job &job, const T *x, int64_t x_stride, int64_t tokens) {
    const int64_t most = std::max<int64_t>(1, ROWS_BYTES / (padded(job.num_in) * sizeof(float)) / MAX_ROWS) * MAX_ROWS;
    const int64_t blocks = ceil_div(tokens, most);
    for (int64_t b = 0; b < blocks; b++) {
        const int64_t first = tokens * b / blocks;
        multiply_block(job, x, x_stride, first, tokens * (b + 1) / blocks - first);
    }
}

}  // namespace

// x [T, N] and out [T, M] with rows a stride apart; bias [M] or null; out is float32 if `is_wide`
extern "C" void ramet_linear_int8wo(int dtype, const void *x, int64_t x_stride, const void *packed, const float *scales, const void *bias, void *out,
                                    int64_t out_stride, int64_t tokens, int64_t num_in, int64_t num_out, int is_wide, int threads) {
    const Job job = {(const int8_t *)packed, scales, bias, out, is_wide != 0, out_stride, num_in, num_out, threads};
    with_dtype(dtype, [&](auto value) { multiply(job, (const decltype(value) *)x, x_stride, tokens); });
}
REPLAYABLE(ramet_linear_int8wo)
