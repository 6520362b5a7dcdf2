// Linear layers over weights of 8 bits: out = (q(x) q(weight)^T) * scales + bias, with sums in whole numbers.
//
// A weight is a whole number in [-127, 127], of a checkpoint also -128, times its output's scale, an input one in
// [-127, 127] times its token's scale, found when the token comes ("dynamic"). Sums of products of 8 bits are exact, so
// nothing here depends on an order. Where the CPU multiplies unsigned by signed bytes (VNNI), inputs are stored with 128
// added, which is subtracted as a sum of weights.
//
// T tokens, N in, M out. Packed weights are [M / BLOCK][N / 4][BLOCK, 4], with zeros up to PADDED inputs and in the last
// block; scales and sums of each output's weights are [M rounded up to BLOCK].
#include <cmath>

#include "byte_products.h"
#include "linear.h"
#include "replay.h"

namespace {

using namespace byte_products;

constexpr int64_t STEP = BLOCK * GROUP;  // weights of a group of inputs
constexpr int64_t RUN = PADDED / GROUP;  // groups of a token that lie together, see copy_inputs
constexpr float LARGEST = 127.0f;

template <class T>
struct Job {
    const int8_t *weights;
    const float *scales;
    const int32_t *sums;
    Output<T> out;
    int64_t num_in;
    int threads;
    int64_t num_groups() const { return padded(num_in) / GROUP; }
};

// ROWS tokens times VECTORS vectors of columns from `column` on; x is as `quantise` leaves it, x_scales [ROWS].
template <class T, int ROWS, int VECTORS>
__attribute__((noinline)) void tile(const Job<T> &job, const int32_t *x, const float *x_scales, int64_t first_row, int64_t column, Ahead ahead) {
    const int8_t *weights = job.weights + column / BLOCK * job.num_groups() * STEP + column % BLOCK * GROUP;
    const int8_t *const end = weights + job.num_groups() * STEP;
    vi sums[ROWS][VECTORS];
#pragma GCC unroll 12
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 8
        for (int v = 0; v < VECTORS; v++) sums[r][v] = vi{};
    for (; weights < end; x += (ROWS - 1) * RUN)
#pragma GCC unroll 1
        for (const int32_t *const run_end = x + RUN; x < run_end; x++, weights += STEP, ahead.from += ahead.step) {
            ahead.ask<STEP>();
            vi packed[VECTORS];
#pragma GCC unroll 8
            for (int v = 0; v < VECTORS; v++) std::memcpy(&packed[v], weights + v * LANES * GROUP, sizeof packed[v]);
#pragma GCC unroll 12
            for (int r = 0; r < ROWS; r++) {
                const vi input = x[r * RUN] - vi{};
#pragma GCC unroll 8
                for (int v = 0; v < VECTORS; v++) sums[r][v] = byte_products::add(sums[r][v], input, packed[v]);
            }
        }
    vf scales[VECTORS];
    vi of_offset[VECTORS];
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; v++) {
        scales[v] = load(job.scales + column + v * LANES);
        std::memcpy(&of_offset[v], job.sums + column + v * LANES, sizeof of_offset[v]);
    }
    job.out.template put_tile<ROWS, VECTORS>(first_row, column, [&](int r, int v) {
        return __builtin_convertvector(sums[r][v] - of_offset[v] * OFFSET, vf) * (scales[v] * x_scales[r]);
    });
}

// A token's inputs as whole numbers, in runs as those of copy_inputs; returns its scale.
template <class T>
float quantise(const T *x, int64_t num_in, int8_t *to, int64_t stride) {
    vf most[2] = {};
    int64_t n = 0;
    for (; n + 2 * LANES <= num_in; n += 2 * LANES) {
        vf a, b;
        load_pair(x + n, a, b);
        most[0] = larger(most[0], larger(a, -a)), most[1] = larger(most[1], larger(b, -b));
    }
    for (; n < num_in; n += LANES) {
        const vf some = load_some(x + n, std::min<int64_t>(LANES, num_in - n));
        most[0] = larger(most[0], larger(some, -some));
    }
    const float largest = max_of(larger(most[0], most[1])), scale = largest / LARGEST, inverse = largest > 0 ? LARGEST / largest : 0.0f;
    const vf round = splat(12582912.0f);  // 1.5 * 2^23: what is added to it is rounded to a whole number
    for (int64_t start = 0; start < padded(num_in); start += PADDED, to += stride)
#pragma GCC unroll 8
        for (int64_t n = 0; n < PADDED; n += LANES) {
            const int64_t num = num_in - start - n;
            const vf some = num >= LANES ? load(x + start + n) : load_some(x + start + n, std::max<int64_t>(0, num));
            const vi whole = bit_cast<vi>(some * inverse + round) - bit_cast<vi>(round) + OFFSET;
            const vb bytes = to_bytes(whole);
            std::memcpy(to + n, &bytes, sizeof bytes);
        }
    return scale;
}

template <class T>
void multiply_block(const Job<T> &job, const T *x, int64_t x_stride, int64_t first, int64_t tokens) {
    const Tiles tiles(tokens);
    const int64_t num_groups = job.num_groups();
    int32_t *const inputs = reinterpret_cast<int32_t *>(scratch(tokens * (num_groups + 1) * sizeof(int32_t)));
    float *const x_scales = reinterpret_cast<float *>(inputs + tokens * num_groups);
    each_token(job.threads, tiles, 2 * job.num_in, [&](int64_t token, int64_t start, int64_t r, int64_t rows) {
        int32_t *const to = inputs + start * num_groups + r * RUN;
        x_scales[token] = quantise(x + (first + token) * x_stride, job.num_in, reinterpret_cast<int8_t *>(to), rows * PADDED);
    });
    const int64_t values = std::max<int64_t>(1, BLOCK / 8 * padded(job.num_in) * (tokens + 8) / 8);
    const Stream stream = {job.weights, job.out.num_out, num_groups * STEP, STEP, values};
    each_tile(job.threads, tiles, stream, [&](auto rows, auto vectors, int64_t t, int64_t column, Ahead ahead) {
        const int64_t start = tiles.start(t);
        tile<T, rows, vectors>(job, inputs + start * num_groups, x_scales + start, first + start, column, ahead);
    });
}

inline int64_t place(int64_t out, int64_t in, int64_t num_groups) {
    return (out / BLOCK * num_groups + in / GROUP) * STEP + out % BLOCK * GROUP + in % GROUP;
}

template <class T>
inline float value_at(const T *p) { return load_some(p, 1)[0]; }

template <class T>
void pack_row(const T *weight, int64_t out, int64_t num_in, int8_t *packed, float *scales, int32_t *sums) {
    float largest = 0;
    for (int64_t in = 0; in < num_in; in++) largest = std::max(largest, std::fabs(value_at(weight + in)));
    scales[out] = largest / LARGEST, sums[out] = 0;
    const float inverse = largest > 0 ? LARGEST / largest : 0.0f;
    for (int64_t in = 0; in < num_in; in++) {
        const int whole = (int)std::nearbyint((double)value_at(weight + in) * inverse);
        packed[place(out, in, padded(num_in) / GROUP)] = int8_t(whole);
        sums[out] += whole;
    }
}

}  // namespace

// weight [M, N] with rows `stride` apart; packed, scales and sums are zero where nothing belongs
extern "C" void ramet_pack_int8(int dtype, const void *weight, int64_t stride, int64_t num_out, int64_t num_in, void *packed, float *scales,
                                int32_t *sums, int threads) {
    with_dtype(dtype, [&](auto value) {
        using T = decltype(value);
        pool::each_of_many(threads, num_out, num_in, [&](int64_t out) {
            pack_row((const T *)weight + out * stride, out, num_in, (int8_t *)packed, scales, sums);
        });
    });
}

// whole [M, N] as a checkpoint has it, in [-128, 127]; packed and sums are zero where nothing belongs
extern "C" void ramet_repack_int8(const void *whole, int64_t num_out, int64_t num_in, void *packed, int32_t *sums, int threads) {
    pool::each_of_many(threads, num_out, num_in, [&](int64_t out) {
        const int8_t *const row = (const int8_t *)whole + out * num_in;
        for (int64_t in = 0; in < num_in; in++) {
            ((int8_t *)packed)[place(out, in, padded(num_in) / GROUP)] = row[in];
            sums[out] += row[in];
        }
    });
}

// x [T, N] and out [T, M] with rows a stride apart; bias [M] or null; out is float32 if `is_wide`
extern "C" void ramet_linear_int8(int dtype, const void *x, int64_t x_stride, const void *packed, const float *scales, const int32_t *sums,
                                  const void *bias, void *out, int64_t out_stride, int64_t tokens, int64_t num_in, int64_t num_out, int is_wide,
                                  int threads) {
    with_dtype(dtype, [&](auto value) {
        using T = decltype(value);
        const Job<T> job = {(const int8_t *)packed, scales, sums, {out, (const T *)bias, is_wide != 0, out_stride, num_out}, num_in, threads};
        each_block_of_tokens(tokens, padded(num_in), [&](int64_t first, int64_t num) { multiply_block(job, (const T *)x, x_stride, first, num); });
    });
}
REPLAYABLE(ramet_linear_int8)

// out [num, N]: these rows of a packed weight, times `scale`
extern "C" void ramet_unpack_int8(int dtype, const void *packed, const float *scales, int64_t num_in, const int64_t *rows, int64_t num, float scale,
                                  void *out, int threads) {
    with_dtype(dtype, [&](auto value) {
        using T = decltype(value);
        pool::each_of_many(threads, num, num_in, [&](int64_t i) {
            for (int64_t in = 0; in < num_in; in++) {
                const float whole = ((const int8_t *)packed)[place(rows[i], in, padded(num_in) / GROUP)];
                store_some((T *)out + i * num_in + in, splat(whole * (scales[rows[i]] * scale)), 1);
            }
        });
    });
}
REPLAYABLE(ramet_unpack_int8)
