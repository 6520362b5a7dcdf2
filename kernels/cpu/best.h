// What the kernels that read rows of logits share: the best of a row, and when threads pay. Knows no probability.
#pragma once
#include <cmath>

#include "vector.h"

constexpr int64_t NEAR = 1024;              // logits among which the best one is looked for a second time
constexpr int64_t WORTH_THREADS = 1 << 15;  // logits below which waking a second thread costs more than it saves

struct Best {
    float value;   // NaN when one of a row's values is
    int64_t from;  // it is at this place or a little behind it, first of its equals
};

static inline Best best_of(const float *x, int64_t num) {
    Best best = {-INFINITY, 0};
    vi odd = {};
    for (int64_t start = 0; start < num; start += NEAR) {
        const int64_t end = start + NEAR < num ? start + NEAR : num;
        vf most = splat(-INFINITY);
        int64_t i = start;
        for (; i + LANES <= end; i += LANES) {
            const vf some = load(x + i);
            most = larger(most, some);
            odd |= some != some;
        }
        float value = max_of(most);
        for (; i < end; i++) {
            value = x[i] > value ? x[i] : value;
            odd[0] |= x[i] != x[i];
        }
        if (value > best.value) best = {value, start};
    }
    if (any(odd)) best.value = NAN;
    return best;
}
