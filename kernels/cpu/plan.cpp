// Cuts a step's attention into the items that attention.cpp computes: which rows read a shared prefix together, and where
// long rows are cut so that every thread has work. What it does is that of runtime/attention/cut.py, number by number.
//
// R rows, L slots of a row of the table. A slot holds one token of one position, so two rows with equal slots at a position
// have equal slots before it: where a common prefix ends is found by bisection. Only rows with parallel contexts may hold
// the same slots in another order: these are compared slot by slot.
#include <algorithm>
#include <numeric>
#include <vector>

#include "plan.h"
#include "replay.h"

namespace {

constexpr int64_t MIN_SHARED = 64;  // keys of a common prefix below which reading them row by row is as good
constexpr int64_t MIN_PIECE = 128;  // keys below which a cut costs more than an idle core
constexpr int64_t MAX_MEMBERS = 32; // tokens of one item: beyond, the sums of their queries no longer fit the core's cache
constexpr int64_t PIECES_PER_THREAD = 2;

// Rows whose keys [start, stop) are the same slots.
struct Share {
    std::vector<int32_t> rows;
    int32_t start, stop;
};

// Keys [start, stop) of table row `row`, for the queries tokens[first, first + num).
struct Run {
    size_t first;
    int64_t num;
    int32_t row, start, stop;
    int64_t cost() const { return int64_t(stop - start) * (3 + num); }  // widening a key once costs as much as three queries
};

struct Rows {
    const Step &step;
    int32_t slot(int32_t r, int64_t position) const { return step.table[step.rows[r] * step.table_stride + position]; }
    // Keys that row r may read together with others: none if its own queries fill an item, which would read them as often.
    int32_t num_sharable(int32_t r) const { return step.num_new[r] < MAX_MEMBERS ? step.seq_lens[r] - step.num_new[r] : 0; }

    // The first position in (start, limit] from which on the rows differ; they agree at `start`.
    int32_t common_end(const std::vector<int32_t> &rows, int32_t start, int32_t limit) const {
        int32_t low = start + 1, high = limit;
        while (low < high) {
            const int32_t middle = (low + high + 1) / 2, slot_there = slot(rows[0], middle - 1);
            const bool alike = std::all_of(rows.begin(), rows.end(), [&](int32_t r) { return slot(r, middle - 1) == slot_there; });
            alike ? low = middle : high = middle - 1;
        }
        return low;
    }
    // As common_end, whatever comes after the first difference.
    int32_t compared_end(const std::vector<int32_t> &rows, int32_t start, int32_t limit) const {
        for (int32_t at = start; at < limit; at++)
            for (const int32_t r : rows)
                if (slot(r, at) != slot(rows[0], at)) return at;
        return limit;
    }
};

std::vector<Share> find_shares(const Rows &rows) {
    std::vector<Share> found;
    if (rows.step.num_rows < 2) return found;
    std::vector<std::pair<std::vector<int32_t>, int32_t>> pending(1);
    pending[0].first.resize(rows.step.num_rows);
    std::iota(pending[0].first.begin(), pending[0].first.end(), 0);
    while (!pending.empty()) {
        auto [group, start] = std::move(pending.back());
        pending.pop_back();
        std::erase_if(group, [&, at = start](int32_t r) { return rows.num_sharable(r) < at + MIN_SHARED; });
        std::stable_sort(group.begin(), group.end(), [&, at = start](int32_t a, int32_t b) { return rows.slot(a, at) < rows.slot(b, at); });
        for (size_t first = 0, end; first < group.size(); first = end) {
            for (end = first + 1; end < group.size() && rows.slot(group[end], start) == rows.slot(group[first], start);) end++;
            if (end - first < 2) continue;
            std::vector<int32_t> alike(group.begin() + first, group.begin() + end);
            int32_t limit = rows.num_sharable(alike[0]);
            bool shifted = false;
            for (const int32_t r : alike) limit = std::min(limit, rows.num_sharable(r)), shifted |= rows.step.shifts && rows.step.shifts[r] > 0;
            const int32_t stop = shifted ? rows.compared_end(alike, start, limit) : rows.common_end(alike, start, limit);
            if (stop - start < MIN_SHARED) continue;
            found.push_back({alike, start, stop});
            pending.emplace_back(std::move(alike), stop);
        }
    }
    return found;
}

}  // namespace

struct Planner {
    std::vector<int32_t> own_start, tokens, members, owns, partials, merges, counts, next;
    std::vector<Item> items;
    std::vector<Run> runs;
    std::vector<float> partial_out, partial_lse;

    void plan(const Step &step, Plan &plan) {
        const Rows rows{step};
        const int32_t end_of_tokens = place_tokens(step);
        const std::vector<Share> shares = find_shares(rows);
        tokens.clear(), runs.clear(), items.clear(), members.clear();
        own_start.assign(step.num_rows, 0);
        for (const Share &share : shares) add_share(step, share);
        for (int32_t r = 0; r < step.num_rows; r++)
            for (int64_t at = 0; at < step.num_new[r]; at += MAX_MEMBERS) {
                const int64_t end = std::min<int64_t>(at + MAX_MEMBERS, step.num_new[r]);
                const size_t first = tokens.size();
                for (int64_t i = at; i < end; i++) tokens.push_back(step.first_tokens[r] + int32_t(i));
                runs.push_back({first, end - at, step.rows[r], own_start[r], last_seen(step, first)});
            }
        cut_runs(step.threads);
        const int32_t num_partials = add_merges(end_of_tokens);
        fit_partials(num_partials, plan);
        plan.items = items.data(), plan.members = members.data(), plan.owns = owns.data(), plan.partials = partials.data();
        plan.limits = step.sees ? step.sees : plan.owns;
        plan.merges = merges.data(), plan.table = step.table, plan.table_stride = step.table_stride;
        plan.num_items = int32_t(items.size()), plan.num_merges = int32_t(merges.size() / 3), plan.threads = step.threads;
    }

  private:
    // Where each token is; returns the end of the tokens.
    int32_t place_tokens(const Step &step) {
        const int32_t last = step.num_rows - 1, end = step.first_tokens[last] + step.num_new[last];
        owns.resize(end);
        for (int32_t r = 0; r < step.num_rows; r++)
            for (int32_t i = 0; i < step.num_new[r]; i++) owns[step.first_tokens[r] + i] = step.seq_lens[r] - step.num_new[r] + i + 1;
        return end;
    }

    // The end of the keys that tokens from `first` on see.
    int32_t last_seen(const Step &step, size_t first) const {
        int32_t most = owns[tokens.back()];
        for (size_t i = first; step.sees && i < tokens.size(); i++) most = std::max(most, step.sees[tokens[i]]);
        return most;
    }

    void add_share(const Step &step, const Share &share) {
        const size_t first = tokens.size();
        for (const int32_t r : share.rows) {
            for (int32_t i = 0; i < step.num_new[r]; i++) tokens.push_back(step.first_tokens[r] + i);
            own_start[r] = share.stop;
        }
        for (size_t at = first; at < tokens.size(); at += MAX_MEMBERS)
            runs.push_back({at, std::min<int64_t>(MAX_MEMBERS, int64_t(tokens.size() - at)), step.rows[share.rows[0]], share.start, share.stop});
    }

    void cut_runs(int threads) {
        int64_t total = 0;
        for (const Run &run : runs) total += run.cost();
        const int64_t largest = std::max<int64_t>(1, threads == 1 ? total : total / (threads * PIECES_PER_THREAD));
        for (const Run &run : runs) {
            const int64_t keys = run.stop - run.start, num = std::max<int64_t>(1, std::min((run.cost() + largest - 1) / largest, keys / MIN_PIECE));
            for (int64_t i = 0; i < num; i++) {
                items.push_back({int32_t(members.size()), int32_t(run.num), run.row, run.start + int32_t(keys * i / num), run.start + int32_t(keys * (i + 1) / num)});
                members.insert(members.end(), tokens.begin() + run.first, tokens.begin() + run.first + run.num);
            }
        }
    }

    // Tokens that occur more than once get consecutive partials, one an occurrence; returns how many there are.
    int32_t add_merges(int32_t end_of_tokens) {
        merges.clear();
        counts.assign(end_of_tokens, 0), next.assign(end_of_tokens, -1), partials.resize(members.size());
        for (const int32_t token : members) counts[token]++;
        int32_t num = 0;
        for (int32_t token = 0; token < end_of_tokens; token++)
            if (counts[token] > 1) {
                merges.insert(merges.end(), {token, num, counts[token]});
                next[token] = num, num += counts[token];
            }
        for (size_t i = 0; i < members.size(); i++) partials[i] = next[members[i]] < 0 ? -1 : next[members[i]]++;
        return num;
    }

    void fit_partials(int64_t num, Plan &plan) {
        if (int64_t(partial_lse.size()) < num * plan.heads * 2) partial_lse.resize(num * plan.heads * 2), partial_out.resize(num * plan.heads * plan.head_dim);
        plan.partial_out = partial_out.data(), plan.partial_lse = partial_lse.data();
    }
};

extern "C" Planner *ramet_make_planner() { return new Planner; }
extern "C" void ramet_free_planner(Planner *planner) { delete planner; }

// Writes all of the plan but heads, kv_heads and head_dim, which it reads; good until the planner's next plan.
extern "C" void ramet_plan(Planner *planner, const Step *step, Plan *plan) { planner->plan(*step, *plan); }
REPLAYABLE(ramet_plan)
