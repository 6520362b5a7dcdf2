// Each thread has a share of a job's pieces, which lie next to each other, and a ticket for it: the job's number in the
// upper half, the pieces of the share that nobody has claimed in the lower one. A piece is claimed by an exchange that
// fails once the ticket has moved on. A thread that is done with its share goes on with those of the others.
#include "pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include <pthread.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace pool {
namespace {

constexpr auto SPIN = std::chrono::microseconds(50);  // between the jobs of a step no thread falls asleep
constexpr int LOOKS = 64;                             // at what is waited for, between two looks at the clock
constexpr int MAX_THREADS = 256;
constexpr int64_t MAX_BEGUN = 2;                      // lists: one runs, one comes behind it
constexpr uint64_t JOB = uint64_t(1) << 32;           // a ticket's unit of jobs
constexpr uint64_t PIECES = JOB - 1;                  // the half of a ticket that counts pieces

inline void pause() {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// True once `ready`; false after SPIN without.
template <class Ready>
bool spin(Ready ready) {
    const auto end = std::chrono::steady_clock::now() + SPIN;
    do {
        for (int look = 0; look < LOOKS; look++) {
            if (ready()) return true;
            pause();
        }
    } while (std::chrono::steady_clock::now() < end);
    return false;
}

thread_local bool is_working = false;  // on a piece: what that runs in turn, it runs alone
thread_local int own = 0;              // share of this thread: 0 of all that are not the pool's

struct Begun {
    List list;
    void *context;
};

struct alignas(64) Ticket {
    std::atomic<uint64_t> value{0};
};

// The threads of the process; there is one object, which nobody destroys: threads end with the process.
class Pool {
  public:
    void run(int threads, int64_t pieces, Piece piece, void *context) {
        threads = std::min(threads, MAX_THREADS);
        make(threads);
        publish(threads, pieces, piece, context);
        work_on(job);
        const auto done = [&] { return left.load(std::memory_order_acquire) == 0; };
        while (!spin(done)) std::this_thread::yield();  // a piece's thread has lost its core: it may want this one
    }

    int64_t begin(List list, void *context) {
        void *nobody = nullptr;
        if (begun_by.load(std::memory_order_relaxed) != &own && !begun_by.compare_exchange_strong(nobody, &own, std::memory_order_acq_rel)) {
            list(context);
            return 0;
        }
        make(2);
        const int64_t number = begun.load(std::memory_order_relaxed) + 1;
        help_until(number - MAX_BEGUN);
        lists[number % MAX_BEGUN] = {list, context};
        begun.store(number, std::memory_order_seq_cst);
        wake();
        return number;
    }

    void join(int64_t number) {
        if (begun_by.load(std::memory_order_relaxed) != &own) return;
        help_until(number);
        if (done.load(std::memory_order_relaxed) == begun.load(std::memory_order_relaxed)) begun_by.store(nullptr, std::memory_order_release);
    }

    std::mutex one_job;

  private:
    // Works on what was begun until list `number` is done.
    void help_until(int64_t number) {
        uint64_t last = 0;
        const auto over = [&] { return done.load(std::memory_order_acquire) >= number; };
        const auto fresh = [&] { return over() || (tickets[own].value.load(std::memory_order_seq_cst) & ~PIECES) != last; };
        while (!over()) {
            if (waits()) {  // nobody has taken the first of them yet
                run_list();
                continue;
            }
            if (!spin(fresh)) {
                std::this_thread::yield();
                continue;
            }
            if (over()) return;
            last = tickets[own].value.load(std::memory_order_acquire) & ~PIECES;
            work_on(last);
        }
    }

    // Whether a list can be taken: the one before it is done.
    bool waits() const {
        const int64_t next = taken.load(std::memory_order_seq_cst);
        return next < begun.load(std::memory_order_seq_cst) && next == done.load(std::memory_order_seq_cst);
    }

    // Threads that the system does not give are done without: those that are there work on all shares.
    void make(int threads) {
        if (num_threads.load(std::memory_order_acquire) >= std::min(threads, most_threads.load(std::memory_order_relaxed))) return;
        const std::lock_guard<std::mutex> held(making);
        try {
            for (int made = num_threads; made < std::min(threads, most_threads.load(std::memory_order_relaxed)); num_threads = ++made)
                workers.emplace_back([this, made] { work_for_ever(made); });
        } catch (const std::exception &why) {  // std::system_error of the thread, or no memory for it
            most_threads = num_threads.load();
            std::fprintf(stderr, "ramet: kernels have %d threads instead of %d, for no more can be made (%s): lower --num-threads\n",
                         num_threads.load(), threads, why.what());
        }
    }

    void run_list() {
        int64_t next = taken.load(std::memory_order_acquire);
        if (!waits() || !taken.compare_exchange_strong(next, next + 1, std::memory_order_acq_rel)) return;
        const Begun mine = lists[(next + 1) % MAX_BEGUN];
        mine.list(mine.context);
        done.store(next + 1, std::memory_order_seq_cst);
        if (begun.load(std::memory_order_seq_cst) > next + 1) wake();  // the next one was begun while all slept
    }

    void wake() {
        if (!sleepers.load(std::memory_order_seq_cst)) return;
        wakes.fetch_add(1, std::memory_order_release);
        wakes.notify_all();
    }

    void publish(int threads, int64_t pieces, Piece piece, void *context) {
        this->threads.store(threads, std::memory_order_relaxed);
        this->piece.store(piece, std::memory_order_relaxed);
        this->context.store(context, std::memory_order_relaxed);
        num_pieces.store(pieces, std::memory_order_relaxed);
        left.store(pieces, std::memory_order_relaxed);
        job += JOB;
        for (int t = 0; t < threads; t++)
            tickets[t].value.store(job + uint64_t(end_of(t, threads, pieces) - end_of(t - 1, threads, pieces)), std::memory_order_seq_cst);
        wake();
    }

    static int64_t end_of(int share, int threads, int64_t pieces) { return pieces * (share + 1) / threads; }

    // Until nobody can claim a piece of the job any more. A claimed piece keeps the job as it is.
    void work_on(uint64_t job) {
        is_working = true;
        const int threads = this->threads.load(std::memory_order_relaxed);
        for (int i = 0; i < threads; i++) work_on_share(job, (own + i) % threads);
        is_working = false;
    }

    void work_on_share(uint64_t job, int share) {
        std::atomic<uint64_t> &ticket = tickets[share].value;
        uint64_t seen = ticket.load(std::memory_order_acquire);
        while ((seen & ~PIECES) == job && (seen & PIECES) != 0) {
            if (!ticket.compare_exchange_weak(seen, seen - 1, std::memory_order_acq_rel)) continue;
            const int64_t end = end_of(share, threads.load(std::memory_order_relaxed), num_pieces.load(std::memory_order_relaxed));
            piece.load(std::memory_order_relaxed)(context.load(std::memory_order_relaxed), end - int64_t(seen & PIECES));
            left.fetch_sub(1, std::memory_order_release);
            seen = ticket.load(std::memory_order_acquire);
        }
    }

    void work_for_ever(int index) {
        own = index;
        uint64_t last = 0;
        const auto fresh = [&] { return waits() || (tickets[index].value.load(std::memory_order_seq_cst) & ~PIECES) != last; };
        for (;;) {
            if (!spin(fresh)) sleep_until(fresh);
            run_list();
            last = tickets[index].value.load(std::memory_order_acquire) & ~PIECES;
            work_on(last);
        }
    }

    template <class Fresh>
    void sleep_until(Fresh fresh) {
        sleepers.fetch_add(1, std::memory_order_seq_cst);
        for (;;) {
            const uint32_t before = wakes.load(std::memory_order_acquire);
            if (fresh()) break;
            wakes.wait(before, std::memory_order_acquire);
        }
        sleepers.fetch_sub(1, std::memory_order_relaxed);
    }

    // what several threads write has a cache line of its own
    Ticket tickets[MAX_THREADS];
    alignas(64) std::atomic<int64_t> left{0};
    alignas(64) std::atomic<uint32_t> wakes{0};
    std::atomic<int> sleepers{0};
    alignas(64) std::atomic<Piece> piece{nullptr};
    std::atomic<void *> context{nullptr};
    std::atomic<int64_t> num_pieces{0};
    std::atomic<int> threads{1};
    uint64_t job = 0;  // of the thread that runs jobs, which holds one_job
    alignas(64) std::atomic<int64_t> begun{0};  // lists, numbered from 1 on; one is taken when the one before it is done
    std::atomic<int64_t> taken{0}, done{0};
    Begun lists[MAX_BEGUN] = {};
    std::atomic<void *> begun_by{nullptr};      // the thread, by its `own`, some of whose lists are not joined
    std::mutex making;
    std::atomic<int> num_threads{1};              // there are, with the caller
    std::atomic<int> most_threads{MAX_THREADS};   // there can be, as far as is known
    std::vector<std::thread> workers;
};

std::atomic<Pool *> kept{nullptr};

// A child of fork has none of its parent's threads, and what these held or ran stays as it was: it gets a pool of its own.
Pool &of_process() {
    [[maybe_unused]] static const int registered = [] {
        kept = new Pool;
        return pthread_atfork(nullptr, nullptr, [] {
            kept = new Pool;
            own = 0, is_working = false;
        });
    }();
    return *kept.load(std::memory_order_acquire);
}

}  // namespace

void run(int threads, int64_t pieces, Piece piece, void *context) {
    if (!is_working) {
        Pool &all = of_process();
        const std::unique_lock<std::mutex> held(all.one_job, std::try_to_lock);
        if (held.owns_lock()) return all.run(threads, pieces, piece, context);
    }
    for (int64_t p = 0; p < pieces; p++) piece(context, p);
}

int64_t begin(List list, void *context) { return of_process().begin(list, context); }

void join(int64_t number) { of_process().join(number); }

}  // namespace pool
