// Gated delta-net layers (kernels/reference_delta.py has the arithmetic and its letters). A job is one row's tokens in one
// head of keys with its heads of values: the convolution of their channels, their states, their norms. Jobs share nothing,
// so a step of few rows has as many as there are heads of keys.
//
// Arithmetic is float32; values are rounded to the tensors' dtype where the reference rounds.
#include <cmath>
#include <vector>

#include "delta_state.h"
#include "pieces.h"
#include "pool.h"
#include "replay.h"
#include "vector.h"

namespace {

constexpr float MIN_SQUARE = 1e-6f;  // added to the square of a length
constexpr int64_t TOKENS = 32;         // at most that go through a block of a state's columns before the next one

struct Layer {
    const void *x, *gates, *conv, *norm;
    int64_t x_stride, gates_stride;
    const float *a_log, *dt_bias;
    float eps;
    void *last;
    float *matrix;
    int64_t key_heads, value_heads, key, value, taps;
    void *out;

    int64_t shared() const { return value_heads / key_heads; }
    int64_t channels() const { return 2 * key_heads * key + value_heads * value; }
    int64_t own() const { return 2 * key + shared() * value; }  // channels of a job: queries, keys, values
    // which of all channels its c-th is
    int64_t channel(int64_t head, int64_t c) const {
        if (c < key) return head * key + c;
        if (c < 2 * key) return key_heads * key + head * key + (c - key);
        return 2 * key_heads * key + head * shared() * value + (c - 2 * key);
    }
};

template <class T>
inline float widen(T x) {
    T all[LANES] = {x};
    return load(all)[0];
}
inline float widen(float x) { return x; }
inline float widen(bf16 x) { return bit_cast<float>(uint32_t(x.bits) << 16); }

// x is a number that a T can hold
template <class T>
inline T exactly(float x) {
    T all[LANES];
    store(all, splat(x));
    return all[0];
}
template <>
inline float exactly<float>(float x) {
    return x;
}
template <>
inline bf16 exactly<bf16>(float x) {
    return {uint16_t(bit_cast<uint32_t>(x) >> 16)};
}

template <class T>
inline float narrow(float x) {
    return rounded<T>(splat(x))[0];
}
template <>
inline float narrow<float>(float x) {
    return x;
}

inline vf silu(vf x) { return x / (exp2_of(x * -LOG2_E) + 1.0f); }
inline float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }
inline float softplus(float x) { return x > 20.0f ? x : std::log1p(std::exp(x)); }

// x [size] to length `length`
inline void to_length(float *x, int64_t size, float length) {
    vf squares = {};
    each(size, [&](int64_t i, int64_t n) {
        const vf value = get(x + i, n);
        squares += value * value;
    });
    const float scale = length / std::sqrt(sum_of(squares) + MIN_SQUARE);
    each(size, [&](int64_t i, int64_t n) { put(x + i, get(x + i, n) * scale, n); });
}

template <class T>
struct Job {
    const Layer &of;
    const int64_t row, head, own, before, most, width;  // `most` tokens at a time; V with room for whole vectors
    std::vector<float> weights, seen, mixed;    // [W, own], [W - 1 + most, own], [most, own]
    std::vector<float> decay, beta, o, block;   // [most] each, [most, V], [K, BLOCK LANES]

    Job(const Layer &layer, int64_t at_row, int64_t key_head, int64_t num)
        : of(layer), row(at_row), head(key_head), own(layer.own()), before(layer.taps - 1), most(std::min(num, TOKENS)), width(layer.value + LANES),
          weights(layer.taps * own), seen((before + most) * own), mixed(most * own + LANES), decay(most), beta(most), o(most * width),
          block(most >= MIN_COPIED || layer.value % LANES ? layer.key * BLOCK * LANES : 0) {
        for (int64_t c = 0; c < own; c++)
            for (int64_t w = 0; w < of.taps; w++) weights[w * own + c] = widen(((const T *)of.conv)[of.channel(head, c) * of.taps + w]);
    }

    T *last_at(int64_t place, int64_t c) const { return (T *)of.last + (place * of.channels() + of.channel(head, c)) * before; }
    float *matrix_at(int64_t place) const { return of.matrix + (place * of.value_heads + head * of.shared()) * of.key * of.value; }
    int64_t matrix_size() const { return of.shared() * of.key * of.value; }

    void begin(bool anew) {
        if (anew) return (void)std::memset(matrix_at(row), 0, matrix_size() * sizeof(float));
        for (int64_t c = 0; c < own; c++)
            for (int64_t w = 0; w < before; w++) seen[w * own + c] = widen(last_at(row, c)[w]);
    }

    void keep(int64_t place) const {
        for (int64_t c = 0; c < own; c++)
            for (int64_t w = 0; w < before; w++) last_at(place, c)[w] = exactly<T>(seen[w * own + c]);
        if (place != row) std::memcpy(matrix_at(place), matrix_at(row), matrix_size() * sizeof(float));
    }

    // tokens [first, first + num) of x
    void convolve(int64_t first, int64_t num) {
        for (int64_t t = 0; t < num; t++) {
            float *now = seen.data() + (before + t) * own;
            for (int64_t c = 0; c < own;) {
                const int64_t stop = c < of.key ? of.key : c < 2 * of.key ? 2 * of.key : own;  // side by side in x
                const T *from = (const T *)of.x + (first + t) * of.x_stride + of.channel(head, c);
                each(stop - c, [&](int64_t i, int64_t n) { put(now + c + i, get(from + i, n), n); });
                c = stop;
            }
            each(own, [&](int64_t c, int64_t n) {
                vf sum = {};
                for (int64_t w = 0; w < of.taps; w++) sum += get(weights.data() + w * own + c, n) * get(seen.data() + (t + w) * own + c, n);
                put(mixed.data() + t * own + c, rounded<T>(silu(rounded<T>(sum))), n);
            });
            float *q = mixed.data() + t * own;
            to_length(q, of.key, 1.0f / std::sqrt((float)of.key));
            to_length(q + of.key, of.key, 1.0f);
        }
        std::memmove(seen.data(), seen.data() + num * own, before * own * sizeof(float));
    }

    // up to `most` tokens, from `first` on
    void part(int64_t first, int64_t num) {
        convolve(first, num);
        for (int64_t j = 0; j < of.shared(); j++) {
            const int64_t h = head * of.shared() + j;
            for (int64_t t = 0; t < num; t++) {
                const T *gates = (const T *)of.gates + (first + t) * of.gates_stride;
                beta[t] = narrow<T>(sigmoid(widen(gates[h])));
                decay[t] = std::exp(-std::exp(of.a_log[h]) * softplus(widen(gates[of.value_heads + h]) + of.dt_bias[h]));
            }
            const float *q = mixed.data(), *k = q + of.key, *v = k + of.key + j * of.value;
            const Tokens all = {num, of.key, of.value, q, k, v, own, decay.data(), beta.data(), o.data(), width};
            advance(matrix_at(row) + j * of.key * of.value, all, block.data());
            for (int64_t t = 0; t < num; t++) {
                const T *z = (const T *)of.x + (first + t) * of.x_stride + of.channels() + h * of.value;
                normed(o.data() + t * width, z, (T *)of.out + ((first + t) * of.value_heads + h) * of.value);
            }
        }
    }

    // from `first` on; after so many as `save_at` says the state is kept at a place of `save_to`
    void tokens(int64_t first, int64_t num, const int32_t *save_at, const int32_t *save_to, int64_t saves) {
        for (int64_t t = 0; t < num;) {
            int64_t stop = std::min(num, t + most);
            for (int64_t i = 0; i < saves; i++)
                if (save_at[i] > t) stop = std::min<int64_t>(stop, save_at[i]);
            part(first + t, stop - t);
            for (int64_t i = 0; i < saves; i++)
                if (save_at[i] == stop) keep(save_to[i]);
            t = stop;
        }
    }

    void normed(const float *from, const T *z, T *to) const {
        vf squares = {};
        each(of.value, [&](int64_t i, int64_t n) {
            const vf value = rounded<T>(get(from + i, n));
            squares += value * value;
        });
        const float scale = 1.0f / std::sqrt(sum_of(squares) / of.value + of.eps);
        each(of.value, [&](int64_t i, int64_t n) {
            const vf value = rounded<T>(rounded<T>(get(from + i, n)) * scale);
            put(to + i, rounded<T>(value * get((const T *)of.norm + i, n)) * silu(get(z + i, n)), n);
        });
    }
};

struct Rows {
    const int32_t *places, *num_new, *seq_lens;
    int64_t num;
    const int32_t *save_at, *save_to;  // [R, saves], or null
    int64_t saves;
};

template <class T>
void delta_net(const Layer &of, const Rows &rows, int threads) {
    std::vector<int64_t> firsts(rows.num);
    for (int64_t r = 1; r < rows.num; r++) firsts[r] = firsts[r - 1] + rows.num_new[r - 1];
    pool::each(threads, rows.num * of.key_heads, [&](int64_t item) {
        const int64_t r = item / of.key_heads, head = item % of.key_heads, num = rows.num_new[r];
        if (r > 0 && rows.places[r] == 0) {  // padding: all of it has one place
            for (int64_t t = firsts[r]; t < firsts[r] + num; t++)
                std::memset((void *)((T *)of.out + (t * of.value_heads + head * of.shared()) * of.value), 0, of.shared() * of.value * sizeof(T));
            return;
        }
        Job<T> job(of, rows.places[r], head, num);
        job.begin(rows.seq_lens[r] == num);
        job.tokens(firsts[r], num, rows.save_at + r * rows.saves, rows.save_to + r * rows.saves, rows.saves);
        job.keep(job.row);
    });
}

}  // namespace

// x [T, C + H V] and gates [T, 2 H] of rows one behind the other -> out [T, H V]; last [S, C, W - 1] and matrix [S, H, K, V]
// are written at the places of the rows, and where their states are saved.
extern "C" void ramet_delta_net(int dtype, const void *x, int64_t x_stride, const void *gates, int64_t gates_stride, const void *conv, const float *a_log,
                                const float *dt_bias, const void *norm, float eps, void *last, float *matrix, int64_t key_heads, int64_t value_heads,
                                int64_t key, int64_t value, int64_t taps, const int32_t *places, const int32_t *num_new, const int32_t *seq_lens,
                                int64_t num_rows, const int32_t *save_at, const int32_t *save_to, int64_t saves, void *out, int threads) {
    const Layer of = {x, gates, conv, norm, x_stride, gates_stride, a_log, dt_bias, eps, last, matrix, key_heads, value_heads, key, value, taps, out};
    const Rows rows = {places, num_new, seq_lens, num_rows, save_at, save_to, saves};
    with_dtype(dtype, [&](auto one) { delta_net<decltype(one)>(of, rows, threads); });
}
REPLAYABLE(ramet_delta_net)

// out [T, N] = x [T, N] times the sigmoid of gates [T, N], whose rows are strided
extern "C" void ramet_sigmoid_mul(int dtype, const void *x, int64_t x_stride, const void *gates, int64_t gates_stride, void *out, int64_t tokens,
                                  int64_t size, int threads) {
    with_dtype(dtype, [&](auto one) {
        using T = decltype(one);
        pool::each_of_many(threads, tokens, size, [&](int64_t t) {
            const T *from = (const T *)x + t * x_stride, *gate = (const T *)gates + t * gates_stride;
            T *to = (T *)out + t * size;
            each(size, [&](int64_t i, int64_t n) {
                const vf open = rounded<T>(1.0f / (exp2_of(get(gate + i, n) * -LOG2_E) + 1.0f));
                put(to + i, get(from + i, n) * open, n);
            });
        });
    });
}
REPLAYABLE(ramet_sigmoid_mul)
