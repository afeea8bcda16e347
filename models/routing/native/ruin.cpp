// Slack induction by string removals (Christiaens and Vanden Berghe 2020): a search that removes strings of neighbouring
// customers from neighbouring routes, inserts them greedily, and accepts the result by annealing.
//
// Nodes 1 to n are customers; node n + 1 + r is the depot of route r, a ring, as in local_search.cpp.
#include "tours.h"

#include <cmath>
#include <ctime>

namespace {

constexpr double REMOVED = 10;        // customers at a time, on average, where routes are long enough
constexpr double LONGEST = 10;        // string that is removed
constexpr double SPLIT = 0.5;         // probability that a string keeps customers in its midst
constexpr double ENOUGH = 0.01;       // probability that it keeps no further one
constexpr double BLINK = 0.01;        // probability that a place for a customer is overlooked
constexpr int NEAR = 10;              // neighbours beside which a customer may be inserted
constexpr int REACHED = 100;          // nearest customers in whose routes strings are removed
constexpr size_t FURTHER = 10;        // routes than those at the beginning
constexpr double HOT = 0.2, COLD = 0.02;  // first and last temperature, in units of the mean distance
constexpr int64_t CLOCK = 16;         // rounds between two looks at the clock

double thread_seconds() {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

class Annealing {
  public:
    Annealing(const Problem& problem, const Routes& routes, uint64_t seed)
        : p(problem), n(p.customers), count((int)std::min(routes.size() + FURTHER, (size_t)n)), random{seed},
          near(n + 1), absent(n + 1), now(n, count) {
        for (int r = 0; r < count; r++) {
            int u = n + 1 + r;
            if (r < (int)routes.size())
                for (int v : routes[r]) { link(u, v); enter(v, r); u = v; }
            link(u, n + 1 + r);
        }
        now.length = length(p, routes);
        double sum = 0;
        for (int u = 0; u <= n; u++)
            for (int v = 0; v < u; v++) sum += d(u, v);
        mean = sum / (0.5 * n * (n + 1));
        std::vector<int> order(n);
        for (int u = 1; u <= n; u++) {
            std::iota(order.begin(), order.end(), 1);
            std::swap(order[u - 1], order.back());
            const int reached = std::min(REACHED, n - 1);
            std::partial_sort(order.begin(), order.begin() + reached, order.end() - 1, [&](int a, int b) {
                return d(u, a) < d(u, b) || (d(u, a) == d(u, b) && a < b);
            });
            near[u].assign(order.begin(), order.begin() + reached);
        }
        overlook();
    }

    // Returns the best routes of so many rounds, or of so many seconds of this thread's CPU time if these are not 0.
    Routes run(int64_t rounds, double seconds) {
        Solution kept = now, best = now;
        double temperature = 0;
        for (int64_t round = 0;; round++) {
            if (round % CLOCK == 0) {
                const double done = seconds > 0 ? (thread_seconds() - begun) / seconds : (double)round / (double)rounds;
                if (done >= 1) break;
                temperature = mean * HOT * std::pow(COLD / HOT, done);
            }
            ruin(1 + below(n));
            if (recreate() && now.length < kept.length - temperature * std::log(1 - uniform())) {
                kept = now;
                if (kept.length < best.length) best = kept;
            } else {
                for (int c : removed) absent[c] = 0;
                now = kept;
            }
        }
        Routes routes;
        for (int r = 0; r < count; r++) {
            if (!best.size[r]) continue;
            routes.emplace_back();
            for (int u = best.next[n + 1 + r]; u <= n; u = best.next[u]) routes.back().push_back(u);
        }
        return routes;
    }

  private:
    struct Solution {
        Solution(int n, int count)
            : next(n + 1 + count), prev(next.size()), route(next.size()), size(count), load(count) {
            for (int r = 0; r < count; r++) route[n + 1 + r] = r;
        }
        std::vector<int> next, prev, route;  // of every node
        std::vector<int> size;               // customers of every route
        std::vector<double> load;
        double length = 0;
    };

    double d(int u, int v) const {
        return p.distance[(size_t)(u > n ? 0 : u) * (n + 1) + (size_t)(v > n ? 0 : v)];
    }
    double uniform() { return (double)(random() >> 11) * 0x1p-53; }
    int below(int limit) { return (int)(uniform() * limit); }
    void link(int u, int v) { now.next[u] = v; now.prev[v] = u; }
    void enter(int c, int r) { now.route[c] = r; now.load[r] += p.demand[c]; now.size[r]++; }

    void take_out(int c) {
        const int before = now.prev[c], behind = now.next[c], r = now.route[c];
        now.length += d(before, behind) - d(before, c) - d(c, behind);
        link(before, behind);
        now.load[r] -= p.demand[c];
        now.size[r]--;
        absent[c] = 1;
        removed.push_back(c);
    }

    // Removes strings of the routes of `seed` and of customers near it.
    void ruin(int seed) {
        removed.clear();
        ruined.clear();
        int routes = 0;
        for (int size : now.size) routes += size > 0;
        const double longest = std::min(LONGEST, (double)n / routes);
        const int strings = 1 + below((int)std::max(1., 4 * REMOVED / (1 + longest) - 1));
        remove_string(seed, longest);
        for (int c : near[seed]) {
            if ((int)ruined.size() == strings) break;
            if (!absent[c] && std::find(ruined.begin(), ruined.end(), now.route[c]) == ruined.end())
                remove_string(c, longest);
        }
    }

    void remove_string(int c, double longest) {
        const int r = now.route[c], size = now.size[r];
        const int taken = std::min(size, 1 + (int)(uniform() * std::min((double)size, longest)));
        int spared = 0;
        if (taken > 1 && taken < size && uniform() < SPLIT)
            for (spared = 1; taken + spared < size && uniform() > ENOUGH;) spared++;
        int place = 0;
        for (int u = now.prev[c]; u <= n; u = now.prev[u]) place++;
        const int span = taken + spared, first = std::max(0, place - span + 1), last = std::min(place, size - span);
        const int start = first + below(last - first + 1), gap = spared ? below(taken + 1) : 0;
        int u = now.next[n + 1 + r];
        for (int i = 0; i < start; i++) u = now.next[u];
        for (int i = 0; i < span; i++) {
            const int next = now.next[u];
            if (i < gap || i >= gap + spared) take_out(u);
            u = next;
        }
        ruined.push_back(r);
    }

    // Inserts what was removed, in a random order of four kinds; returns false if the routes do not suffice.
    bool recreate() {
        const double kind = 11 * uniform();
        order.clear();
        for (int c : removed)
            order.emplace_back(kind < 4 ? uniform() : kind < 8 ? -p.demand[c] : kind < 10 ? -d(0, c) : d(0, c), c);
        std::sort(order.begin(), order.end());
        for (const auto& [_, c] : order)
            if (!insert(c)) return false;
        return true;
    }

    bool insert(int c) {
        double least = std::numeric_limits<double>::infinity();
        int behind = -1;
        auto consider = [&](int u) {
            if (--overlooked == 0) return overlook();
            const double cost = d(u, c) + d(c, now.next[u]) - d(u, now.next[u]);
            if (cost < least) least = cost, behind = u;
        };
        auto fits = [&](int r) { return now.load[r] + p.demand[c] <= p.capacity; };
        const int tried = std::min(NEAR, (int)near[c].size());
        for (int i = 0; i < tried; i++) {
            const int v = near[c][i];
            if (!absent[v] && fits(now.route[v])) consider(v), consider(now.prev[v]);
        }
        int unused = -1;
        for (int r = 0; r < count; r++) {
            if (!now.size[r]) unused = r;
            else if (fits(r)) consider(n + 1 + r), consider(now.prev[n + 1 + r]);
        }
        if (unused >= 0 && 2 * d(0, c) < least) least = 2 * d(0, c), behind = n + 1 + unused;
        if (behind < 0) return false;
        now.length += least;
        link(c, now.next[behind]);
        link(behind, c);
        enter(c, now.route[behind]);
        absent[c] = 0;
        return true;
    }

    void overlook() { overlooked = 1 + (int64_t)(std::log(1 - uniform()) / std::log(1 - BLINK)); }

    const double begun = thread_seconds();
    const Problem& p;
    const int n, count;
    Random random;
    double mean = 0;                     // of the distances
    std::vector<std::vector<int>> near;  // of each customer, others by their distance
    std::vector<char> absent;            // of each customer, whether it is in no route
    std::vector<int> removed, ruined;    // customers and routes
    std::vector<std::pair<double, int>> order;
    int64_t overlooked = 0;  // places until the next that is
    Solution now;
};

}  // namespace

// Writes to best (B, T), which the caller has filled with the depot, the shortest tour that annealing finds from the
// tours given (B, T), or from random ones if that is null. It takes `rounds`, or `seconds` of CPU time for each problem
// if these are not 0. The other arguments are those of improve_tours.
extern "C" void ruin_and_recreate_tours(int threads, int batch, int nodes, int64_t rounds, double seconds,
                                        const double* distance, const double* demand, const double* capacity,
                                        const int64_t* given, const int64_t* seeds, int64_t* best) {
    const int steps = 2 * (nodes - 1);
    spread(threads, batch, [&](int b) {
        const Problem p(nodes, 0, distance + (size_t)b * nodes * nodes, demand + (size_t)b * nodes, capacity[b]);
        Random random{(uint64_t)seeds[b]};
        const Routes start = starting_routes(p, random, given ? given + (size_t)b * steps : nullptr, 1)[0];
        const Routes found = Annealing(p, start, random()).run(rounds, seconds);
        write_routes(length(p, found) < length(p, start) ? found : start, best + (size_t)b * steps, steps);
    });
}
