// Runs a list of calls: one step of a model, whatever Python does meanwhile.
#include "replay.h"

#include <chrono>

#include "pool.h"

namespace {

struct Call {
    void (*run)(const int64_t *words);
    const int64_t *words;
};

struct Calls {
    const Call *calls;
    int64_t num;
    double took_s;  // written when they have run
};

void run(void *context) {
    Calls *const list = static_cast<Calls *>(context);
    const auto started = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < list->num; i++) list->calls[i].run(list->calls[i].words);
    list->took_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
}

}  // namespace

// Returns 0 when they are done with one thread, else at once a number to join them by; see pool::begin. `list` and its
// calls stay as they are.
extern "C" int64_t ramet_replay(Calls *list, int threads) {
    if (threads > 1) return pool::begin(run, list);
    run(list);
    return 0;
}

// Works on what this thread has begun until that is done.
extern "C" void ramet_join(int64_t number) { pool::join(number); }

// `bytes` of one place to another: what a step reads, which the host writes while the step before it may run.
extern "C" void ramet_copy(void *to, const void *from, int64_t bytes) { std::memcpy(to, from, size_t(bytes)); }
REPLAYABLE(ramet_copy)
