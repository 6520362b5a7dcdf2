// What log-probabilities need of a row of logits: its best value, the logarithm of the sum of the exponentials beside
// it, and its best tokens.
//
// Each row is read twice, nothing is written but the answers. The best are kept in a buffer of twice their number, which
// is cut to its better half whenever it is full: linear in the vocabulary, whatever its order.
// Semantics are those of kernels/reference.py.
#include <algorithm>
#include <utility>
#include <vector>

#include "best.h"
#include "pool.h"

namespace {

typedef std::pair<float, int64_t> Place;  // a logit and its token

inline bool better(const Place &a, const Place &b) { return a.first != b.first ? a.first > b.first : a.second < b.second; }

double sum_of_exponentials(const float *logits, int64_t num, float best, float temperature) {
    double sum = 0;
    for (int64_t start = 0; start < num; start += NEAR) {
        const int64_t end = start + NEAR < num ? start + NEAR : num;
        vf some = {};
        int64_t i = start;
        for (; i + LANES <= end; i += LANES) some += exp_of((load(logits + i) - best) / temperature);
        sum += sum_of(some);
        for (; i < end; i++) sum += std::exp((logits[i] - best) / temperature);
    }
    return sum;
}

// The `wanted` <= num best tokens of logits without a NaN, best first; of equals the lower id comes first.
void best_tokens(const float *logits, int64_t num, int64_t wanted, int64_t *tokens) {
    static thread_local std::vector<Place> places;
    const size_t room = std::max<int64_t>(2 * wanted, 64);
    float beyond = -INFINITY;  // of what comes, only larger ones count
    bool full = false;
    places.clear();
    const auto cut = [&] {
        std::nth_element(places.begin(), places.begin() + wanted - 1, places.end(), better);
        places.resize(wanted);
        beyond = places.back().first, full = true;
    };
    for (int64_t i = 0; i < num; i += LANES) {
        const int64_t end = i + LANES < num ? i + LANES : num;
        if (full && end - i == LANES && !(max_of(load(logits + i)) > beyond)) continue;
        for (int64_t token = i; token < end; token++) {
            if (full && !(logits[token] > beyond)) continue;
            places.emplace_back(logits[token], token);
            if (places.size() == room) cut();
        }
    }
    std::sort(places.begin(), places.end(), better);
    for (int64_t k = 0; k < wanted; k++) tokens[k] = places[k].second;
}

}  // namespace

// logits [Q, V]; rows and temperature [R]; best and log_sums [R] and tokens [R, num_top] are written, num_top <= V
extern "C" void ramet_normalise(const float *logits, int64_t vocabulary, const int64_t *rows, const float *temperature, int64_t num,
                                int64_t num_top, float *best, float *log_sums, int64_t *tokens, int threads) {
    pool::each(num * vocabulary > WORTH_THREADS ? threads : 1, num, [&](int64_t r) {
        const float *row = logits + rows[r] * vocabulary;
        best[r] = best_of(row, vocabulary).value;
        if (!std::isfinite(best[r])) {  // such a row's request ends; its answer only has to be one
            log_sums[r] = NAN;
            for (int64_t k = 0; k < num_top; k++) tokens[r * num_top + k] = k;
            return;
        }
        log_sums[r] = (float)std::log(sum_of_exponentials(row, vocabulary, best[r], temperature[r]));
        if (num_top) best_tokens(row, vocabulary, num_top, tokens + r * num_top);
    });
}
