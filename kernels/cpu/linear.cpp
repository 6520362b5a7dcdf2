// Linear layers, out = x weight^T + bias, over weights that were packed once so that they are read in one stream.
//
// Storage and arithmetic are two things. Weights of any storage are widened in registers and multiplied in float32; over
// bfloat16 there may also be dot products (dots.h) and tile registers (tiles.h), which read the same packed weights. Which
// of them is faster differs from one CPU to the next that has them, so it is chosen from outside, by what was measured. A
// sum goes over the inputs in their order, whatever the number of tokens: what a token is computed with does not change
// its output, as long as the arithmetic is the same. The tile of sums in registers follows Goto and van de Geijn 2008.
//
// T tokens, N in, M out. Packed weights are [M / BLOCK][N / 2][BLOCK, 2] for bfloat16, where a pair of inputs is widened
// with one operation each, and [M / BLOCK][N / 2][2, BLOCK] for the others. Zeros fill the last block, and inputs up to a
// multiple of PADDED.
#include <atomic>

#include "dots.h"
#include "linear.h"
#include "replay.h"
#include "tiles.h"

namespace {

constexpr int64_t PAIR = 2 * BLOCK;      // weights of a pair of inputs

// Of a pair of inputs the weights of a vector of columns for one of them.
template <class T, bool ODD>
__attribute__((always_inline)) inline vf widened(const T *p) {
    if constexpr (!std::is_same_v<T, bf16>) return load(p + ODD * BLOCK);
    vu both;
    std::memcpy(&both, p, sizeof both);
    if constexpr (!ODD) return bit_cast<vf>(both << 16);
#if RAMET_AVX2_ALONE
    both >>= 16;
    asm("" : "+x"(both));  // else these are one operation with a mask, whose register sums need
    return bit_cast<vf>(both << 16);
#else
    return bit_cast<vf>(both & 0xffff0000u);
#endif
}

// Where the weight of an output and an input lies.
template <class T>
inline int64_t place(int64_t out, int64_t in, int64_t num_pairs) {
    const int64_t pair = (out / BLOCK * num_pairs + in / 2) * PAIR, column = out % BLOCK;
    return pair + (std::is_same_v<T, bf16> ? column * 2 + in % 2 : in % 2 * BLOCK + column);
}

template <class T>
struct Job {
    const T *weights;
    Output<T> out;
    int64_t num_in;
    int threads;
    int64_t num_pairs() const { return padded(num_in) / 2; }
};

// How the products of a pair of inputs with weights are added to sums [ROWS][VECTORS].
template <class T>
struct Floats {
    typedef float Input;
    template <int ROWS, int VECTORS>
    __attribute__((always_inline)) static void add(const T *weights, const float *x, vf (&sums)[ROWS][VECTORS]) {
        add_one<0>(weights, x, sums);
        forget(weights, sums[ROWS - 1][VECTORS - 1]);
        add_one<1>(weights, x, sums);
    }

  private:
    template <bool ODD, int ROWS, int VECTORS>
    __attribute__((always_inline)) static void add_one(const T *weights, const float *x, vf (&sums)[ROWS][VECTORS]) {
        constexpr int STEP = std::is_same_v<T, bf16> ? 2 * LANES : LANES;  // weights from a vector of columns to the next
        constexpr int TOGETHER = FEW_REGISTERS ? 2 : VECTORS;
#pragma GCC unroll 8
        for (int first = 0; first < VECTORS; first += TOGETHER) {
            vf some[TOGETHER];
#pragma GCC unroll 8
            for (int v = 0; v < TOGETHER; v++) some[v] = widened<T, ODD>(weights + (first + v) * STEP);
#pragma GCC unroll 12
            for (int r = 0; r < ROWS; r++) {
                const vf input = splat(x[r * PADDED + ODD]);
#pragma GCC unroll 8
                for (int v = 0; v < TOGETHER; v++) add_product(sums[r][first + v], input, some[v]);
            }
        }
    }
};

#if RAMET_DOTS
struct Dots {
    typedef bf16 Input;
    template <int ROWS, int VECTORS>
    __attribute__((always_inline)) static void add(const bf16 *weights, const bf16 *x, vf (&sums)[ROWS][VECTORS]) {
        vi pairs[VECTORS];
#pragma GCC unroll 8
        for (int v = 0; v < VECTORS; v++) std::memcpy(&pairs[v], weights + v * 2 * LANES, sizeof pairs[v]);
#pragma GCC unroll 12
        for (int r = 0; r < ROWS; r++) {
            int32_t pair;
            std::memcpy(&pair, x + r * PADDED, sizeof pair);
            const vi input = pair - vi{};
#pragma GCC unroll 8
            for (int v = 0; v < VECTORS; v++) sums[r][v] = dots::add(sums[r][v], input, pairs[v]);
        }
    }
};
#endif

// ROWS tokens times VECTORS vectors of columns from `column` on.
template <class T, class Arithmetic, int ROWS, int VECTORS>
__attribute__((noinline)) void tile(const Job<T> &job, const typename Arithmetic::Input *x, int64_t first_row, int64_t column, Ahead ahead) {
    constexpr int STEP = std::is_same_v<T, bf16> ? 2 * LANES : LANES;  // weights from a vector of columns to the next
    const T *weights = job.weights + column / BLOCK * job.num_pairs() * PAIR + column % BLOCK / LANES * STEP;
    const T *const end = weights + job.num_pairs() * PAIR;
    vf sums[ROWS][VECTORS];
#pragma GCC unroll 12
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 8
        for (int v = 0; v < VECTORS; v++) sums[r][v] = vf{};
    for (; weights < end; x += (ROWS - 1) * PADDED)
#pragma GCC unroll 1
        for (const auto *const run_end = x + PADDED; x < run_end; x += 2, weights += PAIR, ahead.from += ahead.step) {
            ahead.ask<PAIR * sizeof(T)>();
            Arithmetic::add(weights, x, sums);
        }
    job.out.template put_tile<ROWS, VECTORS>(first_row, column, [&](int r, int v) { return sums[r][v]; });
}

// Of a block of columns, as pool::each_of_many counts: reading it takes as long as computing it for some tokens.
template <class T>
int64_t values_of_block(const Job<T> &job, int64_t tokens) {
    return std::max<int64_t>(1, BLOCK / 4 * padded(job.num_in) * (tokens + 8) / 16);
}

// A block of tokens, whose inputs stay in cache while all weights pass by.
template <class T, class Arithmetic>
void multiply_block(const Job<T> &job, const T *x, int64_t x_stride, int64_t first, int64_t tokens) {
    typedef typename Arithmetic::Input Input;
    const Tiles tiles(tokens);
    const int64_t num_in = padded(job.num_in);
    Input *const inputs = reinterpret_cast<Input *>(scratch(tokens * num_in * sizeof(Input)));
    each_token(job.threads, tiles, num_in / 4, [&](int64_t token, int64_t start, int64_t r, int64_t rows) {
        copy_inputs(x + (first + token) * x_stride, job.num_in, inputs + start * num_in + r * PADDED, rows * PADDED);
    });
    const int64_t step_bytes = PAIR * sizeof(T);
    const Stream stream = {job.weights, job.out.num_out, job.num_pairs() * step_bytes, step_bytes, values_of_block(job, tokens)};
    each_tile(job.threads, tiles, stream, [&](auto rows, auto vectors, int64_t t, int64_t column, Ahead ahead) {
        tile<T, Arithmetic, rows, vectors>(job, inputs + tiles.start(t) * num_in, first + tiles.start(t), column, ahead);
    });
}

template <class T, class Arithmetic>
void multiply_in_blocks(const Job<T> &job, const T *x, int64_t x_stride, int64_t tokens) {
    each_block_of_tokens(tokens, padded(job.num_in) * sizeof(typename Arithmetic::Input), [&](int64_t first, int64_t num) {
        multiply_block<T, Arithmetic>(job, x, x_stride, first, num);
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
    for (int t = 0; t < tokens; t++)
        job.out.template put_tile<1, BLOCK / LANES>(first_row + t, column, [&](int, int v) { return load(sums[t] + v * LANES); });
}

void multiply_block_by_tiles(const Job<bf16> &job, const bf16 *x, int64_t x_stride, int64_t first, int64_t tokens) {
    const int64_t num_in = padded(job.num_in), tiles_of_rows = ceil_div(tokens, 2 * tiles::SIDE);
    bf16 *const rows = reinterpret_cast<bf16 *>(scratch(tokens * num_in * sizeof(bf16)));
    pool::each_of_many(job.threads, tokens, num_in / 4, [&](int64_t t) {
        std::memcpy(rows + t * num_in, x + (first + t) * x_stride, job.num_in * sizeof(bf16));
        std::memset(rows + t * num_in + job.num_in, 0, (num_in - job.num_in) * sizeof(bf16));
    });
    pool::each_stretch(job.threads, ceil_div(job.out.num_out, BLOCK), pool::MIN_VALUES / values_of_block(job, tokens / 8), [&](int64_t block, int64_t stop) {
        for (int64_t t = 0; t < tiles_of_rows; t++) {
            const int64_t row = t * 2 * tiles::SIDE;
            const int num = int(std::min<int64_t>(2 * tiles::SIDE, tokens - row));
            if (t == 0 || t + 1 == tiles_of_rows) tiles::shape(std::min(num, tiles::SIDE), std::max(0, num - tiles::SIDE));
            for (int64_t b = block; b < stop; b++) tile_block(job, rows + row * num_in, first + row, num, b * BLOCK);
        }
        tiles::done();
    });
}

void multiply_by_tiles(const Job<bf16> &job, const bf16 *x, int64_t x_stride, int64_t tokens) {
    const int64_t most = std::max<int64_t>(1, ROWS_BYTES / (padded(job.num_in) * sizeof(bf16)) / (2 * tiles::SIDE)) * 2 * tiles::SIDE;
    for (int64_t first = 0; first < tokens; first += most) multiply_block_by_tiles(job, x, x_stride, first, std::min(most, tokens - first));
}

#endif

// Of products over bfloat16 weights.
enum Arithmetics { IN_FLOATS = 0, IN_DOTS = 1, IN_TILES = 2 };

// What few tokens are multiplied with, and from how many tokens on something else: one word, which any thread may read.
std::atomic<int64_t> chosen{IN_FLOATS};

inline int arithmetic_for(int64_t tokens) {
    const int64_t all = chosen.load(std::memory_order_relaxed), from = all >> 16;
    return from && tokens >= from ? all >> 8 & 0xff : all & 0xff;
}

template <class T>
void multiply(const Job<T> &job, const T *x, int64_t x_stride, int64_t tokens) {
    if constexpr (std::is_same_v<T, bf16>) {
        [[maybe_unused]] const int arithmetic = arithmetic_for(tokens);
#if RAMET_TILES
        if (arithmetic == IN_TILES && tiles::allowed()) return multiply_by_tiles(job, x, x_stride, tokens);
#endif
#if RAMET_DOTS
        if (arithmetic == IN_DOTS) return multiply_in_blocks<T, Dots>(job, x, x_stride, tokens);
#endif
    }
    multiply_in_blocks<T, Floats<T>>(job, x, x_stride, tokens);
}

// A cache line of a row at a time: rows lie apart by powers of two, and a core's first cache holds few of such lines at once.
template <class T>
void pack(const T *weight, int64_t stride, int64_t num_out, int64_t num_in, T *packed, int threads) {
    constexpr int64_t RUN = 64 / sizeof(T);
    static_assert(PADDED % RUN == 0);
    const int64_t num_pairs = padded(num_in) / 2;
    pool::each(threads, ceil_div(num_out, BLOCK), [&](int64_t block) {
        for (int64_t in = 0; in < 2 * num_pairs; in += RUN) {
            T *const to = packed + place<T>(block * BLOCK, in, num_pairs);
            for (int64_t column = 0; column < BLOCK; column++) {
                const int64_t out = block * BLOCK + column, some = out < num_out ? std::clamp<int64_t>(num_in - in, 0, RUN) : 0;
                T run[RUN] = {};
                std::memcpy(run, weight + out * stride + in, some * sizeof(T));
                for (int64_t i = 0; i < RUN; i++) to[place<T>(column, i, 0)] = run[i];
            }
        }
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

// What layers over bfloat16 are computed with from now on: `few` for fewer than `from` tokens, and `many`; numbers of Arithmetics.
// What this CPU does not have is float32. At first all are float32.
extern "C" void ramet_choose_linear(int few, int many, int64_t from) { chosen = from << 16 | many << 8 | few; }

// Whether the library was compiled for a CPU with such an arithmetic, and this is one.
extern "C" int ramet_has_arithmetic(int which) {
    if (which == IN_DOTS) return RAMET_DOTS;
#if RAMET_TILES
    if (which == IN_TILES) return tiles::allowed();
#endif
    return which == IN_FLOATS;
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
        const Job<T> job = {(const T *)packed, {out, (const T *)bias, is_wide != 0, out_stride, num_out}, num_in, threads};
        multiply(job, (const T *)x, x_stride, tokens);
    });
}
REPLAYABLE(ramet_linear)
