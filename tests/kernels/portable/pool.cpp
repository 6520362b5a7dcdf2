// Jobs of every size on several threads, from several callers at once and inside of one another, and lists of jobs that are
// begun and joined: each piece runs once.
// Exits with 0 if it does; made to be run with -fsanitize=thread.
#include "pool.h"

#include <atomic>
#include <cstdio>
#include <thread>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

static std::atomic<int> wrong{0};

static void run_jobs(int rounds) {
    for (int round = 0; round < rounds; round++)
        for (const int threads : {1, 2, 3, 5}) {
            const int64_t pieces = (round * 7 + threads) % 41;
            std::vector<int> runs(pieces);
            std::vector<std::atomic<int>> inner(pieces);  // an only piece is no job: what it runs may have several threads
            pool::each(threads, pieces, [&](int64_t p) {
                runs[p]++;
                pool::each(threads, 3, [&](int64_t i) { inner[p] += int(i); });
            });
            for (int64_t p = 0; p < pieces; p++) wrong += runs[p] != 1 || inner[p] != 3;
            std::vector<int> seen(pieces * 5);
            pool::each_stretch(threads, pieces * 5, 3, [&](int64_t first, int64_t stop) {
                for (int64_t i = first; i < stop; i++) seen[i]++;
            });
            pool::each_of_many(threads, pieces * 5, pool::MIN_VALUES, [&](int64_t i) { seen[i]++; });
            for (const int times : seen) wrong += times != 2;
        }
}

// What was begun is done once it is joined, whether it is joined at once, late, behind another, or while other callers have
// lists as well; and lists run in their order.
static void run_lists(int rounds) {
    struct Sums {
        int threads, done;
        std::vector<int> values;
    } sums = {0, 0, std::vector<int>(100)};
    const auto list = [](void *context) {
        Sums &to = *static_cast<Sums *>(context);
        for (int job = 0; job < 5; job++) pool::each(to.threads, 100, [&](int64_t p) { to.values[p] += job; });
        for (const int value : to.values) wrong += value != 10 * (to.done + 1);
        to.done++;
    };
    int64_t last = 0;
    for (int round = 0, begun = 0; round < rounds; round++) {
        if (round % 7 == 0) sums.threads = 2 + round % 3;  // nothing runs
        const int64_t number = pool::begin(list, &sums);
        begun++;
        if (round % 3 == 1) run_jobs(1);
        if (round % 100 == 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (round % 7 == 6) {
            pool::join(number);
            pool::join(number);  // nothing is left of it
            wrong += sums.done != begun;
        } else if (round % 2) {
            pool::join(last);
        }  // else the next one is begun behind it, or behind two
        last = number;
    }
    pool::join(last);
    wrong += sums.done != rounds;
}

#if !defined(__SANITIZE_THREAD__)  // which allows no thread after a fork
// A child of fork has a pool of its own, whatever its parent's threads did at that moment.
static void fork_often(int rounds) {
    std::atomic<bool> over{false};
    std::thread busy([&] {
        while (!over) run_lists(7);
    });
    for (int round = 0; round < rounds; round++) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(60);  // a child that hangs dies of it
            std::vector<std::thread> threads;
            for (int i = 0; i < 4; i++) threads.emplace_back(run_lists, 14);
            for (std::thread &each : threads) each.join();
            _exit(wrong != 0);
        }
        int status = 1;
        waitpid(child, &status, 0);
        wrong += status != 0;
    }
    over = true;
    busy.join();
}
#endif

int main() {
    std::thread other(run_jobs, 2000);
    run_jobs(2000);
    other.join();
    run_lists(2000);
    std::thread beside(run_lists, 1000);
    run_lists(1000);
    beside.join();
    for (int round = 0; round < 20; round++) {  // the threads fall asleep in between
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        run_jobs(3);
    }
#if !defined(__SANITIZE_THREAD__)
    fork_often(50);
#endif
    std::printf("%d differences\n", wrong.load());
    return wrong != 0;
}
