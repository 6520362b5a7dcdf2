// What a grammar forbids becomes -inf: one pass over the logits of the rows that have a mask. Bit i of word w of a mask is
// token 32 w + i. Words of which all or none is allowed, nearly all of them, cost one comparison.
#include "vector.h"

namespace {

constexpr int64_t WORD = 32;                // tokens of a word
constexpr int64_t WORTH_THREADS = 1 << 17;  // logits below which waking a second thread costs more than it saves

void mask_word(float *logits, uint32_t allowed) {
    constexpr v16u bit = {1u << 0, 1u << 1, 1u << 2, 1u << 3, 1u << 4, 1u << 5, 1u << 6, 1u << 7,
                          1u << 8, 1u << 9, 1u << 10, 1u << 11, 1u << 12, 1u << 13, 1u << 14, 1u << 15};
    const v16f nothing = splat(-__builtin_inff());
    for (int half = 0; half < 2; half++, allowed >>= LANES, logits += LANES) {
        const v16i is_allowed = ((v16u{} + allowed) & bit) != 0;
        v16f x;
        std::memcpy(&x, logits, sizeof x);
        x = is_allowed ? x : nothing;
        std::memcpy(logits, &x, sizeof x);
    }
}

void mask_row(float *logits, const uint32_t *allowed, int64_t vocabulary) {
    const int64_t whole = vocabulary / WORD;
    for (int64_t w = 0; w < whole; w++)
        if (allowed[w] != ~0u) mask_word(logits + w * WORD, allowed[w]);
    for (int64_t v = whole * WORD; v < vocabulary; v++)
        if (!(allowed[whole] >> (v % WORD) & 1)) logits[v] = -__builtin_inff();
}

}  // namespace

// logits [Q, V] is written in the rows [K]; allowed is [K, words]
extern "C" void ramet_mask(float *logits, int64_t vocabulary, const int32_t *rows, int64_t num, const uint32_t *allowed, int64_t words,
                           int threads) {
#pragma omp parallel for num_threads(threads) if (num * vocabulary > WORTH_THREADS) schedule(static)
    for (int64_t i = 0; i < num; i++) mask_row(logits + rows[i] * vocabulary, allowed + i * words, vocabulary);
}
