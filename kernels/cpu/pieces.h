// Rows of any length, a vector at a time.
#pragma once

#include <cstdint>

#include "vector.h"

namespace {

// body(at, n) over [0, size), n numbers at a time: LANES, and fewer in the last piece
template <class Body>
inline void each(int64_t size, Body body) {
    int64_t i = 0;
    for (; i + LANES <= size; i += LANES) body(i, (int64_t)LANES);
    if (i < size) body(i, size - i);
}
template <class T>
inline vf get(const T *p, int64_t n) {
    return n == LANES ? load(p) : load_some(p, n);
}
template <class T>
inline void put(T *p, vf x, int64_t n) {
    n == LANES ? store(p, x) : store_some(p, x, n);
}

}  // namespace
