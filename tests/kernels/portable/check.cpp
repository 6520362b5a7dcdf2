// The compiled kernels against loops that anybody can read, without Python: for a CPU that only an emulator runs.
// Exits with 0 if everything agrees; else each difference is a line.
#include <cmath>
#include <cstdio>
#include <limits>
#include <random>
#include <vector>

#include "plan.h"
#include "vector.h"

struct Rule {
    float scale;
    int32_t window;
    float softcap;
    const float *sinks = nullptr;
};
extern "C" {
void ramet_choose_linear(int, int, int64_t);
int ramet_has_arithmetic(int);
int64_t ramet_packed_size(int64_t, int64_t);
void ramet_pack(int, const void *, int64_t, int64_t, int64_t, void *, int);
void ramet_unpack(int, const void *, int64_t, const int64_t *, int64_t, float, void *, int);
void ramet_linear(int, const void *, int64_t, const void *, const void *, void *, int64_t, int64_t, int64_t, int64_t, int, int);
void ramet_pack_int8(int, const void *, int64_t, int64_t, int64_t, void *, float *, int32_t *, int);
void ramet_linear_int8(int, const void *, int64_t, const void *, const float *, const int32_t *, const void *, void *, int64_t, int64_t, int64_t,
                       int64_t, int, int);
void ramet_linear_int8wo(int, const void *, int64_t, const void *, const float *, const void *, void *, int64_t, int64_t, int64_t, int64_t, int, int);
void ramet_unpack_int8(int, const void *, const float *, int64_t, const int64_t *, int64_t, float, void *, int);
int64_t ramet_packed_int4_size(int64_t, int64_t, int64_t);
void ramet_pack_int4(int, const void *, int64_t, int64_t, int64_t, int64_t, void *, int);
void ramet_repack_int4(int, const uint32_t *, const f16 *, const f16 *, const int32_t *, int64_t, int64_t, int64_t, void *, int);
void ramet_linear_int4(int, const void *, int64_t, const void *, const int32_t *, int64_t, const void *, void *, int64_t, int64_t, int64_t, int64_t,
                       int, int);
void ramet_unpack_int4(int, const void *, const int32_t *, int64_t, int64_t, const int64_t *, int64_t, float, void *, int);
void ramet_choose_attention(int, int);
void ramet_store_kv_int8(int, const void *, const void *, int64_t, int64_t, int8_t *, int8_t *, const int64_t *, int64_t, int64_t, int64_t, int);
void ramet_attention(const Plan *, const Rule *, int, int, const void *, int64_t, const void *, const void *, void *);
void ramet_rms_norm(int, const void *, int64_t, void *, const void *, void *, int64_t, int64_t, float, int, int);
void ramet_silu_mul(int, const void *, int64_t, void *, int64_t, int64_t, int);
void ramet_rotate(int, void *, int64_t, const float *, const float *, const int64_t *, int64_t, int64_t, int64_t, int64_t, int);
void ramet_draw(const float *, int64_t, int64_t, const float *, const int64_t *, const float *, const float *, const uint64_t *, const int64_t *,
                int64_t *, uint8_t *, int);
void ramet_normalise(const float *, int64_t, const int64_t *, const float *, int64_t, int64_t, float *, float *, int64_t *, int);
void ramet_penalise(float *, int64_t, const int32_t *, const int32_t *, const float *, const float *, const float *, int64_t, const uint8_t *,
                    const uint32_t *, int64_t, int);
}


using Floats = std::vector<float>;

static int failures = 0;
static std::mt19937 random_bits(1);

static void expect(bool right, const char *what, double got = 0, double want = 0) {
    if (right) return;
    failures++;
    std::printf("%s: %.9g instead of %.9g\n", what, got, want);
}

static Floats numbers(int64_t num) {
    std::normal_distribution<float> normal;
    Floats made(num);
    for (float &x : made) x = normal(random_bits);
    return made;
}

// One value of each dtype, by arithmetic.
static float value_of(float x) { return x; }
static float value_of(bf16 x) { return bit_cast<float>((uint32_t)x.bits << 16); }
static float value_of(f16 x) {
    const int exponent = x.bits >> 10 & 31, fraction = x.bits & 1023;
    double size = exponent ? std::ldexp(1024 + fraction, exponent - 25) : std::ldexp(fraction, -24);
    if (exponent == 31) size = fraction ? NAN : INFINITY;
    return (float)(x.bits >> 15 ? -size : size);
}

template <class T>
static std::vector<T> cast(const Floats &from) {
    std::vector<T> to(from.size() + LANES);
    for (size_t i = 0; i < from.size(); i++) store_some(&to[i], splat(from[i]), 1);
    to.resize(from.size());
    return to;
}
template <class T>
static Floats floats(const std::vector<T> &from) {
    Floats to;
    for (const T x : from) to.push_back(value_of(x));
    return to;
}

// `inherited`: what the errors of its inputs may add to each value
static void compare(const char *what, const Floats &got, const Floats &want, float tolerance, const Floats &inherited = {}) {
    for (size_t i = 0; i < want.size(); i++) {
        const float limit = tolerance * (1 + std::fabs(want[i])) + (inherited.empty() ? 0 : inherited[i]);
        if (!(std::fabs(got[i] - want[i]) <= limit)) return expect(false, what, got[i], want[i]);
    }
}

// Every value of a 16-bit type is widened exactly, comes back, and half-way values round to the even neighbour. Subnormal
// ones may become 0 of their sign.
template <class T>
static void check_conversion(const char *what) {
    for (uint32_t bits = 0; bits < 65536; bits++) {
        T one[LANES] = {}, back[LANES];
        one[3].bits = (uint16_t)bits;
        const float want = value_of(one[3]), got = load(one)[3];
        expect(got == want || (got != got && want != want), what, got, want);
        store(back, load(one));
        if (!KEEPS_SUBNORMALS<T> && want != 0 && std::fabs(want) < std::numeric_limits<float>::min()) {
            expect((back[3].bits & 0x7fff) == 0 && back[3].bits >> 15 == bits >> 15, what, value_of(back[3]), 0);
            continue;
        }
        if (want == want) expect(back[3].bits == bits, what, value_of(back[3]), want);
        else expect(value_of(back[3]) != value_of(back[3]), what);
        T next = {(uint16_t)(bits + 1)};
        if (!(std::isfinite(want) && std::isfinite(value_of(next)) && (bits & 0x7fff) != 0x7fff)) continue;
        store(back, splat(want + (value_of(next) - want) / 2));
        expect(back[3].bits == bits + (bits & 1), what, value_of(back[3]), want);
    }
}

static void check_powers() {
    for (float x = -126; x <= 127; x += 0.37f) {
        const float got = exp2_of(splat(x))[0], want = std::exp2(x);
        expect(std::abs(got - want) <= 3 * (std::nextafter(want, INFINITY) - want), "a power of two", got, want);
    }
    for (const float whole : {-126.0f, -1.0f, 0.0f, 1.0f, 126.0f}) expect(exp2_of(splat(whole))[0] == std::exp2(whole), "a whole power of two");
    for (const float low : {-151.0f, -1000.0f, -1e30f, -INFINITY}) expect(exp2_of(splat(low))[0] == 0, "a power of two that is next to nothing");
    for (const float high : {128.0f, 1000.0f, 1e30f, INFINITY}) expect(exp2_of(splat(high))[0] >= 0x1p127f, "a power of two beyond the largest");
    expect(std::isnan(exp2_of(splat(NAN))[0]), "a power of two of NaN");
}

template <class T>
static void check_small_ops(int dtype, float tolerance) {
    for (const int64_t size : {1, 7, 16, 129, 768}) {
        const int64_t rows = 3;
        const auto x = cast<T>(numbers(rows * size)), weight = cast<T>(numbers(size)), both = cast<T>(numbers(rows * 2 * size));
        std::vector<T> out(rows * size);
        Floats want(rows * size);
        ramet_rms_norm(dtype, x.data(), size, nullptr, weight.data(), out.data(), rows, size, 1e-5f, 0, 2);
        for (int64_t t = 0; t < rows; t++) {
            double squares = 0;
            for (int64_t i = 0; i < size; i++) squares += std::pow(value_of(x[t * size + i]), 2);
            for (int64_t i = 0; i < size; i++) want[t * size + i] = value_of(x[t * size + i]) / std::sqrt(squares / size + 1e-5) * value_of(weight[i]);
        }
        compare("rms_norm", floats(out), want, tolerance);
        ramet_silu_mul(dtype, both.data(), 2 * size, out.data(), rows, size, 2);
        for (int64_t i = 0; i < rows * size; i++) {
            const float gate = value_of(both[i / size * 2 * size + i % size]), up = value_of(both[i / size * 2 * size + size + i % size]);
            want[i] = gate / (1 + std::exp(-gate)) * up;
        }
        compare("silu_mul", floats(out), want, tolerance);
    }
    const int64_t half = 12, positions[] = {1};
    const Floats cosines = numbers(2 * half), sines = numbers(2 * half);
    auto x = cast<T>(numbers(2 * half));
    Floats want(2 * half);
    for (int64_t i = 0; i < half; i++) {
        const float a = value_of(x[i]), b = value_of(x[half + i]), c = cosines[half + i], s = sines[half + i];
        want[i] = a * c - b * s, want[half + i] = b * c + a * s;
    }
    ramet_rotate(dtype, x.data(), 2 * half, cosines.data(), sines.data(), positions, 1, 1, 2 * half, half, 1);
    compare("rotate", floats(x), want, tolerance);
}

// Rows of heads in 8 bits, and what they say: each number is at most half a step of its head's largest from the exact one.
template <class T>
static std::vector<int8_t> quantised(int dtype, const std::vector<T> &exact, int rows, int heads, int head_dim, Floats &said) {
    std::vector<int8_t> made((size_t)rows * heads * (head_dim + 4)), same(made.size());
    std::vector<int64_t> slots;
    for (int i = 0; i < rows; i++) slots.push_back(i);
    const int64_t width = heads * head_dim;
    ramet_store_kv_int8(dtype, exact.data(), exact.data(), width, width, made.data(), same.data(), slots.data(), rows, heads, head_dim, 2);
    expect(made == same, "keys and values are quantised alike");
    for (int i = 0; i < rows * heads; i++) {
        const int8_t *head = made.data() + (size_t)i * (head_dim + 4);
        float scale, largest = 0;
        std::memcpy(&scale, head + head_dim, sizeof scale);
        for (int d = 0; d < head_dim; d++) largest = std::max(largest, std::fabs(value_of(exact[(size_t)i * head_dim + d])));
        for (int d = 0; d < head_dim; d++) {
            said.push_back(head[d] * scale);
            const float want = value_of(exact[(size_t)i * head_dim + d]);
            expect(std::fabs(said.back() - want) <= largest / 253, "8 bits", said.back(), want);
        }
    }
    return made;
}

enum Storage { SAME, IN_8_BITS };
struct Way {
    int dots, tiles;
};

// `tokens` queries at the end of `length` keys; with `cut`, each in two pieces that are merged. A score is a sum of head_dim products
// in LANES chains, whose rounding is at most half an ulp of the sum of magnitudes for each addition of a chain and of the last tree
// (Higham, Accuracy and Stability, 3.1). An error e_i of score i moves the output by weight_i e_i (v_i - output).
template <class T>
static void check_attention(int dtype, float tolerance, int tokens, int length, int head_dim, Rule rule, bool cut, Storage storage = SAME, int group = 2, Way way = {}) {
    const int kv_heads = 2, heads = kv_heads * group;
    const auto q = cast<T>(numbers((int64_t)tokens * heads * head_dim));
    const auto keys = cast<T>(numbers((int64_t)length * kv_heads * head_dim)), values = cast<T>(numbers((int64_t)length * kv_heads * head_dim));
    const bool is_int8 = storage == IN_8_BITS;
    Floats k, v;
    std::vector<int8_t> k8, v8;
    if (is_int8)
        k8 = quantised(dtype, keys, length, kv_heads, head_dim, k), v8 = quantised(dtype, values, length, kv_heads, head_dim, v);
    else
        k = floats(keys), v = floats(values);
    std::vector<int32_t> members, limits, partials, merges, table;
    for (int i = 0; i < length; i++) table.push_back((i * 7 + 3) % length);  // no multiple of 7 is a length
    for (int t = 0; t < tokens; t++) limits.push_back(length - tokens + t + 1);
    std::vector<Item> items;
    for (int piece = 0; piece < 1 + cut; piece++) {
        items.push_back({(int32_t)members.size(), tokens, 0, piece ? length / 2 : 0, cut && !piece ? length / 2 : length});
        for (int t = 0; t < tokens; t++) members.push_back(t), partials.push_back(cut ? 2 * t + piece : -1);
    }
    for (int t = 0; cut && t < tokens; t++) merges.insert(merges.end(), {t, 2 * t, 2});
    Floats partial_out(2 * tokens * heads * head_dim), partial_lse(2 * tokens * heads * 2), want, inherited;
    std::vector<T> out((size_t)tokens * heads * head_dim);
    const Plan plan = {items.data(), members.data(), limits.data(), partials.data(), merges.data(), table.data(), length, partial_out.data(),
                       partial_lse.data(), (int32_t)items.size(), (int32_t)merges.size() / 3, heads, kv_heads, head_dim, 2};
    const void *const k_rows = is_int8 ? (const void *)k8.data() : keys.data(), *const v_rows = is_int8 ? (const void *)v8.data() : values.data();
    ramet_choose_attention(way.dots, way.tiles);
    ramet_attention(&plan, &rule, dtype, is_int8 ? (int)INT8 : dtype, q.data(), heads * head_dim, k_rows, v_rows, out.data());
    ramet_choose_attention(0, 0);
    for (int t = 0; t < tokens; t++)
        for (int h = 0; h < heads; h++) {
            std::vector<double> total(head_dim), weights, errors;
            std::vector<size_t> rows;
            double sum = rule.sinks ? std::exp((double)rule.sinks[h]) : 0;
            for (int i = rule.window ? std::max(0, limits[t] - rule.window) : 0; i < limits[t]; i++) {
                const size_t at = ((size_t)table[i] * kv_heads + h / group) * head_dim;
                double score = 0, magnitude = 0;
                for (int d = 0; d < head_dim; d++) {
                    const double product = (double)value_of(q[((size_t)t * heads + h) * head_dim + d]) * k[at + d];
                    score += product, magnitude += std::fabs(product);
                }
                score *= rule.scale;
                if (rule.softcap > 0) score = rule.softcap * std::tanh(score / rule.softcap);
                const double weight = std::exp(score);
                sum += weight, weights.push_back(weight), rows.push_back(at);
                errors.push_back(0x1p-24 * (head_dim / LANES + std::log2(LANES) + 1) * magnitude * rule.scale);
                for (int d = 0; d < head_dim; d++) total[d] += weight * v[at + d];
            }
            for (int d = 0; d < head_dim; d++) {
                double moved = 0;
                for (size_t i = 0; i < rows.size(); i++) moved += weights[i] / sum * errors[i] * std::fabs(v[rows[i] + d] - total[d] / sum);
                want.push_back((float)(total[d] / sum)), inherited.push_back((float)moved);
            }
        }
    compare("attention", floats(out), want, tolerance, inherited);
}

static const float SINKS[] = {0.5f, -1.0f, 3.0f, 2.0f};

template <class T>
static void check_attentions(int dtype, float tolerance) {
    for (const int head_dim : {16, 48, 64, 80})
        for (const int tokens : {1, 5})
            for (const int length : {9, 33, 129})
                for (const Rule rule : {Rule{0.25f, 0, 0}, Rule{0.25f, 8, 2.0f}, Rule{0.25f, 0, 0, SINKS}}) {
                    check_attention<T>(dtype, tolerance, tokens, length, head_dim, rule, false);
                    if (!rule.window && length > 9) check_attention<T>(dtype, tolerance, tokens, length, head_dim, rule, true);
                }
    for (const Storage storage : {SAME, IN_8_BITS})
        for (const Way way : {Way{0, 0}, Way{1, 0}, Way{0, 1}, Way{1, 1}})
            for (const int group : {1, 2, 3, 4, 7, 8})
                for (const int tokens : {1, 17})
                    for (const int head_dim : {16, 64, 80, 256, 512})
                        check_attention<T>(dtype, tolerance, tokens, 40, head_dim, Rule{0.25f, 30, 0}, group == 3, storage, group, way);
}

static void check_draw() {
    const int64_t V = 1000, top_k[] = {0, 0, 1}, positions[] = {0, 0, 0};
    const float temperature[] = {0, 1, 1}, top_p[] = {1, 1, 1}, min_p[] = {0, 0, 0};
    const uint64_t seeds[] = {0, 0, 0};
    Floats logits(3 * V);
    logits[17] = logits[2 * V + 998] = 1;  // the best of the first and of the last row; the second row is flat
    int64_t tokens[3];
    uint8_t finite[3];
    ramet_draw(logits.data(), V, 3, temperature, top_k, top_p, min_p, seeds, positions, tokens, finite, 2);
    const double uniform = (double)((uint64_t)0x6627E8D5 << 21 | 0xE169C58D >> 11) * 0x1p-53;  // Random123's known answer
    expect(finite[0] && finite[1] && finite[2], "finite");
    expect(tokens[0] == 17, "the best token", tokens[0], 17);
    expect(tokens[1] == (int64_t)(uniform * V), "a drawn token", tokens[1], uniform * V);
    expect(tokens[2] == 998, "top_k of 1", tokens[2], 998);
    logits[5] = NAN;
    ramet_draw(logits.data(), V, 1, temperature, top_k, top_p, min_p, seeds, positions, tokens, finite, 2);
    expect(!finite[0], "a NaN is found");
}

static void check_logits() {
    const int64_t V = 1003, rows[] = {1}, num_top = 5;
    Floats logits = numbers(2 * V);
    const float temperature[] = {0.7f};
    float best, log_sum;
    int64_t tokens[num_top];
    ramet_normalise(logits.data(), V, rows, temperature, 1, num_top, &best, &log_sum, tokens, 1);
    double sum = 0;
    for (int64_t v = 0; v < V; v++) sum += std::exp((logits[V + v] - best) / 0.7f);
    compare("normalise", {log_sum}, {(float)std::log(sum)}, 1e-5f);
    for (int64_t k = 0; k < num_top; k++) {
        int64_t larger = 0;
        for (int64_t v = 0; v < V; v++) larger += logits[V + v] > logits[V + tokens[k]];
        expect(larger == k, "best tokens", larger, k);
    }
    std::vector<uint8_t> counts(V);
    std::vector<uint32_t> seen((V + 31) / 32);
    counts[3] = 2, counts[1002] = 255, seen[20 / 32] |= 1u << 20 % 32;
    Floats want = logits;
    const auto scaled = [](float x) { return x < 0 ? x * 1.5f : x / 1.5f; };
    want[3] = scaled(want[3] - (0.5f * 2 + 0.25f)), want[1002] = scaled(want[1002] - (0.5f * 255 + 0.25f)), want[20] = scaled(want[20]);
    const int32_t at[] = {0}, slot[] = {0};
    const float frequency[] = {0.5f}, presence[] = {0.25f}, repetition[] = {1.5f};
    ramet_penalise(logits.data(), V, at, slot, frequency, presence, repetition, 1, counts.data(), seen.data(), seen.size(), 1);
    compare("penalise", logits, want, 1e-6f);
}

// A narrow output is rounded once, a wide one nowhere.
template <class T>
static void check_linear(int dtype, float tolerance) {
    const int64_t sizes[][3] = {{1, 1, 1},    {1, 33, 100}, {2, 40, 65}, {3, 64, 96},   {5, 31, 17}, {6, 100, 32},
                                {11, 32, 31}, {12, 64, 64}, {16, 70, 5}, {17, 160, 33}, {33, 96, 40}, {64, 129, 31}};
    for (const auto &[tokens, num_in, num_out] : sizes)
        for (const bool wide : {false, true}) {
            const int64_t x_stride = num_in + 3;
            const auto x = cast<T>(numbers(tokens * x_stride)), weight = cast<T>(numbers(num_out * num_in)), bias = cast<T>(numbers(num_out));
            std::vector<T> packed(ramet_packed_size(num_out, num_in)), rows(2 * num_in), narrow(tokens * num_out);
            ramet_pack(dtype, weight.data(), num_in, num_out, num_in, packed.data(), 2);
            const int64_t which[] = {num_out - 1, 0};
            ramet_unpack(dtype, packed.data(), num_in, which, 2, 1.0f, rows.data(), 2);
            for (int64_t i = 0; i < num_in; i++) expect(value_of(rows[i]) == value_of(weight[(num_out - 1) * num_in + i]), "unpack");
            Floats got(tokens * num_out), want;
            void *const out = wide ? (void *)got.data() : (void *)narrow.data();
            ramet_linear(dtype, x.data(), x_stride, packed.data(), wide ? nullptr : bias.data(), out, num_out, tokens, num_in, num_out, wide, 2);
            for (int64_t t = 0; t < tokens; t++)
                for (int64_t n = 0; n < num_out; n++) {
                    double sum = wide ? 0 : value_of(bias[n]);
                    for (int64_t i = 0; i < num_in; i++) sum += (double)value_of(x[t * x_stride + i]) * value_of(weight[n * num_in + i]);
                    want.push_back((float)sum);
                }
            compare("linear", wide ? got : floats(narrow), want, wide ? 2e-5f : tolerance);
        }
}

// Zero in the place of inputs for which it matters whether a product is rounded before it is rounded to a whole number:
// what is multiplied and added in one operation is not.
template <class T>
static void settle(std::vector<T> &x, int64_t x_stride, int64_t tokens, int64_t num_in, int64_t group, const int32_t *order = nullptr) {
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t start = 0; start < num_in; start += group) {
            const auto input = [&](int64_t i) -> T & { return x[t * x_stride + (order ? order[start + i] : start + i)]; };
            float largest = 0;
            for (int64_t i = 0; i < group; i++) largest = std::max(largest, std::fabs(value_of(input(i))));
            for (int64_t i = 0; largest > 0 && i < group; i++) {
                const double product = (double)value_of(input(i)) * (127.0f / largest);
                if (std::nearbyint(product) != std::nearbyint((float)product)) input(i) = T{};
            }
        }
}

// What packed weights [M, N] in float32 make of inputs that are rounded in groups of `group` to 8 bits; 0: not rounded.
template <class T>
static Floats product(const std::vector<T> &x, int64_t x_stride, const Floats &weight, const Floats &bias, int64_t tokens, int64_t num_in,
                      int64_t num_out, int64_t group) {
    std::vector<double> inputs(tokens * num_in);
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t i = 0; i < num_in; i++) {
            float largest = 0;
            for (int64_t j = group ? i / group * group : 0; group && j < std::min(num_in, i / group * group + group); j++)
                largest = std::max(largest, std::fabs(value_of(x[t * x_stride + j])));
            const double value = value_of(x[t * x_stride + i]), inverse = largest > 0 ? 127.0f / largest : 0.0f;
            inputs[t * num_in + i] = group ? std::nearbyint((float)(value * inverse)) * (largest / 127.0f) : value;
        }
    Floats out;
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t n = 0; n < num_out; n++) {
            double sum = bias[n];
            for (int64_t i = 0; i < num_in; i++) sum += inputs[t * num_in + i] * weight[n * num_in + i];
            out.push_back((float)sum);
        }
    return out;
}

template <class T>
static void check_linear_int8(int dtype, float tolerance) {
    const int64_t sizes[][3] = {{1, 1, 1}, {2, 40, 65}, {5, 31, 17}, {12, 64, 64}, {17, 160, 33}, {33, 96, 40}};
    for (const auto &[tokens, num_in, num_out] : sizes) {
        const int64_t x_stride = num_in + 3, rounded = (num_out + 31) / 32 * 32;
        auto x = cast<T>(numbers(tokens * x_stride));
        settle(x, x_stride, tokens, num_in, num_in);
        const auto weight = cast<T>(numbers(num_out * num_in)), bias = cast<T>(numbers(num_out));
        std::vector<int8_t> packed(ramet_packed_size(num_out, num_in));
        Floats scales(rounded), got(tokens * num_out), rows(num_in), meant;
        std::vector<int32_t> sums(rounded);
        std::vector<T> row(num_in);
        ramet_pack_int8(dtype, weight.data(), num_in, num_out, num_in, packed.data(), scales.data(), sums.data(), 2);
        for (int64_t n = 0; n < num_out; n++) {
            ramet_unpack_int8(FLOAT32, packed.data(), scales.data(), num_in, &n, 1, 1.0f, rows.data(), 1);
            for (int64_t i = 0; i < num_in; i++)
                expect(std::fabs(rows[i] - value_of(weight[n * num_in + i])) <= 0.501f * scales[n], "unpack_int8", rows[i], value_of(weight[n * num_in + i]));
            meant.insert(meant.end(), rows.begin(), rows.end());
        }
        const Floats zeros(num_out), offsets = floats(bias);
        ramet_linear_int8(dtype, x.data(), x_stride, packed.data(), scales.data(), sums.data(), nullptr, got.data(), num_out, tokens, num_in, num_out, 1, 2);
        compare("linear_int8", got, product(x, x_stride, meant, zeros, tokens, num_in, num_out, num_in), 2e-5f);
        std::vector<T> narrow(tokens * num_out);
        ramet_linear_int8wo(dtype, x.data(), x_stride, packed.data(), scales.data(), bias.data(), narrow.data(), num_out, tokens, num_in, num_out, 0, 2);
        compare("linear_int8wo", floats(narrow), product(x, x_stride, meant, offsets, tokens, num_in, num_out, 0), tolerance);
    }
}

// Weights that are rounded here, and words of a checkpoint, of both layouts, with and without an order of inputs.
template <class T>
static void check_linear_int4(int dtype, float tolerance) {
    const int64_t sizes[][4] = {{1, 128, 80, 128}, {2, 64, 65, 32}, {5, 192, 17, 64}, {12, 256, 8, 128}, {17, 160, 33, 32}, {33, 384, 40, 128}};
    for (const auto &[tokens, num_in, num_out, group] : sizes)
        for (int kind = 0; kind < 4; kind++) {  // rounded here; AWQ; GPTQ; GPTQ with an order
            const int64_t x_stride = num_in + 3, groups = num_in / group;
            if (kind && num_out % 8) continue;
            const auto weight = cast<T>(numbers(num_out * num_in)), bias = cast<T>(numbers(num_out));
            std::vector<uint8_t> packed(ramet_packed_int4_size(num_out, num_in, group));
            std::vector<int32_t> order;
            for (int64_t i = 0; kind == 3 && i < num_in; i++) order.push_back((int32_t)((i * 7 + 3) % num_in));
            const int32_t *const at = order.empty() ? nullptr : order.data();
            auto x = cast<T>(numbers(tokens * x_stride));
            settle(x, x_stride, tokens, num_in, group, at);
            Floats meant(num_out * num_in);
            if (kind == 0) {
                ramet_pack_int4(dtype, weight.data(), num_in, num_out, num_in, group, packed.data(), 2);
            } else {
                const auto scales = cast<f16>(numbers(groups * num_out));
                Floats wholes(groups * num_out);
                for (float &zero : wholes) zero = float(random_bits() % 17);
                const auto zeros = cast<f16>(wholes);
                std::vector<uint32_t> words(num_in * num_out / 8);
                for (uint32_t &word : words) word = (uint32_t)random_bits();
                ramet_repack_int4(kind == 1 ? 0 : 1, words.data(), scales.data(), zeros.data(), at, num_out, num_in, group, packed.data(), 2);
                const int nibbles[] = {0, 4, 1, 5, 2, 6, 3, 7};
                for (int64_t n = 0; n < num_out; n++)
                    for (int64_t i = 0; i < num_in; i++) {
                        const int64_t in = at ? at[i] : i, g = i / group * num_out + n;
                        const uint32_t word = kind == 1 ? words[in * (num_out / 8) + n / 8] : words[in / 8 * num_out + n];
                        const int q = word >> 4 * (kind == 1 ? nibbles[n % 8] : in % 8) & 15;
                        meant[n * num_in + in] = (q - value_of(zeros[g])) * value_of(scales[g]);
                    }
            }
            Floats rows(num_in), got(tokens * num_out);
            for (int64_t n = 0; n < num_out; n++) {
                ramet_unpack_int4(FLOAT32, packed.data(), at, group, num_in, &n, 1, 1.0f, rows.data(), 1);
                for (int64_t i = 0; i < num_in; i++) {
                    float &want = meant[n * num_in + i];
                    if (kind == 0) expect(std::fabs(rows[i] - value_of(weight[n * num_in + i])) < 0.5f, "pack_int4", rows[i], value_of(weight[n * num_in + i]));
                    if (kind == 0) want = rows[i];
                    expect(rows[i] == want, "unpack_int4", rows[i], want);
                }
            }
            // the order of inputs decides which of them are rounded together
            std::vector<T> grouped(x);
            Floats weights(meant);
            for (int64_t i = 0; at && i < num_in; i++) {
                for (int64_t t = 0; t < tokens; t++) grouped[t * x_stride + i] = x[t * x_stride + at[i]];
                for (int64_t n = 0; n < num_out; n++) weights[n * num_in + i] = meant[n * num_in + at[i]];
            }
            const Floats none(num_out), offsets = floats(bias);
            ramet_linear_int4(dtype, x.data(), x_stride, packed.data(), at, group, nullptr, got.data(), num_out, tokens, num_in, num_out, 1, 2);
            compare("linear_int4", got, product(grouped, x_stride, weights, none, tokens, num_in, num_out, group), 2e-5f);
            std::vector<T> narrow(tokens * num_out);
            ramet_linear_int4(dtype, x.data(), x_stride, packed.data(), at, group, bias.data(), narrow.data(), num_out, tokens, num_in, num_out, 0, 2);
            compare("linear_int4", floats(narrow), product(grouped, x_stride, weights, offsets, tokens, num_in, num_out, group), tolerance);
        }
}

int main() {
    for (int arithmetic = 0; arithmetic < 3; arithmetic++)
        if (ramet_has_arithmetic(arithmetic)) ramet_choose_linear(0, arithmetic, arithmetic), check_linear<bf16>(BFLOAT16, 2e-2f);
    check_linear<float>(FLOAT32, 2e-5f), check_linear<f16>(FLOAT16, 3e-3f);
    check_linear_int8<float>(FLOAT32, 2e-5f), check_linear_int8<bf16>(BFLOAT16, 2e-2f), check_linear_int8<f16>(FLOAT16, 3e-3f);
    check_linear_int4<float>(FLOAT32, 2e-5f), check_linear_int4<bf16>(BFLOAT16, 2e-2f), check_linear_int4<f16>(FLOAT16, 3e-3f);
    check_conversion<bf16>("bfloat16");
    check_conversion<f16>("float16");
    check_powers();
    check_small_ops<float>(FLOAT32, 2e-6f), check_small_ops<bf16>(BFLOAT16, 2e-2f), check_small_ops<f16>(FLOAT16, 3e-3f);
    check_attentions<float>(FLOAT32, 2e-5f), check_attentions<bf16>(BFLOAT16, 2e-2f), check_attentions<f16>(FLOAT16, 3e-3f);
    check_draw();
    check_logits();
    std::printf("%d differences\n", failures);
    return failures != 0;
}
