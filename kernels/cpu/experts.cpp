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

struct Rule {
    int64_t num, per_token;
    bool normalise, sigmoid;
    const float *bias;  // [E] that decides with the scores which experts are chosen, or null
    int64_t groups, kept, of_group;
    float scale, sharpness;   // of weights, of logits
    const float *of_experts;  // [E] that weights are multiplied by, or null
};

// All but the `kept` groups of experts whose `of_group` best scores are the largest together.
void leave_out_groups(const Rule &rule, const float *choice, std::vector<char> &taken) {
    const int64_t size = rule.num / rule.groups;
    std::vector<float> of_groups(rule.groups);
    for (int64_t g = 0; g < rule.groups; g++) {
        std::vector<char> seen(size, 0);
        for (int64_t i = 0; i < std::min<int64_t>(rule.of_group, size); i++) {
            const int64_t best = best_of(choice + g * size, size, seen);
            seen[best] = 1, of_groups[g] += choice[g * size + best];
        }
    }
    std::vector<char> kept(rule.groups, 0);
    for (int64_t i = 0; i < rule.kept; i++) kept[best_of(of_groups.data(), rule.groups, kept)] = 1;
    for (int64_t e = 0; e < rule.num; e++) taken[e] = !kept[e / size];
}

void route(const float *logits, const Rule &rule, int32_t *experts, float *weights) {
    const int64_t num = rule.num;
    std::vector<float> scores(logits, logits + num), choice(logits, logits + num);
    std::vector<char> taken(num, 0);
    float largest = -INFINITY, total = 0, of_chosen = 0;
    if (rule.sigmoid) {
        for (int64_t e = 0; e < num; e++) scores[e] = 1.0f / (1.0f + std::exp(-logits[e] * rule.sharpness)), choice[e] = scores[e] + (rule.bias ? rule.bias[e] : 0.0f);
    } else {
        for (int64_t e = 0; e < num; e++) largest = std::max(largest, logits[e]);
        for (int64_t e = 0; e < num; e++) total += scores[e] = std::exp((logits[e] - largest) * rule.sharpness);
        for (int64_t e = 0; e < num; e++) scores[e] /= total;
    }
    if (rule.groups > 1 && !rule.sigmoid) choice = scores;  // sums are of probabilities
    if (rule.groups > 1) leave_out_groups(rule, choice.data(), taken);
    for (int64_t k = 0; k < rule.per_token; k++) {
        const int64_t best = best_of(choice.data(), num, taken);
        taken[best] = 1, experts[k] = int32_t(best);
        of_chosen += weights[k] = scores[best];
    }
    const float by = rule.normalise ? rule.scale / (of_chosen + 1e-20f) : rule.scale;
    for (int64_t k = 0; k < rule.per_token; k++) weights[k] *= rule.of_experts ? by * rule.of_experts[experts[k]] : by;
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

// logits [T, E] float32 -> experts [T, K], those with the best scores first, of equals the lower number, and their weights
// [T, K]: probabilities of all experts or sigmoids, divided by their sum if `normalise`, times `scale` and times of_experts [E]
// if these are given. Logits count `sharpness` times.
extern "C" void ramet_route(const float *logits, int64_t tokens, int64_t num, int64_t per_token, int normalise, int sigmoid, const float *bias,
                            int64_t groups, int64_t kept, int64_t of_group, float scale, float sharpness, const float *of_experts,
                            int32_t *experts, float *weights, int threads) {
    const Rule rule = {num, per_token, normalise != 0, sigmoid != 0, bias, groups, kept, of_group, scale, sharpness, of_experts};
    pool::each_of_many(threads, tokens, num * (per_token + 8), [&](int64_t t) {
        route(logits + t * num, rule, experts + t * per_token, weights + t * per_token);
    });
}
REPLAYABLE(ramet_route)

// WRITES experts [T, K] into the rows `slots` [T] of `table` [S, K]
extern "C" void ramet_store_routes(const int32_t *experts, const int64_t *slots, int64_t tokens, int64_t per_token, int32_t *table) {
    for (int64_t t = 0; t < tokens; t++) std::memcpy(table + slots[t] * per_token, experts + t * per_token, per_token * sizeof(int32_t));
}
REPLAYABLE(ramet_store_routes)

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

// Of each head its part of x [T, heads, N], whose tokens are x_stride and whose heads are x_step numbers apart, by a linear layer
// of its own: out [T, heads, M]. `linear` and `weights` are as above.
extern "C" void ramet_linear_of_heads(void (*linear)(const int64_t *), const int64_t *weights, int64_t width, int64_t heads, int dtype, const void *x,
                                      int64_t x_stride, int64_t x_step, void *out, int64_t tokens, int64_t num_in, int64_t num_out, int threads) {
    const int64_t bytes = dtype == FLOAT32 ? 4 : 2;
    pool::each(threads, heads, [&](int64_t h) {
        std::vector<int64_t> words = {dtype, int64_t(x) + h * x_step * bytes, x_stride};
        words.insert(words.end(), weights + h * width, weights + (h + 1) * width);
        words.insert(words.end(), {0, int64_t(out) + h * num_out * bytes, heads * num_out, tokens, num_in, num_out, 0, 1});
        linear(words.data());
    });
}
REPLAYABLE(ramet_linear_of_heads)

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
