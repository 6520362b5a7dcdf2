// Runs a list of calls: one step of a model, whatever Python does meanwhile.
#include "replay.h"

namespace {

struct Call {
    void (*run)(const int64_t *words);
    const int64_t *words;
};

}  // namespace

extern "C" void ramet_replay(const Call *calls, int64_t num) {
    for (int64_t i = 0; i < num; i++) calls[i].run(calls[i].words);
}
