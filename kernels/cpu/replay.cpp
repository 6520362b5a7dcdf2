// Runs a list of calls: one step of a model, whatever Python does meanwhile.
#include "replay.h"

#include "pool.h"

namespace {

struct Call {
    void (*run)(const int64_t *words);
    const int64_t *words;
};

struct Calls {
    const Call *calls;
    int64_t num;
};

void run(void *context) {
    const Calls *const list = static_cast<Calls *>(context);
    for (int64_t i = 0; i < list->num; i++) list->calls[i].run(list->calls[i].words);
}

}  // namespace

// Returns when they are done with one thread, else at once; see pool::begin. `list` and its calls stay as they are.
extern "C" void ramet_replay(Calls *list, int threads) { threads > 1 ? pool::begin(run, list) : run(list); }

// Works on what this thread has begun until it is done.
extern "C" void ramet_join() { pool::join(); }
