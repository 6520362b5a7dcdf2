// Linear layers over weights of 8 bits and inputs as they are ("weight-only"): out = (x weight^T) * scales + bias, in
// float32. Whole numbers are widened in registers; packed weights and their scales are those of linear_int8.cpp.
//
// T tokens, N in, M out. A sum goes over the inputs in their order, whatever the number of tokens.
#include "linear.h"
#include "replay.h"

namespace {

constexpr int GROUP = 4;                 // inputs whose weights for an output lie together
constexpr int64_t STEP = BLOCK * GROUP;  // weights of a group of inputs

template <class T>
struct Job {
    const int8_t *weights;
    const float *scales;
    Output<T> out;
    int64_t num_in;
    int threads;
    int64_t block_bytes() const { return padded(num_in) / GROUP * STEP; }
};

// ROWS tokens times VECTORS vectors of columns from `column` on; x is as copy_inputs leaves it.
template <class T, int ROWS, int VECTORS>
__attribute__((noinline)) void tile(const Job<T> &job, const float *x, int64_t first_row, int64_t column, Ahead ahead) {
    const int8_t *weights = job.weights + column / BLOCK * job.block_bytes() + column % BLOCK * GROUP;
    const int8_t *const end = weights + job.block_bytes();
    vf sums[ROWS][VECTORS];
#pragma GCC unroll 12
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 8
        for (int v = 0; v < VECTORS; v++) sums[r][v] = vf{};
    for (; weights < end; x += (ROWS - 1) * PADDED)
#pragma GCC unroll 1
        for (const float *const run_end = x + PADDED; x < run_end; weights += STEP, ahead.from += ahead.step) {
            ahead.ask<STEP>();
#pragma GCC unroll 4
            for (int byte = 0; byte < GROUP; byte++, x++) {
                vf widened[VECTORS];
#pragma GCC unroll 8
                for (int v = 0; v < VECTORS; v++) {
                    vi packed;
                    std::memcpy(&packed, weights + v * LANES * GROUP, sizeof packed);
                    widened[v] = __builtin_convertvector(packed << (24 - 8 * byte) >> 24, vf);
                }
#pragma GCC unroll 12
                for (int r = 0; r < ROWS; r++) {
                    const vf input = splat(x[r * PADDED]);
#pragma GCC unroll 8
                    for (int v = 0; v < VECTORS; v++) add_product(sums[r][v], input, widened[v]);
                }
                forget(weights, sums[ROWS - 1][VECTORS - 1]);
            }
        }
    vf scales[VECTORS];
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; v++) scales[v] = load(job.scales + column + v * LANES);
    job.out.template put_tile<ROWS, VECTORS>(first_row, column, [&](int r, int v) { return sums[r][v] * scales[v]; });
}

template <class T>
void multiply_block(const Job<T> &job, const T *x, int64_t x_stride, int64_t first, int64_t tokens) {
    const Tiles tiles(tokens);
    const int64_t num_in = padded(job.num_in);
    float *const inputs = reinterpret_cast<float *>(scratch(tokens * num_in * sizeof(float)));
    each_token(job.threads, tiles, num_in / 4, [&](int64_t token, int64_t start, int64_t r, int64_t rows) {
        copy_inputs(x + (first + token) * x_stride, job.num_in, inputs + start * num_in + r * PADDED, rows * PADDED);
    });
    const int64_t values = std::max<int64_t>(1, BLOCK / 4 * num_in * (tokens + 8) / 8);
    const Stream stream = {job.weights, job.out.num_out, job.block_bytes(), STEP, values};
    each_tile(job.threads, tiles, stream, [&](auto rows, auto vectors, int64_t t, int64_t column, Ahead ahead) {
        tile<T, rows, vectors>(job, inputs + tiles.start(t) * num_in, first + tiles.start(t), column, ahead);
    });
}

}  // namespace

// x [T, N] and out [T, M] with rows a stride apart; bias [M] or null; out is float32 if `is_wide`
extern "C" void ramet_linear_int8wo(int dtype, const void *x, int64_t x_stride, const void *packed, const float *scales, const void *bias, void *out,
                                    int64_t out_stride, int64_t tokens, int64_t num_in, int64_t num_out, int is_wide, int threads) {
    with_dtype(dtype, [&](auto value) {
        using T = decltype(value);
        const Job<T> job = {(const int8_t *)packed, scales, {out, (const T *)bias, is_wide != 0, out_stride, num_out}, num_in, threads};
        each_block_of_tokens(tokens, padded(num_in) * sizeof(float), [&](int64_t first, int64_t num) {
            multiply_block(job, (const T *)x, x_stride, first, num);
        });
    });
}
REPLAYABLE(ramet_linear_int8wo)
