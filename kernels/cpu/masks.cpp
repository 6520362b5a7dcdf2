// What a grammar forbids becomes -inf: one pass over the logits of the rows that have a mask. Bit i of word w of a mask is
// token 32 w + i. Words of which all or none is allowed, nearly all of them, cost one comparison.
#include "pool.h"
#include "vector.h"

namespace {

constexpr int64_t WORD = 32;                // tokens of a word

void mask_word(float *logits, uint32_t allowed) {
    const vu bit = (vu{} + 1) << (vu)lane_numbers();
    const vf nothing = splat(-__builtin_inff());
    for (int part = 0; part < WORD / LANES; part++, allowed >>= LANES, logits += LANES) {
        const vi is_allowed = ((vu{} + allowed) & bit) != 0;
        store(logits, is_allowed ? load(logits) : nothing);
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
    pool::each_of_many(threads, num, vocabulary / 8, [&](int64_t i) { mask_row(logits + rows[i] * vocabulary, allowed + i * words, vocabulary); });
}
