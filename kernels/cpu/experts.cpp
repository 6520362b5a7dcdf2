// Layers of experts: each token is routed to K of E, routes are sorted by expert, and each expert's linear layers multiply
// its routes alone, by the kernel of whatever its weights are stored as (linear*.cpp). Everything that depends on where
// tokens go is found here, so a list of calls serves any routing.
//
// T tokens, P = T K routes of which route t K + k is token t's k-th, N in, M out.
#include <cmath>
#include <cstring>
#include <vector>

#include "pool.h"
#include "replay.h"
#include "vector.h"

namespace {

// The largest of `num` scores that is not taken; of equals the first, of nothing but NaN the first that is left.
inline int64_t best_of(const float *scores, int64_t num, const std::vector<char> &taken) {
    int64_t best = -1;
    for (int64_t e = 0; e < num; e++)
        if (!taken[e] && (best < 0 || scores[e] > scores[best])) best = e;
    return best;
}

void route(const float *logits, int64_t num, int64_t per_token, bool normalise, int32_t *experts, float *weights) {
    std::vector<char> taken(num, 0);
    float largest = -INFINITY, total = 0, of_chosen = 0;
    for (int64_t e = 0; e < num; e++) largest = std::max(largest, logits[e]);
    for (int64_t e = 0; e < num; e++) total += std::exp(logits[e] - largest);
    for (int64_t k = 0; k < per_token; k++) {
        const int64_t best = best_of(logits, num, taken);
        taken[best] = 1, experts[k] = int32_t(best);
        of_chosen += weights[k] = std::exp(logits[best] - largest) / total;
    }
    if (normalise)
        for (int64_t k = 0; k < per_token; k++) weights[k] /= of_chosen;
}

template <class T>
void combine(const T *x, const int32_t *places, const float *weights, const T *shared, float gate, T *out, int64_t per_token, int64_t size) {
    for (int64_t i = 0; i < size; i += LANES) {
        const int64_t num = std::min<int64_t>(LANES, size - i);
        vf sum = {};
        const auto at = [&](const T *p) { return num == LANES ? load(p) : load_some(p, num); };
        for (int64_t k = 0; k < per_token; k++) sum += at(x + places[k] * size + i) * weights[k];
        if (shared) sum += at(shared + i) * gate;
        num == LANES ? store(out + i, sum) : store_some(out + i, sum, num);
    }
}

}  // namespace

// logits [T, E] float32 -> experts [T, K], the most probable first, of equals the lower number, and their probabilities
// [T, K], which are divided by their sum if `normalise`
extern "C" void ramet_route(const float *logits, int64_t tokens, int64_t num, int64_t per_token, int normalise, int32_t *experts, float *weights,
                            int threads) {
    pool::each_of_many(threads, tokens, num * (per_token + 8), [&](int64_t t) {
        route(logits + t * num, num, per_token, normalise != 0, experts + t * per_token, weights + t * per_token);
    });
}
REPLAYABLE(ramet_route)

// experts [T, K] -> the tokens [P] of routes in the order of their experts, where each route is in that order [T, K], and up
// to where experts' routes are [E]
extern "C" void ramet_sort_routes(const int32_t *experts, int64_t tokens, int64_t per_token, int64_t num, int64_t *sorted, int32_t *places,
                                  int32_t *ends) {
    const int64_t routes = tokens * per_token;
    std::memset(ends, 0, num * sizeof(int32_t));
    for (int64_t r = 0; r < routes; r++)
        if (experts[r] + 1 < num) ends[experts[r] + 1]++;
    for (int64_t e = 1; e < num; e++) ends[e] += ends[e - 1];  // so far where each begins
    for (int64_t r = 0; r < routes; r++) {
        const int32_t place = ends[experts[r]]++;
        places[r] = place, sorted[place] = r / per_token;
    }
}
REPLAYABLE(ramet_sort_routes)

// Of each expert e its routes x [ends[e - 1] to ends[e], N] by its linear layer: out [P, M]. `linear` is a REPLAYABLE of
// linear*.cpp, and `weights` [E, width] what each call is told of the expert's weight; biases [E] or null.
extern "C" void ramet_linear_of_experts(void (*linear)(const int64_t *), const int64_t *weights, int64_t width, const int64_t *biases,
                                        const int32_t *ends, int64_t num, int dtype, const void *x, void *out, int64_t num_in, int64_t num_out,
                                        int threads) {
    const int64_t bytes = dtype == FLOAT32 ? 4 : 2;
    std::vector<int64_t> words(3 + width + 8);
    for (int64_t e = 0, start = 0; e < num; start = ends[e++]) {
        const int64_t tokens = ends[e] - start;
        if (!tokens) continue;
        const int64_t from[] = {dtype, int64_t(x) + start * num_in * bytes, num_in};
        const int64_t to[] = {biases ? biases[e] : 0, int64_t(out) + start * num_out * bytes, num_out, tokens, num_in, num_out, 0, threads};
        std::copy(from, from + 3, words.begin());
        std::copy(weights + e * width, weights + (e + 1) * width, words.begin() + 3);
        std::copy(to, to + 8, words.begin() + 3 + width);
        linear(words.data());
    }
}
REPLAYABLE(ramet_linear_of_experts)

// out [T, N]: the sum of a token's routes x [P, N] times their weights [T, K], in float32 from the first on; and where they
// are given, of shared [T, N] times the sigmoid of gates [T], or of shared alone
extern "C" void ramet_combine(int dtype, const void *x, const int32_t *places, const float *weights, const void *shared, const float *gates, void *out,
                              int64_t tokens, int64_t per_token, int64_t size, int threads) {
    with_dtype(dtype, [&](auto value) {
        using T = decltype(value);
        pool::each_of_many(threads, tokens, size * (per_token + 1), [&](int64_t t) {
            const T *const own = shared ? (const T *)shared + t * size : nullptr;
            const float gate = gates ? 1.0f / (1.0f + std::exp(-gates[t])) : 1.0f;
            combine((const T *)x, places + t * per_token, weights + t * per_token, own, gate, (T *)out + t * size, per_token, size);
        });
    });
}
REPLAYABLE(ramet_combine)
