// Calls with their arguments as words of 64 bits, so that a list of them can be made once and run many times: the CPU's
// form of a CUDA graph. Numbers are words, a float is the bits of its lower half, a pointer is its address.
#pragma once
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

namespace replay {

template <class T>
inline T argument(int64_t word) {
    if constexpr (std::is_pointer_v<T>) {
        return reinterpret_cast<T>(word);
    } else if constexpr (std::is_same_v<T, float>) {
        const uint32_t bits = uint32_t(word);
        float x;
        std::memcpy(&x, &bits, sizeof x);
        return x;
    } else {
        return static_cast<T>(word);
    }
}

template <class... A, size_t... I>
inline void call(void (*function)(A...), const int64_t *words, std::index_sequence<I...>) {
    function(argument<A>(words[I])...);
}

template <class... A>
inline void call(void (*function)(A...), const int64_t *words) {
    call(function, words, std::index_sequence_for<A...>{});
}

}  // namespace replay

#define REPLAYABLE(name) \
    extern "C" void name##_words(const int64_t *words) { replay::call(name, words); }
