// Slack induction by string removals (Christiaens and Vanden Berghe 2020): a search that removes strings of neighbouring
// customers from neighbouring routes, inserts them greedily, and accepts the result by annealing.
//
// Nodes 1 to n are customers; node n + 1 + r is the depot of route r, a ring, as in local_search.h. A round costs the
// same whatever n is: what it changes is noted, so that a round that is not accepted is taken back and the best tours
// follow the accepted ones by their changes alone.
#pragma once
#include "tours.h"

class Annealing {
  public:
    // Temperatures are in units of the mean distance between neighbours.
    Annealing(const Problem& problem, const Routes& routes, uint64_t seed)
        : p(problem), n(p.customers), count((int)std::min(routes.size() + FURTHER, (size_t)n)), nodes(n + 1 + count),
          random{seed}, absent(n + 1), state(3 * (size_t)nodes + count), values(nodes + (size_t)count) {
        for (int r = 0; r < count; r++) {
            int u = n + 1 + r;
            route(u) = r;
            if (r < (int)routes.size())
                for (int v : routes[r]) {
                    next(u) = v, prev(v) = u, route(v) = r, load(r) += p.demand[v], size(r)++;
                    ahead(u) = d(u, v);
                    u = v;
                }
            next(u) = n + 1 + r, prev(n + 1 + r) = u, ahead(u) = d(u, 0);
            used += size(r) > 0;
            if (!size(r)) vacate(r);
        }
        now = length(p, routes);
        overlook();
    }

    // Returns the best routes of so many rounds, or of this thread's CPU time until `deadline` if that is not 0.
    Routes run(int64_t rounds, double deadline, double hot, double cold) {
        const double begun = thread_seconds();
        double kept = now, least = now, temperature = 0;
        best = state;
        for (int64_t round = 0;; round++) {
            if (round % CLOCK == 0) {
                const double done = deadline > 0 ? (thread_seconds() - begun) / std::max(1e-9, deadline - begun)
                                                 : (double)round / (double)rounds;
                if (done >= 1) break;
                temperature = hot * std::pow(cold / hot, done);
            }
            ruin(1 + random.below(n));
            if (recreate() && now < kept - temperature * std::log(1 - random.uniform())) {
                kept = now;
                for (const auto& change : changes) since.push_back(change.slot);
                if (kept < least) follow(), least = kept;
                else if (since.size() > state.size()) since.resize(0), stale = true;
            } else {
                take_back(kept);
            }
            changes.clear(), olds.clear();
        }
        Routes routes;
        for (int r = 0; r < count; r++) {
            if (!best[3 * (size_t)nodes + r]) continue;
            routes.emplace_back();
            for (int u = best[n + 1 + r]; u <= n; u = best[u]) routes.back().push_back(u);
        }
        return routes;
    }

  private:
    static constexpr double REMOVED = 8;      // customers at a time, on average, where routes are long enough
    static constexpr double LONGEST = 8;      // string that is removed
    static constexpr double SPLIT = 0.5;      // probability that a string keeps customers in its midst
    static constexpr double ENOUGH = 0.01;    // probability that it keeps no further one
    static constexpr double BLINK = 0.01;     // probability that a place for a customer is overlooked
    static constexpr int NEAR = 10;           // neighbours beside which a customer may be inserted
    static constexpr size_t FURTHER = 10;     // routes than those at the beginning
    static constexpr int64_t CLOCK = 16;      // rounds between two looks at the clock

    struct Change { int slot, old; };

    double d(int u, int v) const { return p(u > n ? 0 : u, v > n ? 0 : v); }
    int& next(int u) { return state[u]; }
    int& prev(int u) { return state[(size_t)nodes + u]; }
    int& route(int u) { return state[2 * (size_t)nodes + u]; }
    int& size(int r) { return state[3 * (size_t)nodes + r]; }
    void set(int& value, int to) {
        changes.push_back({(int)(&value - state.data()), value});
        value = to;
    }
    double& load(int r) { return values[(size_t)nodes + r]; }
    double& ahead(int u) { return values[u]; }
    void set(double& value, double to) {
        olds.emplace_back((int)(&value - values.data()), value);
        value = to;
    }
    void link(int u, int v, double apart) { set(next(u), v), set(prev(v), u), set(ahead(u), apart); }
    void weigh(int r, double more, int customers) {
        set(load(r), load(r) + more);
        used -= size(r) > 0;
        set(size(r), size(r) + customers);
        used += size(r) > 0;
        if (!size(r)) vacate(r);
    }
    void vacate(int r) {
        if (vacancies.empty() || vacancies.back() != r) vacancies.push_back(r);
    }

    void take_back(double kept) {
        for (int c : removed) absent[c] = 0;
        for (auto change = changes.rbegin(); change != changes.rend(); ++change) {
            const int r = change->slot - 3 * nodes;
            if (r >= 0) used += (change->old > 0) - (state[change->slot] > 0);
            state[change->slot] = change->old;
            if (r >= 0 && !change->old) vacate(r);
        }
        for (auto each = olds.rbegin(); each != olds.rend(); ++each) values[each->first] = each->second;
        now = kept;
    }

    void follow() {
        if (stale) best = state;
        else for (int slot : since) best[slot] = state[slot];
        since.clear(), stale = false;
    }

    void take_out(int c) {
        const int before = prev(c), behind = next(c);
        const double apart = d(before, behind);
        now += apart - ahead(before) - ahead(c);
        link(before, behind, apart);
        weigh(route(c), -p.demand[c], -1);
        absent[c] = 1;
        removed.push_back(c);
    }

    // Removes strings of the routes of `seed` and of customers near it.
    void ruin(int seed) {
        removed.clear(), ruined.clear();
        const double longest = std::min(LONGEST, (double)n / used);
        const int strings = 1 + random.below((int)std::max(1., 4 * REMOVED / (1 + longest) - 1));
        remove_string(seed, longest);
        for (const int* c = p.begin(seed); c < p.end(seed) && (int)ruined.size() < strings; c++)
            if (!absent[*c] && std::find(ruined.begin(), ruined.end(), route(*c)) == ruined.end())
                remove_string(*c, longest);
    }

    void remove_string(int c, double longest) {
        const int r = route(c), customers = size(r);
        const int taken = std::min(customers, 1 + (int)(random.uniform() * std::min((double)customers, longest)));
        int spared = 0;
        if (taken > 1 && taken < customers && random.uniform() < SPLIT)
            for (spared = 1; taken + spared < customers && random.uniform() > ENOUGH;) spared++;
        // The string begins up to `span` - 1 customers before c, and within the route.
        const int span = taken + spared;
        int before = 0, behind = 0, first = c;
        for (int u = prev(c); u <= n && before < span - 1; u = prev(u)) before++;
        for (int u = next(c); u <= n && behind < span - 1; u = next(u)) behind++;
        const int least = std::max(0, span - 1 - behind);
        for (int back = least + random.below(before - least + 1); back > 0; back--) first = prev(first);
        const int gap = spared ? random.below(taken + 1) : 0;
        for (int i = 0, u = first; i < span; i++) {
            const int after = next(u);
            if (i < gap || i >= gap + spared) take_out(u);
            u = after;
        }
        ruined.push_back(r);
    }

    // Inserts what was removed, in a random order of four kinds; returns false if the routes do not suffice.
    bool recreate() {
        const double kind = 11 * random.uniform();
        order.clear();
        for (int c : removed)
            order.emplace_back(kind < 4 ? random.uniform() : kind < 8 ? -p.demand[c] : kind < 10 ? -d(0, c) : d(0, c), c);
        std::sort(order.begin(), order.end());
        for (const auto& [_, c] : order)
            if (!insert(c)) return false;
        return true;
    }

    bool insert(int c) {
        double least = std::numeric_limits<double>::infinity();
        int at = -1;
        auto consider = [&](int u) {
            if (--overlooked == 0) return overlook();
            const double cost = d(c, u) + d(c, next(u)) - ahead(u);
            if (cost < least) least = cost, at = u;
        };
        auto fits = [&](int r) { return load(r) + p.demand[c] <= p.capacity; };
        const int tried = std::min(NEAR, p.near);
        for (const int* v = p.begin(c); v < p.begin(c) + tried; v++)
            if (!absent[*v] && fits(route(*v))) consider(*v), consider(prev(*v));
        for (int r : ruined)
            if (size(r) && fits(r)) consider(n + 1 + r), consider(prev(n + 1 + r));
        if (at < 0)  // no neighbour's route has room
            for (int r = 0; r < count; r++)
                if (size(r) && fits(r)) consider(n + 1 + r), consider(prev(n + 1 + r));
        while (!vacancies.empty() && size(vacancies.back())) vacancies.pop_back();
        if (!vacancies.empty() && 2 * d(0, c) < least) least = 2 * d(0, c), at = n + 1 + vacancies.back();
        if (at < 0) return false;
        now += least;
        const int r = route(at), after = next(at);
        link(at, c, d(c, at)), link(c, after, d(c, after));
        set(route(c), r);
        weigh(r, p.demand[c], 1);
        absent[c] = 0;
        return true;
    }

    void overlook() { overlooked = 1 + (int64_t)(std::log(1 - random.uniform()) / std::log(1 - BLINK)); }

    const Problem& p;
    const int n, count, nodes;
    Random random;
    double now = 0;                         // length
    int used = 0;                           // routes
    std::vector<char> absent;               // of each customer, whether it is in no route
    std::vector<int> state, best;           // successor, predecessor and route of every node, customers of every route
    std::vector<double> values;             // distance from every node to the next, load of every route
    std::vector<Change> changes;            // of this round in `state`, and in `values`
    std::vector<std::pair<int, double>> olds;
    std::vector<int> since;                 // slots changed since the best tours were kept
    bool stale = false;                     // so many that all are copied
    std::vector<int> removed, ruined, vacancies;  // customers and routes
    std::vector<std::pair<double, int>> order;
    int64_t overlooked = 0;  // places until the next that is
};
