// What the machine can do at most: bytes read and products made a second. Loops that do nothing else; they are timed from
// outside, and only figures of the same minutes say anything about each other.
#include "byte_products.h"
#include "dots.h"
#include "linear.h"
#include "tiles.h"

namespace {

constexpr int64_t PIECE_BYTES = 1 << 18;
constexpr int SUMS = MAX_SUMS - MAX_SUMS % 8;

// Sums that depend on nothing but themselves: as many as hide the latency of an operation `add`, of products of a and b.
template <class Add>
void multiply(int64_t rounds, float *sink, Add add) {
    vf sums[SUMS];
#pragma GCC unroll 24
    for (int i = 0; i < SUMS; i++) sums[i] = splat(sink[0] + float(i));
    const vf a = splat(sink[1]), b = splat(sink[2]);
    for (int64_t round = 0; round < rounds; round++)
#pragma GCC unroll 24
        for (int i = 0; i < SUMS; i++) sums[i] = add(sums[i], a, b);
    vf all = {};
#pragma GCC unroll 24
    for (int i = 0; i < SUMS; i++) all += sums[i];
    sink[3] = sum_of(all);
}

// x, of which the compiler does not know that it is the same as before: what inputs need before they are multiplied, a sign
// of weights for instance, is a part of each product.
inline vi another(vi x) {
#if !defined(RAMET_LANES) && (defined(__x86_64__) || defined(__aarch64__))
#if defined(__AVX512F__)
    asm volatile("" : "+v"(x));
#elif defined(__x86_64__)
    asm volatile("" : "+x"(x));
#else
    asm volatile("" : "+w"(x));
#endif
#endif
    return x;
}

}  // namespace

// Every byte of data once; sinks [pieces of 256 KiB] are written.
extern "C" void ramet_read(const void *data, int64_t bytes, float *sinks, int threads) {
    pool::each(threads, bytes / PIECE_BYTES, [&](int64_t piece) {
        const char *from = static_cast<const char *>(data) + piece * PIECE_BYTES;
        vi all[4] = {};
        for (int64_t at = 0; at < PIECE_BYTES; at += 4 * sizeof(vi))
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) {
                vi some;
                prefetch(from + at + i * sizeof some, AHEAD);
                std::memcpy(&some, from + at + i * sizeof some, sizeof some);
                all[i] ^= some;
            }
        sinks[piece] = float(((all[0] ^ all[1]) ^ (all[2] ^ all[3]))[0]);
    });
}

// Float32 products with a sum each, `rounds` times SUMS vectors of them on each thread; sinks [threads, 4] are written.
extern "C" void ramet_multiply(int64_t rounds, float *sinks, int threads) {
    pool::each(threads, threads, [&](int64_t thread) { multiply(rounds, sinks + 4 * thread, [](vf sum, vf a, vf b) { return sum * a + b; }); });
}
extern "C" int64_t ramet_products_of_round() { return int64_t(SUMS) * LANES; }

// The same of pairs of bfloat16; 0 products where there is no such operation.
extern "C" void ramet_multiply_by_dots([[maybe_unused]] int64_t rounds, [[maybe_unused]] float *sinks, [[maybe_unused]] int threads) {
#if RAMET_DOTS
    const auto add = [](vf sum, vf a, vf b) { return dots::add(sum, bit_cast<vi>(a), bit_cast<vi>(b)); };
    pool::each(threads, threads, [&](int64_t thread) { multiply(rounds, sinks + 4 * thread, add); });
#endif
}
extern "C" int64_t ramet_products_of_dots() { return RAMET_DOTS * int64_t(SUMS) * LANES * 2; }

// The same of bytes, as whole numbers.
extern "C" void ramet_multiply_bytes(int64_t rounds, float *sinks, int threads) {
    const auto add = [](vf sum, vf a, vf b) { return bit_cast<vf>(byte_products::add(bit_cast<vi>(sum), another(bit_cast<vi>(a)), bit_cast<vi>(b))); };
    pool::each(threads, threads, [&](int64_t thread) { multiply(rounds, sinks + 4 * thread, add); });
}
extern "C" int64_t ramet_products_of_bytes() { return int64_t(SUMS) * LANES * byte_products::GROUP; }

// The same of bfloat16 by tile registers, `rounds` times four tiles; 0 products where there are none.
extern "C" void ramet_multiply_by_tiles([[maybe_unused]] int64_t rounds, [[maybe_unused]] float *sinks, [[maybe_unused]] int threads) {
#if RAMET_TILES
    if (!tiles::allowed()) return;
    pool::each(threads, threads, [&](int64_t thread) {
        alignas(64) static const char zeros[1024] = {};
        alignas(64) float sums[tiles::SIDE * tiles::SIDE];
        tiles::shape(tiles::SIDE, tiles::SIDE);
        tiles::load_from<4>(zeros, 64), tiles::load_from<5>(zeros, 64), tiles::load_from<6>(zeros, 64), tiles::load_from<7>(zeros, 64);
        tiles::clear<0>(), tiles::clear<1>(), tiles::clear<2>(), tiles::clear<3>();
        for (int64_t round = 0; round < rounds; round++)
            tiles::multiply<0, 4, 6>(), tiles::multiply<1, 4, 7>(), tiles::multiply<2, 5, 6>(), tiles::multiply<3, 5, 7>();
        tiles::store_to<0>(sums, 64);
        tiles::done();
        sinks[4 * thread] = sums[0];
    });
#endif
}
extern "C" int64_t ramet_products_of_tiles() {
#if RAMET_TILES
    return tiles::allowed() ? 4 * int64_t(tiles::SIDE) * tiles::SIDE * tiles::INPUTS : 0;
#else
    return 0;
#endif
}
