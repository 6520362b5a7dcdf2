// Products of many queries by tile registers: of a tile of keys, and with its values. Queries are columns, as in attend_many.h,
// so scores come as they are wanted, and weights in pairs of neighbouring keys are what the registers multiply.
#pragma once
#include "attention.h"
#include "tiles.h"

#if RAMET_TILES
namespace attention {

static_assert(WIDE_TILE == tiles::INPUTS);

// scores [WIDE_TILE][WIDTH] of keys [WIDE_TILE][inputs] and q [inputs / 2][Q] pairs; inputs is a multiple of INPUTS.
template <int WIDTH>
inline void scores_by_tiles(const bf16 *keys, int inputs, const float *q, int64_t num_queries, float *scores) {
    using namespace tiles;
    constexpr int64_t stride = WIDTH * sizeof(float);
    const int64_t key_bytes = inputs * sizeof(bf16), q_bytes = num_queries * sizeof(float);
    clear<0>(), clear<1>(), clear<2>(), clear<3>();
    for (int in = 0; in < inputs; in += INPUTS) {
        const float *const pairs = q + in / 2 * num_queries;
        load_from<4>(keys + in, key_bytes), load_from<5>(keys + SIDE * inputs + in, key_bytes), load_from<6>(pairs, q_bytes);
        multiply<0, 4, 6>(), multiply<2, 5, 6>();
        if constexpr (WIDTH > SIDE) load_from<7>(pairs + SIDE, q_bytes), multiply<1, 4, 7>(), multiply<3, 5, 7>();
    }
    store_to<0>(scores, stride), store_to<2>(scores + SIDE * WIDTH, stride);
    if constexpr (WIDTH > SIDE) store_to<1>(scores + SIDE, stride), store_to<3>(scores + SIDE * WIDTH + SIDE, stride);
}

// out [D][Q] = out * shrink [WIDTH] + values [D][WIDE_TILE] times weights [WIDE_TILE / 2][WIDTH] pairs
template <int WIDTH>
inline void add_values_by_tiles(const float *values, int head_dim, const float *weights, const vf *shrink, float *out, int64_t num_queries) {
    using namespace tiles;
    constexpr int64_t stride = WIDTH * sizeof(float);
    alignas(64) float sums[SIDE][WIDTH];
    load_from<6>(weights, stride);
    if constexpr (WIDTH > SIDE) load_from<7>(weights + SIDE, stride);
    for (int d = 0; d < head_dim; d += SIDE) {
        load_from<4>(values + d * SIDE, SIDE * sizeof(float));
        clear<0>(), multiply<0, 4, 6>(), store_to<0>(sums[0], stride);
        if constexpr (WIDTH > SIDE) clear<1>(), multiply<1, 4, 7>(), store_to<1>(sums[0] + SIDE, stride);
        for (int i = 0; i < SIDE; i++)
            for (int w = 0; w < WIDTH / LANES; w++) {
                float *const to = out + (d + i) * num_queries + w * LANES;
                store(to, load(to) * shrink[w] + load(sums[i] + w * LANES));
            }
    }
}

}  // namespace attention
#endif
