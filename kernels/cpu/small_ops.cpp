// The ops between the matrix products, each in one pass over memory: norm with residual, rotary embedding, gated silu.
//
// Arithmetic is float32; values are rounded to the tensors' dtype where kernels/reference.py rounds. Rows are strided,
// their values contiguous. T tokens, N hidden size, F intermediate size, D head size.
#include <cmath>

#include "pieces.h"
#include "pool.h"
#include "replay.h"
#include "vector.h"

namespace {

// out may be x. W: of the weight, T or float; what is normalised is rounded to it before they are multiplied.
template <class T, class W>
void norm_row(const T *x, T *residual, const W *weight, T *out, int64_t size, float eps) {
    vf squares = {};
    each(size, [&](int64_t i, int64_t n) {
        vf value = get(x + i, n);
        if (residual) {
            value = rounded<T>(value + get(residual + i, n));
            put(residual + i, value, n);
        }
        squares += value * value;
    });
    const T *from = residual ? residual : x;
    const float scale = 1.0f / std::sqrt(sum_of(squares) / size + eps);
    each(size, [&](int64_t i, int64_t n) {
        const vf value = get(from + i, n) * scale, w = weight ? get(weight + i, n) : splat(1.0f);
        put(out + i, w * rounded<W>(value), n);
    });
}

template <class T, class W>
void norm(const void *x, int64_t x_stride, void *residual, const void *weight, void *out, int64_t tokens, int64_t size, float eps, int threads) {
    pool::each_of_many(threads, tokens, size, [&](int64_t t) {
        norm_row((const T *)x + t * x_stride, residual ? (T *)residual + t * size : nullptr, (const W *)weight, (T *)out + t * size, size, eps);
    });
}

template <class T, class W>
void norm_heads(void *x, int64_t stride, const void *weight, int64_t tokens, int64_t heads, int64_t head_dim, float eps, int threads) {
    pool::each_of_many(threads, tokens, heads * head_dim, [&](int64_t t) {
        for (int64_t h = 0; h < heads; h++) {
            T *head = (T *)x + t * stride + h * head_dim;
            norm_row(head, (T *)nullptr, (const W *)weight, head, head_dim, eps);
        }
    });
}

template <class T>
void silu_row(const T *gate, const T *up, T *out, int64_t size) {
    each(size, [&](int64_t i, int64_t n) {
        const vf g = get(gate + i, n);
        put(out + i, rounded<T>(g / (exp2_of(g * -LOG2_E) + 1.0f)) * get(up + i, n), n);
    });
}

template <class T>
void silu_mul(const void *gate_up, int64_t stride, void *out, int64_t tokens, int64_t size, int threads) {
    pool::each_of_many(threads, tokens, size, [&](int64_t t) {
        const T *row = (const T *)gate_up + t * stride;
        silu_row(row, row + size, (T *)out + t * size, size);
    });
}

// Tanh's form of gelu is the one that most models with it were trained with; the other has no short formula.
template <bool TANH>
vf gelu(vf x) {
    if constexpr (TANH) return x * 0.5f * (tanh_of((x + x * x * x * 0.044715f) * 0.7978845608f) + 1.0f);
    vf y;
    for (int i = 0; i < LANES; i++) y[i] = x[i] * 0.5f * (1.0f + std::erf(x[i] * 0.7071067812f));
    return y;
}

template <class T, bool TANH>
void gelu_by(const T *gate, int64_t gate_stride, const T *up, int64_t up_stride, T *out, int64_t tokens, int64_t size, int threads) {
    pool::each_of_many(threads, tokens, 2 * size, [&](int64_t t) {
        const T *g = gate + t * gate_stride, *u = up + t * up_stride;
        T *to = out + t * size;
        each(size, [&](int64_t i, int64_t n) { put(to + i, rounded<T>(gelu<TANH>(get(g + i, n))) * get(u + i, n), n); });
    });
}

// alpha, limit: as kernels/reference.py has them
template <class T>
void clamped_mul(const void *gate_up, int64_t stride, float alpha, float limit, void *out, int64_t tokens, int64_t size, int threads) {
    const vf most = splat(limit);
    pool::each_of_many(threads, tokens, 2 * size, [&](int64_t t) {
        const T *gate = (const T *)gate_up + t * stride, *up = gate + size;
        T *to = (T *)out + t * size;
        each(size, [&](int64_t i, int64_t n) {
            const vf all = get(gate + i, n), other = get(up + i, n);
            const vf g = all > most ? most : all, u = larger(other > most ? most : other, -most);
            put(to + i, g / (exp2_of(g * (-LOG2_E * alpha)) + 1.0f) * (u + 1.0f), n);
        });
    });
}

template <class T>
void gather(const T *table, const int64_t *ids, float scale, T *out, int64_t tokens, int64_t size, int threads) {
    pool::each_of_many(threads, tokens, size / 4, [&](int64_t t) {
        const T *from = table + ids[t] * size;
        T *to = out + t * size;
        if (scale == 1.0f)
            std::memcpy(to, from, size * sizeof(T));
        else
            each(size, [&](int64_t i, int64_t n) { put(to + i, get(from + i, n) * scale, n); });
    });
}

template <class T>
void rotate(void *x, int64_t stride, const float *cos, const float *sin, const int64_t *positions, int64_t tokens, int64_t heads, int64_t head_dim,
            int64_t half, int threads) {
    pool::each_of_many(threads, tokens, heads * head_dim, [&](int64_t t) {
        const float *c = cos + positions[t] * half, *s = sin + positions[t] * half;
        for (int64_t h = 0; h < heads; h++) {
            T *first = (T *)x + t * stride + h * head_dim, *second = first + half;
            each(half, [&](int64_t i, int64_t n) {
                const vf a = get(first + i, n), b = get(second + i, n), cosine = get(c + i, n), sine = get(s + i, n);
                put(first + i, a * cosine - b * sine, n);
                put(second + i, b * cosine + a * sine, n);
            });
        }
    });
}

}  // namespace

// out [T, N] = norm of x [T, N], or of x + residual when residual [T, N] is given; it is then written with the sum.
// `wide`: the weight is float32.
extern "C" void ramet_rms_norm(int dtype, const void *x, int64_t x_stride, void *residual, const void *weight, void *out, int64_t tokens, int64_t size,
                               float eps, int wide, int threads) {
    with_dtype(dtype, [&](auto value) {
        using T = decltype(value);
        if (wide)
            norm<T, float>(x, x_stride, residual, weight, out, tokens, size, eps, threads);
        else
            norm<T, T>(x, x_stride, residual, weight, out, tokens, size, eps, threads);
    });
}
REPLAYABLE(ramet_rms_norm)

// x [T, heads, D] is written: each head's own norm; weight [D] or null, `wide` as above.
extern "C" void ramet_norm_heads(int dtype, void *x, int64_t stride, const void *weight, int64_t tokens, int64_t heads, int64_t head_dim, float eps,
                                 int wide, int threads) {
    with_dtype(dtype, [&](auto value) {
        using T = decltype(value);
        if (wide)
            norm_heads<T, float>(x, stride, weight, tokens, heads, head_dim, eps, threads);
        else
            norm_heads<T, T>(x, stride, weight, tokens, heads, head_dim, eps, threads);
    });
}
REPLAYABLE(ramet_norm_heads)

// out [T, F] from gate_up [T, 2 F]
extern "C" void ramet_silu_mul(int dtype, const void *gate_up, int64_t stride, void *out, int64_t tokens, int64_t size, int threads) {
    switch (dtype) {
        case FLOAT32: return silu_mul<float>(gate_up, stride, out, tokens, size, threads);
        case BFLOAT16: return silu_mul<bf16>(gate_up, stride, out, tokens, size, threads);
        case FLOAT16: return silu_mul<f16>(gate_up, stride, out, tokens, size, threads);
    }
}
REPLAYABLE(ramet_silu_mul)

// x [T, heads, D] is written; cos and sin [L, half]
extern "C" void ramet_rotate(int dtype, void *x, int64_t stride, const float *cos, const float *sin, const int64_t *positions, int64_t tokens,
                             int64_t heads, int64_t head_dim, int64_t half, int threads) {
    switch (dtype) {
        case FLOAT32: return rotate<float>(x, stride, cos, sin, positions, tokens, heads, head_dim, half, threads);
        case BFLOAT16: return rotate<bf16>(x, stride, cos, sin, positions, tokens, heads, head_dim, half, threads);
        case FLOAT16: return rotate<f16>(x, stride, cos, sin, positions, tokens, heads, head_dim, half, threads);
    }
}
REPLAYABLE(ramet_rotate)

// out [T, F] from gate_up [T, 2 F]
extern "C" void ramet_gelu_mul(int dtype, const void *gate_up, int64_t stride, void *out, int64_t tokens, int64_t size, int is_tanh, int threads) {
    with_dtype(dtype, [&](auto value) {
        using T = decltype(value);
        const T *const gate = (const T *)gate_up;
        is_tanh ? gelu_by<T, true>(gate, stride, gate + size, stride, (T *)out, tokens, size, threads)
                : gelu_by<T, false>(gate, stride, gate + size, stride, (T *)out, tokens, size, threads);
    });
}
REPLAYABLE(ramet_gelu_mul)

// out [T, F] from gate and up [T, F] with rows a stride of elements apart
extern "C" void ramet_gelu_by(int dtype, const void *gate, int64_t gate_stride, const void *up, int64_t up_stride, void *out, int64_t tokens,
                              int64_t size, int is_tanh, int threads) {
    with_dtype(dtype, [&](auto value) {
        using T = decltype(value);
        is_tanh ? gelu_by<T, true>((const T *)gate, gate_stride, (const T *)up, up_stride, (T *)out, tokens, size, threads)
                : gelu_by<T, false>((const T *)gate, gate_stride, (const T *)up, up_stride, (T *)out, tokens, size, threads);
    });
}
REPLAYABLE(ramet_gelu_by)

// x [T, N] is written: x + y, rounded, times factor [1], without what is null
extern "C" void ramet_add_scaled(int dtype, void *x, const void *y, const float *factor, int64_t tokens, int64_t size, int threads) {
    with_dtype(dtype, [&](auto value) {
        using T = decltype(value);
        pool::each_of_many(threads, tokens, size, [&](int64_t t) {
            T *const row = (T *)x + t * size;
            const T *const other = y ? (const T *)y + t * size : nullptr;
            each(size, [&](int64_t i, int64_t n) {
                vf sum = get(row + i, n);
                if (other) sum = rounded<T>(sum + get(other + i, n));
                put(row + i, factor ? sum * *factor : sum, n);
            });
        });
    });
}
REPLAYABLE(ramet_add_scaled)

// out [T, F] from gate_up [T, 2 F]
extern "C" void ramet_clamped_mul(int dtype, const void *gate_up, int64_t stride, float alpha, float limit, void *out, int64_t tokens, int64_t size,
                                  int threads) {
    with_dtype(dtype, [&](auto value) { clamped_mul<decltype(value)>(gate_up, stride, alpha, limit, out, tokens, size, threads); });
}
REPLAYABLE(ramet_clamped_mul)

// out [T, N]: the rows ids [T] of table [V, N], times `scale`
extern "C" void ramet_gather(int dtype, const void *table, const int64_t *ids, float scale, void *out, int64_t tokens, int64_t size, int threads) {
    with_dtype(dtype, [&](auto value) {
        using T = decltype(value);
        gather((const T *)table, ids, scale, (T *)out, tokens, size, threads);
    });
}
REPLAYABLE(ramet_gather)

// x [Q, V] is written: each value v becomes cap * tanh(v / cap)
extern "C" void ramet_softcap(float *x, int64_t rows, int64_t size, float cap, int threads) {
    pool::each_of_many(threads, rows, size, [&](int64_t r) {
        float *row = x + r * size;
        each(size, [&](int64_t i, int64_t n) { put(row + i, tanh_of(get(row + i, n) / cap) * cap, n); });
    });
}
REPLAYABLE(ramet_softcap)
