// Tiles of bfloat16 products: sums[16 tokens][16 columns] += x[16 tokens][32 inputs] * weights[16 pairs][16 columns, 2].
// By the CPU's own tile registers (AMX), or by loops that compute the same, for tests on a CPU without them.
#pragma once
#include <cstdint>

#include "vector.h"

#if defined(__AMX_BF16__) && defined(__AMX_TILE__)
#define RAMET_TILES 1
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(RAMET_EMULATE_TILES)
#define RAMET_TILES 1
#else
#define RAMET_TILES 0
#endif

#if RAMET_TILES
namespace tiles {

constexpr int SIDE = 16;         // tokens, columns and pairs of a tile
constexpr int INPUTS = 2 * SIDE; // of a token

// Registers 0 to 3 are sums, 4 and 5 tokens, 6 and 7 weights. Sums 2 and 3 are those of tokens 5.
#if defined(__AMX_BF16__)

struct alignas(64) Shape {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};
};

// Of this thread, until `done`. first and second: how many tokens registers 4 and 5 have.
inline void shape(int first, int second) {
    Shape made;
    for (int i = 0; i < 8; i++) made.row_bytes[i] = 64, made.rows[i] = SIDE;
    made.rows[0] = made.rows[1] = made.rows[4] = uint8_t(first);
    made.rows[2] = made.rows[3] = made.rows[5] = uint8_t(second ? second : 1);
    _tile_loadconfig(&made);
}
inline void done() { _tile_release(); }
// GCC wants the numbers of registers as they are written.
template <int R>
inline void clear() {
    if constexpr (R == 0) _tile_zero(0);
    if constexpr (R == 1) _tile_zero(1);
    if constexpr (R == 2) _tile_zero(2);
    if constexpr (R == 3) _tile_zero(3);
}
template <int R>
inline void load_from(const void *from, int64_t stride_bytes) {
    if constexpr (R == 4) _tile_loadd(4, from, stride_bytes);
    if constexpr (R == 5) _tile_loadd(5, from, stride_bytes);
    if constexpr (R == 6) _tile_loadd(6, from, stride_bytes);
    if constexpr (R == 7) _tile_loadd(7, from, stride_bytes);
}
template <int R>
inline void store_to(float *to, int64_t stride_bytes) {
    if constexpr (R == 0) _tile_stored(0, to, stride_bytes);
    if constexpr (R == 1) _tile_stored(1, to, stride_bytes);
    if constexpr (R == 2) _tile_stored(2, to, stride_bytes);
    if constexpr (R == 3) _tile_stored(3, to, stride_bytes);
}
template <int SUMS, int TOKENS, int WEIGHTS>
inline void multiply() {
    if constexpr (SUMS == 0 && TOKENS == 4 && WEIGHTS == 6) _tile_dpbf16ps(0, 4, 6);
    if constexpr (SUMS == 1 && TOKENS == 4 && WEIGHTS == 7) _tile_dpbf16ps(1, 4, 7);
    if constexpr (SUMS == 2 && TOKENS == 5 && WEIGHTS == 6) _tile_dpbf16ps(2, 5, 6);
    if constexpr (SUMS == 3 && TOKENS == 5 && WEIGHTS == 7) _tile_dpbf16ps(3, 5, 7);
}

// Linux gives the registers to a process that asks for them. False: it does not.
inline bool allowed() {
    constexpr long REQUEST_PERMISSION = 0x1023, TILE_DATA = 18;
    static const bool answer = syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
    return answer;
}

#else

struct Register {
    float sums[SIDE][SIDE];
    bf16 values[SIDE][INPUTS];
    int rows;
};
inline thread_local Register registers[8];

inline void shape(int first, int second) {
    for (int i = 0; i < 8; i++) registers[i].rows = i >= 6 ? SIDE : i == 2 || i == 3 || i == 5 ? second : first;
}
inline void done() {}
template <int R>
inline void clear() { std::memset(registers[R].sums, 0, sizeof registers[R].sums); }
template <int R>
inline void load_from(const void *from, int64_t stride_bytes) {
    for (int i = 0; i < registers[R].rows; i++) std::memcpy(registers[R].values[i], static_cast<const char *>(from) + i * stride_bytes, 64);
}
template <int R>
inline void store_to(float *to, int64_t stride_bytes) {
    for (int i = 0; i < registers[R].rows; i++) std::memcpy(reinterpret_cast<char *>(to) + i * stride_bytes, registers[R].sums[i], 64);
}
template <int SUMS, int TOKENS, int WEIGHTS>
inline void multiply() {
    const auto wide = [](bf16 x) { return bit_cast<float>(uint32_t(x.bits) << 16); };
    for (int t = 0; t < registers[TOKENS].rows; t++)
        for (int pair = 0; pair < SIDE; pair++)
            for (int c = 0; c < SIDE; c++)
                for (int half = 0; half < 2; half++)
                    registers[SUMS].sums[t][c] += wide(registers[TOKENS].values[t][2 * pair + half]) * wide(registers[WEIGHTS].values[pair][2 * c + half]);
}
inline bool allowed() { return true; }

#endif
}  // namespace tiles
#endif
