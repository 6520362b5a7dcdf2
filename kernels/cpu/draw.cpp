// One token for each row of logits: the best, or one drawn from what top_k, top_p and min_p leave of the distribution.
//
// Nothing is sorted. What a row keeps is every weight above some value, found by bisecting its bits: weights lie in
// [0, 1], so their bits order as they do. The draw inverts the cumulative mass in the order of ids, in double precision.
// Semantics are those of kernels/reference.py.
#include <vector>

#include "best.h"
#include "pool.h"
#include "replay.h"

namespace {

constexpr int64_t BLOCK = 256;              // weights whose mass is summed before one of them is looked for
constexpr int32_t ONE = 0x3f800000;         // the bits of the largest weight
constexpr int PASSES = 4;                   // of a bisection before what is out of its bounds is left behind

typedef float v8f __attribute__((vector_size(32)));
typedef int32_t v8i __attribute__((vector_size(32)));
typedef double v8d __attribute__((vector_size(64)));

struct Row {
    float temperature, top_p, min_p;
    int64_t top_k;
    uint64_t seed, position;
};

// What a row keeps: weights whose bits are above `least`, and the first `ties` of those that equal it.
struct Cut {
    int32_t least;
    int64_t ties;
};

inline Cut stricter(Cut a, Cut b) {
    if (a.least != b.least) return a.least > b.least ? a : b;
    return a.ties < b.ties ? a : b;
}

inline double sum_of(v8d x) { return ((x[0] + x[4]) + (x[1] + x[5])) + ((x[2] + x[6]) + (x[3] + x[7])); }

// The mass of those weights whose bits are at least `least`.
double mass_from(const float *weights, int64_t num, int32_t least) {
    const v8i bound = v8i{} + least;
    v8d sums[4] = {};
    int64_t i = 0;
    const auto add = [&](int lane) {
        v8i bits;
        std::memcpy(&bits, weights + i + 8 * lane, sizeof bits);
        sums[lane] += __builtin_convertvector(bit_cast<v8f>(bits & (bits >= bound)), v8d);
    };
    for (; i + 32 <= num; i += 32) add(0), add(1), add(2), add(3);
    for (; i + 8 <= num; i += 8) add(0);
    double rest = 0;
    for (; i < num; i++) rest += bit_cast<int32_t>(weights[i]) >= least ? weights[i] : 0;
    return sum_of((sums[0] + sums[1]) + (sums[2] + sums[3])) + rest;
}

double number_from(const float *weights, int64_t num, int32_t least) {
    const vi bound = vi{} + least;
    vi minus = {};
    int64_t i = 0, number = 0;
    for (; i + LANES <= num; i += LANES) minus += bit_cast<vi>(load(weights + i)) >= bound;
    for (; i < num; i++) number += bit_cast<int32_t>(weights[i]) >= least;
    for (int lane = 0; lane < LANES; lane++) number -= minus[lane];
    return (double)number;
}

inline double mass_of(const float *weights, int64_t num) { return mass_from(weights, num, 0); }

// Philox4x32-10 (Salmon et al. 2011): 53 bits of the first block as a number in [0, 1)
double philox_uniform(uint64_t seed, uint64_t position) {
    uint32_t c[4] = {(uint32_t)position, (uint32_t)(position >> 32), 0, 0};
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = 0xD2511F53ull * c[0], p1 = 0xCD9E8D57ull * c[2];
        const uint32_t next[4] = {(uint32_t)(p1 >> 32) ^ c[1] ^ k0, (uint32_t)p1, (uint32_t)(p0 >> 32) ^ c[3] ^ k1, (uint32_t)p0};
        std::memcpy(c, next, sizeof c);
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    return (double)((uint64_t)c[0] << 21 | c[1] >> 11) * 0x1p-53;
}

void weigh(const float *logits, int64_t num, float best, float temperature, float *weights) {
    int64_t i = 0;
    for (; i + LANES <= num; i += LANES) store(weights + i, exp_of((load(logits + i) - best) / temperature));
    if (i < num) store_some(weights + i, exp_of((load_some(logits + i, num - i) - best) / temperature), num - i);
}

// Those weights whose bits are in [low, high), next to each other in `to`, which has room for LANES more and may be
// where they come from. Returns their number.
int64_t collect(const float *weights, int64_t num, int32_t low, int32_t high, float *to) {
    const vi least = vi{} + low, bound = vi{} + high;
    int64_t i = 0, found = 0;
    for (; i + LANES <= num; i += LANES) {
        const vf some = load(weights + i);
        const vi bits = bit_cast<vi>(some);
        found += pack(to + found, some, (bits >= least) & (bits < bound));
    }
    for (; i < num; i++) {
        const int32_t bits = bit_cast<int32_t>(weights[i]);
        if (bits >= low && bits < high) to[found++] = weights[i];
    }
    return found;
}

// The cut that keeps the fewest of the largest weights which together reach `wanted` > 0: a mass, or a number of them.
template <bool by_mass>
Cut cut_at(const float *weights, int64_t num, double wanted) {
    static thread_local std::vector<float> between;
    between.resize(num + LANES);
    int64_t left = num;
    int32_t low = 0, high = ONE + 1;  // what is at least `low` reaches it, what is at least `high` does not
    double reached = INFINITY, before = 0, outside = 0;
    for (int pass = 1; high - low > 1; pass++) {
        const int32_t middle = low + (high - low) / 2;
        const double there = outside + (by_mass ? mass_from(weights, left, middle) : number_from(weights, left, middle));
        if (there >= wanted)
            low = middle, reached = there;
        else
            high = middle, before = there;
        const double each = by_mass ? bit_cast<float>(low) : 1.0f;
        if (reached - before < 1.5 * each) return {low, num};  // only one weight is left between them
        if (pass % PASSES == 0) {
            left = collect(weights, left, low, high, between.data());
            weights = between.data(), outside = before;
        }
    }
    const double each = by_mass ? bit_cast<float>(low) : 1.0f, ties = each > 0 ? std::ceil((wanted - before) / each) : num;
    return {low, ties < 1 ? 1 : ties < num ? (int64_t)ties : num};
}

void drop(float *weights, int64_t num, Cut cut) {
    const vi bound = vi{} + cut.least;
    int64_t i = 0;
    if (cut.ties == num)
        for (; i + LANES <= num; i += LANES) {
            const vi bits = bit_cast<vi>(load(weights + i));
            store(weights + i, bit_cast<vf>(bits & (bits >= bound)));
        }
    for (int64_t ties = cut.ties; i < num; i++) {
        const int32_t bits = bit_cast<int32_t>(weights[i]);
        if (bits < cut.least || (bits == cut.least && ties-- <= 0)) weights[i] = 0.0f;
    }
}

// The first token at which the mass of it and all before it passes `uniform` times the whole.
int64_t invert(const float *weights, int64_t num, double uniform) {
    static thread_local std::vector<double> masses;
    masses.clear();
    double total = 0;
    int64_t last = 0;  // block with any mass: rounding must not pass it
    for (int64_t i = 0; i < num; i += BLOCK) {
        masses.push_back(mass_of(weights + i, num - i < BLOCK ? num - i : BLOCK));
        total += masses.back();
        if (masses.back() > 0) last = i / BLOCK;
    }
    double rest = uniform * total;
    int64_t block = 0, token = 0;
    for (; block < last && rest >= masses[block]; block++) rest -= masses[block];
    const int64_t end = (block + 1) * BLOCK < num ? (block + 1) * BLOCK : num;
    for (int64_t i = block * BLOCK; i < end; i++) {
        if (!(weights[i] > 0)) continue;
        token = i;
        if ((rest -= weights[i]) < 0) break;
    }
    return token;
}

int64_t draw_row(const float *logits, int64_t num, Best best, const Row &row) {
    if (!(row.temperature > 0)) {
        int64_t token = best.from;
        while (logits[token] != best.value) token++;
        return token;
    }
    static thread_local std::vector<float> weights;
    weights.resize(num);
    weigh(logits, num, best.value, row.temperature, weights.data());
    Cut cut = {row.min_p > 0 ? bit_cast<int32_t>(row.min_p) : 0, num};
    if (row.top_k > 0 && row.top_k < num) cut = stricter(cut, cut_at<false>(weights.data(), num, (double)row.top_k));
    if (row.top_p < 1) cut = stricter(cut, cut_at<true>(weights.data(), num, row.top_p * mass_of(weights.data(), num)));
    if (cut.least) drop(weights.data(), num, cut);
    return invert(weights.data(), num, philox_uniform(row.seed, row.position));
}

}  // namespace

// logits [Q, V]; the columns are [Q]; tokens [Q] and finite [Q] are written
extern "C" void ramet_draw(const float *logits, int64_t vocabulary, int64_t num, const float *temperature, const int64_t *top_k, const float *top_p,
                           const float *min_p, const uint64_t *seeds, const int64_t *positions, int64_t *tokens, uint8_t *finite, int threads) {
    pool::each(num * vocabulary > WORTH_THREADS ? threads : 1, num, [&](int64_t q) {
        const float *row = logits + q * vocabulary;
        const Best best = best_of(row, vocabulary);
        finite[q] = std::isfinite(best.value);
        tokens[q] = finite[q] ? draw_row(row, vocabulary, best, {temperature[q], top_p[q], min_p[q], top_k[q], seeds[q], (uint64_t)positions[q]}) : 0;
    });
}
REPLAYABLE(ramet_draw)

// rows [Q] of the row buffer drew tokens [Q]: their next ids, and sequences that are longer by one
extern "C" void ramet_advance(const int64_t *rows, const int64_t *tokens, int64_t num, int32_t *next_ids, int32_t *lengths) {
    for (int64_t q = 0; q < num; q++) next_ids[rows[q]] = int32_t(tokens[q]), lengths[rows[q]]++;
}
REPLAYABLE(ramet_advance)

// Rows of the row buffer that decode: those that are relayed read what they drew last, at the end of their sequence; the
// others read what ids and positions say, and their sequences have seq_lens tokens now. WRITES ids, positions, lengths and
// shifted, positions without `shifts`; all but the row buffer are [Q].
extern "C" void ramet_relay(const int32_t *rows, const int32_t *relayed, const int32_t *seq_lens, const int32_t *shifts, int64_t num,
                            const int32_t *next_ids, int32_t *lengths, int64_t *ids, int64_t *positions, int64_t *shifted) {
    for (int64_t q = 0; q < num; q++) {
        if (relayed[q])
            ids[q] = next_ids[rows[q]], positions[q] = lengths[rows[q]] - 1;
        else
            lengths[rows[q]] = seq_lens[q];
        shifted[q] = positions[q] - shifts[q];
    }
}
REPLAYABLE(ramet_relay)
