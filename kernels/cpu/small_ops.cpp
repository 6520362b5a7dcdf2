// The ops between the matrix products, each in one pass over memory: norm with residual, rotary embedding, gated silu.
//
// Arithmetic is float32; values are rounded to the tensors' dtype where kernels/reference.py rounds. Rows are strided,
// their values contiguous. T tokens, N hidden size, F intermediate size, D head size.
#include <cmath>

#include "vector.h"

namespace {

constexpr int64_t WORTH_THREADS = 1 << 15;  // values below which waking a second thread costs more than it saves

// body(at, load, store) over [0, size) sixteen at a time; the last piece may be shorter
template <class Body>
inline void each(int64_t size, Body body) {
    int64_t i = 0;
    for (; i + LANES <= size; i += LANES) body(i, (int64_t)LANES);
    if (i < size) body(i, size - i);
}
template <class T>
inline v16f get(const T *p, int64_t n) {
    return n == LANES ? load(p) : load_some(p, n);
}
template <class T>
inline void put(T *p, v16f x, int64_t n) {
    n == LANES ? store(p, x) : store_some(p, x, n);
}

// out may be x. PLUS_ONE: the scale is 1 + weight, and only the product is rounded (Gemma).
template <class T, bool PLUS_ONE>
void norm_row(const T *x, T *residual, const T *weight, T *out, int64_t size, float eps) {
    v16f squares = {};
    each(size, [&](int64_t i, int64_t n) {
        v16f value = get(x + i, n);
        if (residual) {
            value = rounded<T>(value + get(residual + i, n));
            put(residual + i, value, n);
        }
        squares += value * value;
    });
    const T *from = residual ? residual : x;
    const float scale = 1.0f / std::sqrt(sum_of(squares) / size + eps);
    each(size, [&](int64_t i, int64_t n) {
        const v16f value = get(from + i, n) * scale, w = get(weight + i, n);
        put(out + i, PLUS_ONE ? (w + 1.0f) * value : w * rounded<T>(value), n);
    });
}

template <class T, bool PLUS_ONE>
void norm(const void *x, int64_t x_stride, void *residual, const void *weight, void *out, int64_t tokens, int64_t size, float eps, int threads) {
#pragma omp parallel for num_threads(threads) if (tokens * size > WORTH_THREADS) schedule(static)
    for (int64_t t = 0; t < tokens; t++)
        norm_row<T, PLUS_ONE>((const T *)x + t * x_stride, residual ? (T *)residual + t * size : nullptr, (const T *)weight, (T *)out + t * size,
                              size, eps);
}

template <class T, bool PLUS_ONE>
void norm_heads(void *x, int64_t stride, const void *weight, int64_t tokens, int64_t heads, int64_t head_dim, float eps, int threads) {
#pragma omp parallel for num_threads(threads) if (tokens * heads * head_dim > WORTH_THREADS) schedule(static)
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t h = 0; h < heads; h++) {
            T *head = (T *)x + t * stride + h * head_dim;
            norm_row<T, PLUS_ONE>(head, nullptr, (const T *)weight, head, head_dim, eps);
        }
}

template <class T>
void silu_row(const T *gate, const T *up, T *out, int64_t size) {
    each(size, [&](int64_t i, int64_t n) {
        const v16f g = get(gate + i, n), small = exp_of(g > 0 ? -g : g);
        const v16f sigmoid = (g > 0 ? splat(1.0f) : small) / (small + 1.0f);
        put(out + i, rounded<T>(g * sigmoid) * get(up + i, n), n);
    });
}

template <class T>
void silu_mul(const void *gate_up, int64_t stride, void *out, int64_t tokens, int64_t size, int threads) {
#pragma omp parallel for num_threads(threads) if (tokens * size > WORTH_THREADS) schedule(static)
    for (int64_t t = 0; t < tokens; t++) {
        const T *row = (const T *)gate_up + t * stride;
        silu_row(row, row + size, (T *)out + t * size, size);
    }
}

template <class T>
void rotate(void *x, int64_t stride, const float *cos, const float *sin, const int64_t *positions, int64_t tokens, int64_t heads, int64_t head_dim,
            int64_t half, int threads) {
#pragma omp parallel for num_threads(threads) if (tokens * heads * head_dim > WORTH_THREADS) schedule(static)
    for (int64_t t = 0; t < tokens; t++) {
        const float *c = cos + positions[t] * half, *s = sin + positions[t] * half;
        for (int64_t h = 0; h < heads; h++) {
            T *first = (T *)x + t * stride + h * head_dim, *second = first + half;
            each(half, [&](int64_t i, int64_t n) {
                const v16f a = get(first + i, n), b = get(second + i, n), cosine = get(c + i, n), sine = get(s + i, n);
                put(first + i, a * cosine - b * sine, n);
                put(second + i, b * cosine + a * sine, n);
            });
        }
    }
}

// body(a value of the dtype's type)
template <class Body>
inline void with_dtype(int dtype, Body body) {
    switch (dtype) {
        case FLOAT32: return body(float{});
        case BFLOAT16: return body(bf16{});
        case FLOAT16: return body(f16{});
    }
}

}  // namespace

// out [T, N] = norm of x [T, N], or of x + residual when residual [T, N] is given; it is then written with the sum.
extern "C" void ramet_rms_norm(int dtype, const void *x, int64_t x_stride, void *residual, const void *weight, void *out, int64_t tokens, int64_t size,
                               float eps, int plus_one, int threads) {
    with_dtype(dtype, [&](auto value) {
        using T = decltype(value);
        if (plus_one)
            norm<T, true>(x, x_stride, residual, weight, out, tokens, size, eps, threads);
        else
            norm<T, false>(x, x_stride, residual, weight, out, tokens, size, eps, threads);
    });
}

// x [T, heads, D] is written: each head's own norm.
extern "C" void ramet_norm_heads(int dtype, void *x, int64_t stride, const void *weight, int64_t tokens, int64_t heads, int64_t head_dim, float eps,
                                 int plus_one, int threads) {
    with_dtype(dtype, [&](auto value) {
        using T = decltype(value);
        if (plus_one)
            norm_heads<T, true>(x, stride, weight, tokens, heads, head_dim, eps, threads);
        else
            norm_heads<T, false>(x, stride, weight, tokens, heads, head_dim, eps, threads);
    });
}

// out [T, F] from gate_up [T, 2 F]
extern "C" void ramet_silu_mul(int dtype, const void *gate_up, int64_t stride, void *out, int64_t tokens, int64_t size, int threads) {
    switch (dtype) {
        case FLOAT32: return silu_mul<float>(gate_up, stride, out, tokens, size, threads);
        case BFLOAT16: return silu_mul<bf16>(gate_up, stride, out, tokens, size, threads);
        case FLOAT16: return silu_mul<f16>(gate_up, stride, out, tokens, size, threads);
    }
}

// x [T, heads, D] is written; cos and sin [L, half]
extern "C" void ramet_rotate(int dtype, void *x, int64_t stride, const float *cos, const float *sin, const int64_t *positions, int64_t tokens,
                             int64_t heads, int64_t head_dim, int64_t half, int threads) {
    switch (dtype) {
        case FLOAT32: return rotate<float>(x, stride, cos, sin, positions, tokens, heads, head_dim, half, threads);
        case BFLOAT16: return rotate<bf16>(x, stride, cos, sin, positions, tokens, heads, head_dim, half, threads);
        case FLOAT16: return rotate<f16>(x, stride, cos, sin, positions, tokens, heads, head_dim, half, threads);
    }
}
