// Linear layers, out = x weight^T + bias, over weights that were packed once so that they are read in one stream.
//
// Arithmetic is float32 whatever the storage: two-byte weights are widened in registers. On CPUs that have bfloat16 dot
// products but no tiles, these make no more products a second than float32 ones, so nothing here uses them. A sum goes
// over the inputs in their order, whatever the number of tokens: what a token is computed with does not change its
// output. The tile of sums in registers follows Goto and van de Geijn 2008.
//
// T tokens, N in, M out. Packed weights are [M / BLOCK][N / 2][BLOCK, 2] for bfloat16, where a pair of inputs is widened
// with one operation each, and [M / BLOCK][N / 2][2, BLOCK] for the others. Zeros fill the last block, and inputs up to a
// multiple of PADDED. Tile registers, where a CPU has some, read the same bfloat16 weights.
#include <atomic>

#include "linear.h"
#include "replay.h"
#include "tiles.h"

namespace {

constexpr int64_t PAIR = 2 * BLOCK;      // weights of a pair of inputs
constexpr int64_t ROWS_BYTES = 1 << 19;  // of widened inputs that are kept in the cache of a core

template <class T>
inline void widen_pair(const T *p, vf &even, vf &odd) {
    even = load(p), odd = load(p + BLOCK);
}
inline void widen_pair(const bf16 *p, vf &even, vf &odd) { load_pair(p, even, odd); }

// Where the weight of an output and an input lies.
template <class T>
inline int64_t place(int64_t out, int64_t in, int64_t num_pairs) {
    const int64_t pair = (out / BLOCK * num_pairs + in / 2) * PAIR, column = out % BLOCK;
    return pair + (std::is_same_v<T, bf16> ? column * 2 + in % 2 : in % 2 * BLOCK + column);
}

template <class T>
struct Job {
    const T *weights, *bias;
    void *out;  // of T, or of float
    bool is_wide;
    int64_t out_stride, num_in, num_out;
    int threads;
    int64_t num_pairs() const { return padded(num_in) / 2; }
};

// ROWS tokens times VECTORS vectors of columns from `column` on; x is [padded N][ROWS].
template <class T, int ROWS, int VECTORS>
void tile(const Job<T> &job, const float *x, int64_t first_row, int64_t column, Ahead ahead) {
    constexpr int STEP = std::is_same_v<T, bf16> ? 2 * LANES : LANES;  // weights from a vector of columns to the next
    const T *weights = job.weights + column / BLOCK * job.num_pairs() * PAIR + column % BLOCK / LANES * STEP;
    const T *const end = weights + job.num_pairs() * PAIR;
    vf sums[ROWS][VECTORS];
#pragma GCC unroll 12
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 8
        for (int v = 0; v < VECTORS; v++) sums[r][v] = vf{};
    for (; weights < end; weights += PAIR, x += 2 * ROWS, ahead.from += ahead.step) {
        vf even[VECTORS], odd[VECTORS];
#pragma GCC unroll 4
        for (size_t line = 0; line < PAIR * sizeof(T); line += 64) prefetch(ahead.from, line);
#pragma GCC unroll 8
        for (int v = 0; v < VECTORS; v++) widen_pair(weights + v * STEP, even[v], odd[v]);
        const auto add = [&](const float *inputs, const vf *widened) {
#pragma GCC unroll 12
            for (int r = 0; r < ROWS; r++) {
                const vf input = splat(inputs[r]);
#pragma GCC unroll 8
                for (int v = 0; v < VECTORS; v++) sums[r][v] += input * widened[v];
            }
        };
        add(x, even), add(x + ROWS, odd);
    }
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; v++) {
        const int64_t at = column + v * LANES, num = std::min<int64_t>(LANES, job.num_out - at);
        if (num <= 0) break;
        const vf bias = job.bias ? load_some(job.bias + at, num) : vf{};
#pragma GCC unroll 12
        for (int r = 0; r < ROWS; r++) {
            const int64_t to = (first_row + r) * job.out_stride + at;
            job.is_wide ? put<float>(job.out, to, sums[r][v] + bias, num) : put<T>(job.out, to, sums[r][v] + bias, num);
        }
    }
}

// A block of columns for a tile of ROWS tokens.
template <class T, int ROWS>
void block_of(const Job<T> &job, const float *x, int64_t first_row, int64_t column, Ahead ahead) {
    constexpr int VECTORS = vectors_of(ROWS);
    const int64_t end = std::min(column + BLOCK, job.num_out);
    for (; column < end; column += VECTORS * LANES) tile<T, ROWS, VECTORS>(job, x, first_row, column, ahead);
}

template <class T, int ROWS = 1>
void block_of(int rows, const Job<T> &job, const float *x, int64_t first_row, int64_t column, Ahead ahead) {
    if constexpr (ROWS <= MAX_ROWS) {
        if (rows == ROWS) return block_of<T, ROWS>(job, x, first_row, column, ahead);
        block_of<T, ROWS + 1>(rows, job, x, first_row, column, ahead);
    }
}

// x [rows, N] with rows `stride` apart -> [padded N][rows]; MAX_LANES floats behind it may be written.
template <class T>
void turn(const T *x, int64_t stride, int rows, int64_t num_in, float *to) {
    constexpr int GROUPS = (MAX_ROWS + LANES - 1) / LANES;
    for (int64_t n = 0; n < padded(num_in); n += LANES) {
        const int64_t num = std::clamp<int64_t>(num_in - n, 0, LANES);
        vf parts[GROUPS][LANES];
        for (int g = 0; g * LANES < rows; g++) {
            for (int r = 0; r < LANES; r++) {
                const T *from = x + (g * LANES + r) * stride + n;
                parts[g][r] = g * LANES + r >= rows ? vf{} : num == LANES ? load(from) : load_some(from, num);
            }
            transpose(parts[g]);
        }
        for (int64_t i = 0; i < LANES; i++)  // what a store writes too much is written over by the next
            for (int g = 0; g * LANES < rows; g++) store(to + (n + i) * rows + g * LANES, parts[g][i]);
    }
}

// Of a block of columns, as pool::each_of_many counts: reading it takes as long as computing it for some tokens.
template <class T>
int64_t values_of_block(const Job<T> &job, int64_t tokens) {
    return std::max<int64_t>(1, BLOCK / 4 * padded(job.num_in) * (tokens + 8) / 16);
}

// A block of tokens, whose widened inputs stay in cache while all weights pass by.
template <class T>
void multiply_block(const Job<T> &job, const T *x, int64_t x_stride, int64_t first, int64_t tokens) {
    const Tiles tiles(tokens);
    const int64_t num_in = padded(job.num_in);
    float *const turned = scratch(tokens * num_in + tiles.num * MAX_LANES);
    const auto x_of = [&](int64_t t) { return turned + tiles.start(t) * num_in + t * MAX_LANES; };
    pool::each_of_many(job.threads, tiles.num, num_in * tokens / tiles.num, [&](int64_t t) {
        turn(x + (first + tiles.start(t)) * x_stride, x_stride, tiles.rows(t), job.num_in, x_of(t));
    });
    pool::each_of_many(job.threads, ceil_div(job.num_out, BLOCK), values_of_block(job, tokens), [&](int64_t block) {
        const T *const weights = job.weights + block * job.num_pairs() * PAIR;
        for (int64_t t = 0; t < tiles.num; t++) {
            const Ahead ahead = ahead_of(weights, job.num_pairs() * PAIR * sizeof(T), PAIR * sizeof(T), t, tiles.num);
            block_of<T>(tiles.rows(t), job, x_of(t), first + tiles.start(t), block * BLOCK, ahead);
        }
    });
}

#if RAMET_TILES

// Up to 32 tokens times a block of columns; x is [tokens][padded N].
void tile_block(const Job<bf16> &job, const bf16 *x, int64_t first_row, int tokens, int64_t column) {
    using namespace tiles;
    const int64_t num_in = padded(job.num_in), x_bytes = num_in * sizeof(bf16), pair_bytes = PAIR * sizeof(bf16);
    const bf16 *weights = job.weights + column * num_in, *const second = x + SIDE * num_in;
    const bool both = tokens > SIDE;
    clear<0>(), clear<1>(), clear<2>(), clear<3>();
    for (int64_t in = 0; in < num_in; in += INPUTS, weights += SIDE * PAIR) {
        for (int pair = 0; pair < SIDE; pair++) prefetch(weights + pair * PAIR, AHEAD), prefetch(weights + pair * PAIR, AHEAD + 64);
        load_from<4>(x + in, x_bytes);
        load_from<6>(weights, pair_bytes);
        load_from<7>(weights + BLOCK, pair_bytes);
        multiply<0, 4, 6>(), multiply<1, 4, 7>();
        if (both) load_from<5>(second + in, x_bytes), multiply<2, 5, 6>(), multiply<3, 5, 7>();
    }
    alignas(64) float sums[2 * SIDE][BLOCK];
    constexpr int64_t stride = BLOCK * sizeof(float);
    store_to<0>(sums[0], stride), store_to<1>(sums[0] + SIDE, stride);
    if (both) store_to<2>(sums[SIDE], stride), store_to<3>(sums[SIDE] + SIDE, stride);
    for (int v = 0; v < BLOCK / LANES; v++) {
        const int64_t at = column + v * LANES, num = std::min<int64_t>(LANES, job.num_out - at);
        if (num <= 0) break;
        const vf bias = job.bias ? load_some(job.bias + at, num) : vf{};
        for (int r = 0; r < tokens; r++) {
            const vf sum = load(sums[r] + v * LANES) + bias;
            const int64_t to = (first_row + r) * job.out_stride + at;
            job.is_wide ? put<float>(job.out, to, sum, num) : put<bf16>(job.out, to, sum, num);
        }
    }
}

void multiply_block_by_tiles(const Job<bf16> &job, const bf16 *x, int64_t x_stride, int64_t first, int64_t tokens) {
    const int64_t num_in = padded(job.num_in), tiles_of_rows = ceil_div(tokens, 2 * tiles::SIDE);
    bf16 *const rows = reinterpret_cast<bf16 *>(scratch(tokens * num_in / 2));
    pool::each_of_many(job.threads, tokens, num_in / 4, [&](int64_t t) {
        std::memcpy(rows + t * num_in, x + (first + t) * x_stride, job.num_in * sizeof(bf16));
        std::memset(rows + t * num_in + job.num_in, 0, (num_in - job.num_in) * sizeof(bf16));
    });
    pool::each_stretch(job.threads, ceil_div(job.num_out, BLOCK), pool::MIN_VALUES / values_of_block(job, tokens / 8), [&](int64_t block, int64_t stop) {
        for (int64_t t = 0; t < tiles_of_rows; t++) {
            const int64_t row = t * 2 * tiles::SIDE;
            const int num = int(std::min<int64_t>(2 * tiles::SIDE, tokens - row));
            if (t == 0 || t + 1 == tiles_of_rows) tiles::shape(std::min(num, tiles::SIDE), std::max(0, num - tiles::SIDE));
            for (int64_t b = block; b < stop; b++) tile_block(job, rows + row * num_in, first + row, num, b * BLOCK);
        }
        tiles::done();
    });
}

std::atomic<bool> tiles_are_used{false};
constexpr int64_t MIN_TILE_TOKENS = 4;  // below, sums in vector registers keep up with the memory

#endif

template <class T>
void multiply(const Job<T> &job, const T *x, int64_t x_stride, int64_t tokens) {
#if RAMET_TILES
    if constexpr (std::is_same_v<T, bf16>)
        if (tokens >= MIN_TILE_TOKENS && tiles_are_used.load(std::memory_order_relaxed) && tiles::allowed()) {
            const int64_t most = std::max<int64_t>(1, ROWS_BYTES / (padded(job.num_in) * sizeof(bf16)) / (2 * tiles::SIDE)) * 2 * tiles::SIDE;
            for (int64_t first = 0; first < tokens; first += most)
                multiply_block_by_tiles(job, x, x_stride, first, std::min(most, tokens - first));
            return;
        }
#endif
    const int64_t most = std::max<int64_t>(1, ROWS_BYTES / (padded(job.num_in) * sizeof(float)) / MAX_ROWS) * MAX_ROWS;
    const int64_t blocks = ceil_div(tokens, most);
    for (int64_t b = 0; b < blocks; b++) {
        const int64_t first = tokens * b / blocks;
        multiply_block(job, x, x_stride, first, tokens * (b + 1) / blocks - first);
    }
}

template <class T>
void pack(const T *weight, int64_t stride, int64_t num_out, int64_t num_in, T *packed, int threads) {
    const int64_t num_pairs = padded(num_in) / 2;
    pool::each(threads, ceil_div(num_out, BLOCK), [&](int64_t block) {
        for (int64_t in = 0; in < 2 * num_pairs; in++)
            for (int64_t out = block * BLOCK; out < (block + 1) * BLOCK; out++)
                packed[place<T>(out, in, num_pairs)] = out < num_out && in < num_in ? weight[out * stride + in] : T{};
    });
}

template <class T>
void unpack(const T *packed, int64_t num_in, const int64_t *rows, int64_t num, float scale, T *out, int threads) {
    const int64_t num_pairs = padded(num_in) / 2;
    pool::each(threads, num, [&](int64_t i) {
        T *const to = out + i * num_in;
        for (int64_t in = 0; in < num_in; in++) to[in] = packed[place<T>(rows[i], in, num_pairs)];
        if (scale == 1.0f) return;
        for (int64_t in = 0; in < num_in; in += LANES) {
            const int64_t some = std::min<int64_t>(LANES, num_in - in);
            put<T>(to, in, load_some(to + in, some) * scale, some);
        }
    });
}

}  // namespace

// Whether bfloat16 layers use tile registers from now on, where there are some; at first they do not.
extern "C" void ramet_use_tiles([[maybe_unused]] int used) {
#if RAMET_TILES
    tiles_are_used = used != 0;
#endif
}

// Weights that `packed` has room for.
extern "C" int64_t ramet_packed_size(int64_t num_out, int64_t num_in) { return ceil_div(num_out, BLOCK) * BLOCK * padded(num_in); }

// weight [M, N] with rows `stride` apart
extern "C" void ramet_pack(int dtype, const void *weight, int64_t stride, int64_t num_out, int64_t num_in, void *packed, int threads) {
    with_dtype(dtype, [&](auto value) {
        using T = decltype(value);
        pack((const T *)weight, stride, num_out, num_in, (T *)packed, threads);
    });
}

// out [num, N]: these rows of a packed weight, times `scale`
extern "C" void ramet_unpack(int dtype, const void *packed, int64_t num_in, const int64_t *rows, int64_t num, float scale, void *out, int threads) {
    with_dtype(dtype, [&](auto value) {
        using T = decltype(value);
        unpack((const T *)packed, num_in, rows, num, scale, (T *)out, threads);
    });
}
REPLAYABLE(ramet_unpack)

// x [T, N] and out [T, M] with rows a stride apart; bias [M] or null; out is float32 if `is_wide`
extern "C" void ramet_linear(int dtype, const void *x, int64_t x_stride, const void *packed, const void *bias, void *out, int64_t out_stride,
                             int64_t tokens, int64_t num_in, int64_t num_out, int is_wide, int threads) {
    with_dtype(dtype, [&](auto value) {
        using T = decltype(value);
        const Job<T> job = {(const T *)packed, (const T *)bias, out, is_wide != 0, out_stride, num_in, num_out, threads};
        multiply(job, (const T *)x, x_stride, tokens);
    });
}
REPLAYABLE(ramet_linear)
