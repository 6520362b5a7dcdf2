// Penalties over the logits of single rows. A row's counts are read 64 at a time and most of them are zero; only the logits
// of tokens that were drawn, or count as seen, are touched. Arithmetic is that of kernels/reference.py.
#include "pool.h"
#include "vector.h"

namespace {

constexpr int64_t WORD = 8, BLOCK = 64;     // tokens looked at together; a byte, and two words, of `seen`

struct Penalty {
    float frequency, presence, repetition;
};

// a token with this count; one that has none was seen
inline float penalised(float logit, uint8_t count, Penalty p) {
    if (count) logit -= p.frequency * count + p.presence;
    return logit < 0 ? logit * p.repetition : logit / p.repetition;
}

inline uint64_t word_at(const uint8_t *counts) {
    uint64_t word;
    std::memcpy(&word, counts, WORD);
    return word;
}

inline bool nothing(const uint8_t *counts) {
    vi all = {};
    for (int64_t i = 0; i < BLOCK; i += sizeof all) {
        vi some;
        std::memcpy(&some, counts + i, sizeof some);
        all |= some;
    }
    return !any(all);
}

void penalise_row(float *logits, const uint8_t *counts, const uint32_t *seen, Penalty p, int64_t vocabulary) {
    int64_t start = 0;
    for (; start + BLOCK <= vocabulary; start += BLOCK) {
        if (nothing(counts + start) && !(seen[start / 32] | seen[start / 32 + 1])) continue;
        for (int64_t v = start; v < start + BLOCK; v += WORD) {
            uint64_t drawn = word_at(counts + v);
            uint32_t left = seen[v / 32] >> (v % 32) & 0xff;
            for (; drawn; left &= ~(1u << (__builtin_ctzll(drawn) / 8)), drawn &= ~(0xffull << (__builtin_ctzll(drawn) & ~7))) {
                const int64_t token = v + __builtin_ctzll(drawn) / 8;
                logits[token] = penalised(logits[token], counts[token], p);
            }
            for (; left; left &= left - 1) {
                const int64_t token = v + __builtin_ctz(left);
                logits[token] = penalised(logits[token], 0, p);
            }
        }
    }
    for (int64_t v = start; v < vocabulary; v++)
        if (counts[v] || (seen[v / 32] >> (v % 32) & 1)) logits[v] = penalised(logits[v], counts[v], p);
}

}  // namespace

// logits [Q, V] is written in the rows [P]; slots [P] index counts [S, V] and seen [S, W]; the penalties are [P]
extern "C" void ramet_penalise(float *logits, int64_t vocabulary, const int32_t *rows, const int32_t *slots, const float *frequency,
                               const float *presence, const float *repetition, int64_t num, const uint8_t *counts, const uint32_t *seen,
                               int64_t words, int threads) {
    pool::each_of_many(threads, num, vocabulary / 8, [&](int64_t i) {
        penalise_row(logits + rows[i] * vocabulary, counts + slots[i] * vocabulary, seen + slots[i] * words,
                     {frequency[i], presence[i], repetition[i]}, vocabulary);
    });
}

// one more of tokens[rows[i]] in the slot slots[i] of counts [S, V]; a count stops at 255
extern "C" void ramet_count_tokens(uint8_t *counts, int64_t vocabulary, const int32_t *rows, const int32_t *slots, const int64_t *tokens, int64_t num) {
    for (int64_t i = 0; i < num; i++) {
        uint8_t &count = counts[slots[i] * vocabulary + tokens[rows[i]]];
        count += count < 255;
    }
}
