// Threads of our own. A job is cut in pieces that the threads claim one by one, so a thread whose core is taken by
// another process costs its share and no more. Knows no kernel.
//
// The caller works as well; the others spin for a while after a job, then sleep. One job runs at a time: who comes
// meanwhile, from another thread or from inside a piece, computes its pieces alone.
//
// A list of jobs may also be begun, and joined later: until then one of the other threads runs it in its caller's place,
// so that a core is left to what the caller does meanwhile, and no more threads want one than before. A second list may be
// begun behind it, which starts the moment that the first is done.
#pragma once
#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace pool {

constexpr int64_t MAX_PIECES_PER_THREAD = 64;
constexpr int64_t MIN_VALUES = 1 << 14;  // of a piece: some microseconds, against which a claim is short

typedef void (*Piece)(void *context, int64_t piece);

// piece(context, p) for every p in [0, pieces), in any order, on up to `threads` threads; returns when all are done
void run(int threads, int64_t pieces, Piece piece, void *context);

typedef void (*List)(void *context);

// Runs list(context), which runs jobs, when those that this thread began before are done. Returns at once, with a number to
// join it by. 0: it has run here, because another thread's list was not joined. Of more than two the first is waited for.
int64_t begin(List list, void *context);

// Works on the jobs of what this thread has begun, until that list and those before it are done.
void join(int64_t number);

// body(p) for every piece p
template <class Body>
inline void each(int threads, int64_t pieces, Body &&body) {
    if (threads <= 1 || pieces <= 1) {
        for (int64_t p = 0; p < pieces; p++) body(p);
        return;
    }
    typedef std::remove_reference_t<Body> Plain;
    run(threads, pieces, [](void *context, int64_t piece) { (*static_cast<Plain *>(context))(piece); }, &body);
}

// body(first, stop) for stretches of at least `least` that make up [0, num)
template <class Body>
inline void each_stretch(int threads, int64_t num, int64_t least, Body &&body) {
    const int64_t most = threads <= 1 ? 1 : threads * MAX_PIECES_PER_THREAD, pieces = std::min(most, num / std::max<int64_t>(1, least));
    if (num > 0) each(threads, std::max<int64_t>(1, pieces), [&, all = std::max<int64_t>(1, pieces)](int64_t p) { body(num * p / all, num * (p + 1) / all); });
}

// body(i) for every i in [0, num), each about as much work as a few operations on so many values
template <class Body>
inline void each_of_many(int threads, int64_t num, int64_t values, Body &&body) {
    each_stretch(threads, num, MIN_VALUES / std::max<int64_t>(1, values), [&](int64_t first, int64_t stop) {
        for (int64_t i = first; i < stop; i++) body(i);
    });
}

}  // namespace pool
