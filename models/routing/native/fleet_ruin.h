// Slack induction by string removals (Christiaens and Vanden Berghe 2020) for fleets: removes strings of neighbouring
// customers from neighbouring routes, inserts them where they fit, and accepts the result by annealing.
#pragma once
#include "fleet_moves.h"

namespace fleet {

constexpr double REMOVED = 10;     // customers at a time, on average, where routes are long enough
constexpr double LONGEST = 10;     // most customers removed in a string
constexpr double SPLIT = 0.5;      // probability that a string keeps customers in its middle
constexpr double ENOUGH = 0.01;    // probability that it keeps no further one
constexpr double BLINK = 0.01;     // probability that a place for a customer is skipped
constexpr double PASSED_OVER = 0.2;  // probability that a kind of vehicle is skipped for a further route
constexpr int REACHED = 100;       // nearest customers in whose routes strings are removed
constexpr double HOT = 2, COLD = 0.02;  // first and last temperature, in units of the cost of a customer
constexpr double STARTING = 0.2;      // share of the time after which no further start plan is tried
constexpr int64_t CLOCK = 16;      // rounds between two looks at the clock
constexpr double IMPATIENCE = 0.1; // of `dear`: what a round without a required customer adds to its price
constexpr int ORDERS = 7;          // of insertion
constexpr int DISCOUNTS = 4;       // on further vehicles, tried for the start plan
constexpr double OPENING = 0.1;    // probability that further vehicles have a discount

struct Kept {  // routes and their kinds
    std::vector<std::vector<int>> routes;
    std::vector<int> kinds;
    double cost = INFINITE;
    int missing = std::numeric_limits<int>::max();
};

class Annealing {
  public:
    Annealing(const Fleet& fleet, const Near& near, uint64_t seed)
        : f(fleet), near(near), n(f.customers), random{seed}, now(f, 2 * f.dear), moves(f, near, now), reached(n) {
        overlook();
    }

    // Anneals for `rounds`, or for `seconds` of this thread's CPU time if these are not 0; returns the best plan. Several
    // runs may share one schedule: each covers its fraction from `first` to `last`.
    Kept run(const Routes& given, const std::vector<int>& kinds, int64_t rounds, double seconds, double first = 0,
             double last = 1) {
        const double begun = thread_seconds(), end = seconds > 0 ? begun + seconds : INFINITE;
        start(given, kinds, begun + STARTING * (end - begun));
        if (!first) moves.descend(random, end);
        keep();
        double temperature = 0;
        const double unit = now.driven() / n;
        for (int64_t round = 0;; round++) {
            if (round % CLOCK == 0) {
                const double spent = seconds > 0 ? (thread_seconds() - begun) / seconds : (double)round / (double)rounds;
                if (first + spent >= last) break;
                temperature = unit * HOT * std::pow(COLD / HOT, first + spent);
            }
            const double before = now.cost;
            left = now.absent;
            now.begin_round();
            ruin(1 + below(n));
            discount = uniform() < OPENING ? uniform() : 1;
            recreate();
            if (now.cost < before - temperature * std::log(1 - uniform())) {
                if (better()) keep();
            } else {
                now.restore();
                now.absent = left;
            }
            for (int c : now.absent)
                if (f.required(c)) {
                    const double more = IMPATIENCE * f.dear;
                    now.price[c] += more, now.cost += more;
                }
        }
        return best;
    }

    Kept last() const { return current(); }

  private:
    double uniform() { return (double)(random() >> 11) * 0x1p-53; }
    int below(int limit) { return (int)(uniform() * limit); }
    void overlook() { overlooked = 1 + (int64_t)(std::log(1 - uniform()) / std::log(1 - BLINK)); }

    // The customers nearest to u by round trip.
    const std::vector<int>& nearest(int u) {
        auto& order = reached[u - 1];
        if (!order.empty()) return order;
        order.resize(n);
        std::iota(order.begin(), order.end(), 1);
        std::swap(order[u - 1], order.back());
        const int count = std::min(REACHED, n - 1);
        auto both = [&](int v) { return f.d(u, v) + f.distance_into[(size_t)u * f.nodes + v]; };
        std::partial_sort(order.begin(), order.begin() + count, order.end() - 1, [&](int a, int b) {
            return both(a) < both(b) || (both(a) == both(b) && a < b);
        });
        order.resize(count);
        return order;
    }

    // Takes over the given routes and inserts all other customers, in the cheapest of several orders.
    void start(const Routes& given, const std::vector<int>& kinds, double end) {
        now.begin_round();
        for (size_t i = 0; i < given.size(); i++)
            if (double cost; now.used[kinds[i]] < f.kind[kinds[i]].count && now.fits(kinds[i], given[i], cost)) {
                const int r = now.open(kinds[i]);
                int u = now.base + r;
                for (int c : given[i]) { now.put(c, u); u = c; }
                now.renew(r);
            }
        auto in_route = [&](int c) { return now.stops[c].route >= 0; };
        now.absent.erase(std::remove_if(now.absent.begin(), now.absent.end(), in_route), now.absent.end());
        left = now.absent;
        Kept least;
        int first = 0;
        for (int trial = 0; trial < ORDERS + DISCOUNTS && !left.empty(); trial++) {
            discount = trial < ORDERS ? 1 : discount / 2;
            now.begin_round();
            recreate(trial < ORDERS ? trial : first);
            if (now.cost < least.cost) {
                least = current();
                if (trial < ORDERS) first = trial;
            }
            now.restore();
            now.absent = left;
            if (thread_seconds() > end) break;
        }
        if (least.cost == INFINITE) return;
        now.begin_round();
        for (int r : std::vector<int>(now.active)) {
            for (int c : now.order_of(r)) now.take(c), now.absent.push_back(c);
            now.renew(r);
        }
        for (size_t i = 0; i < least.routes.size(); i++) {
            const int r = now.open(least.kinds[i]);
            int u = now.base + r;
            for (int c : least.routes[i]) { now.put(c, u); u = c; }
            now.renew(r);
        }
        now.absent.erase(std::remove_if(now.absent.begin(), now.absent.end(), in_route), now.absent.end());
    }

    Kept current() const {
        Kept kept;
        for (int r : now.active) kept.routes.push_back(now.order_of(r)), kept.kinds.push_back(now.routes[r].kind);
        kept.cost = now.cost, kept.missing = now.missing;
        return kept;
    }

    bool better() const {
        return now.missing < best.missing || (now.missing == best.missing && now.cost < best.cost - 1e-9 * f.dear);
    }
    void keep() { best = current(); }

    // Removes strings of the routes of `seed` and of customers near it.
    void ruin(int seed) {
        ruined.clear();
        if (now.active.empty()) return;
        const double longest = std::min(LONGEST, (double)(n - (int)now.absent.size()) / (double)now.active.size());
        const int strings = 1 + below((int)std::max(1., 4 * REMOVED / (1 + longest) - 1));
        auto try_string = [&](int c) {
            const int r = now.stops[c].route;
            if (r >= 0 && std::find(ruined.begin(), ruined.end(), r) == ruined.end()) remove_string(c, r, longest);
        };
        try_string(seed);
        for (int c : nearest(seed)) {
            if ((int)ruined.size() >= strings) break;
            try_string(c);
        }
        for (int r : ruined) {
            now.renew(r);
            if (now.routes[r].kind < 0 || now.sound(r)) continue;
            for (int c : now.order_of(r)) now.take(c), now.absent.push_back(c);
            now.renew(r);
        }
    }

    void remove_string(int c, int r, double longest) {
        now.touch(r);
        const int size = now.routes[r].size;
        const int taken = std::min(size, 1 + (int)(uniform() * std::min((double)size, longest)));
        int spared = 0;
        if (taken > 1 && taken < size && uniform() < SPLIT)
            for (spared = 1; taken + spared < size && uniform() > ENOUGH;) spared++;
        int place = 0;
        for (int u = now.stops[c].prev; now.is_customer(u); u = now.stops[u].prev) place++;
        const int span = taken + spared, first = std::max(0, place - span + 1), last = std::min(place, size - span);
        const int begin = first + below(last - first + 1), gap = spared ? below(taken + 1) : 0;
        int u = now.stops[now.base + r].next;
        for (int i = 0; i < begin; i++) u = now.stops[u].next;
        for (int i = 0; i < span; i++) {
            const int next = now.stops[u].next;
            if (i < gap || i >= gap + spared) now.take(u), now.absent.push_back(u);
            u = next;
        }
        ruined.push_back(r);
    }

    // Inserts customers in no route where that gains, in an order of this kind or, if negative, of a random one.
    void recreate(int kind = -1) {
        if (kind < 0) {
            static constexpr int SHARES[ORDERS] = {4, 4, 2, 1, 2, 2, 2};
            int drawn = below(17);
            for (kind = 0; drawn >= SHARES[kind]; kind++) drawn -= SHARES[kind];
        }
        order.clear();
        for (int c : now.absent) {
            const double keys[ORDERS] = {uniform(), -f.demand[c], -f.d(0, c), f.d(0, c), f.close[c] - f.open[c],
                                         f.open[c], -f.close[c]};
            order.emplace_back(keys[kind], c);
        }
        std::sort(order.begin(), order.end());
        now.absent.clear();
        for (const auto& [_, c] : order)
            if (!insert(c)) now.absent.push_back(c);
        if (f.kinds > 1)
            for (int r : std::vector<int>(now.active)) moves.other_kind(r);
    }

    bool insert(int c) {
        double least = now.price[c] / std::max(discount, 0.1);
        int behind = -1, kind = -1;
        const double *to = f.distance + (size_t)c * f.nodes, *into = f.distance_into.data() + (size_t)c * f.nodes;
        const double *time_to = f.duration + (size_t)c * f.nodes, *time_into = f.duration_into.data() + (size_t)c * f.nodes;
        auto consider = [&](int u) {
            const Stop& stop = now.stops[u];
            const Route& route = now.routes[stop.route];
            const Kind& k = f.kind[route.kind];
            if (route.load + f.demand[c] > k.capacity) return;
            const Stop& next = now.stops[stop.next];
            const double more = into[stop.site] + to[next.site] - stop.leg;
            if (more * k.rate >= least) return;
            const double begin = std::max(stop.leave + time_into[stop.site], f.open[c]);
            if (begin > f.close[c] || begin + f.service[c] + time_to[next.site] > next.due) return;
            if (route.length + more > k.longest) return;
            if (k.limit < INFINITE && now.until[u].then(now.span(c), time_into[stop.site])
                                              .then(now.from[stop.next], time_to[next.site]).duration > k.limit) return;
            if (--overlooked == 0) return overlook();
            least = more * k.rate, behind = u;
        };
        for (int u : near.before[c]) if (now.stops[u].route >= 0) consider(u);
        for (int v : near.behind[c]) if (now.stops[v].route >= 0) consider(now.stops[v].prev);
        for (int k = 0; k < f.kinds; k++) {
            if (!now.spare(k) || (f.kinds > 1 && uniform() < PASSED_OVER)) continue;
            alone = {c};
            if (double cost; now.fits(k, alone, cost) && cost * discount < least) least = cost * discount, behind = -1, kind = k;
        }
        if (behind < 0 || kind >= 0)
            for (int r : now.active) {
                int u = now.base + r;
                do { consider(u); u = now.stops[u].next; } while (now.is_customer(u));
            }
        if (behind < 0 && kind < 0) return false;
        if (behind < 0) {
            behind = now.base + now.open(kind);
        }
        const int r = now.stops[behind].route;
        now.touch(r);
        now.put(c, behind);
        now.renew(r);
        return true;
    }

    const Fleet& f;
    const Near& near;
    const int n;
    Random random;
    State now;
    Moves moves;
    Kept best;
    std::vector<std::vector<int>> reached;  // each customer's nearest others, ascending
    std::vector<int> ruined, left, alone;
    std::vector<std::pair<double, int>> order;
    double discount = 1;     // factor on the cost of a further vehicle, where places are compared
    int64_t overlooked = 0;  // places until the next one skipped
};

}  // namespace fleet
