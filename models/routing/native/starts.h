// Start tours that cost little: savings with random weights, sweep, nearest neighbour, random orders.
#pragma once
#include "tours.h"

#include <array>
#include <functional>

// Cuts a sequence of the customers into routes of the least total length (Prins 2004).
inline Routes split(const Problem& p, const std::vector<int>& order) {
    const int n = p.customers;
    std::vector<int> begin(n + 1);
    std::vector<double> least(n + 1, std::numeric_limits<double>::infinity());
    least[0] = 0;
    for (int i = 0; i < n; i++) {
        double load = 0, path = p(0, order[i]);
        for (int j = i; j < n && (load += p.demand[order[j]]) <= p.capacity; j++) {
            if (j > i) path += p(order[j - 1], order[j]);
            const double sum = least[i] + path + p(order[j], 0);
            if (sum < least[j + 1]) least[j + 1] = sum, begin[j + 1] = i;
        }
    }
    Routes routes;
    for (int end = n; end > 0; end = begin[end]) routes.emplace_back(order.begin() + begin[end], order.begin() + end);
    return routes;
}

class Starts {
  public:
    Starts(const Problem& problem, Random& random) : p(problem), random(random), order(p.customers) {
        std::iota(order.begin(), order.end(), 1);
    }

    Routes shuffled() {
        random.shuffle(order);
        return split(p, order);
    }

    // Customers by their direction from the depot, from a random one on; needs places.
    Routes sweep() {
        if (angle.empty())
            for (int u = 0; u < p.nodes; u++) angle.push_back(u ? p.angle(u) : 0);
        std::sort(order.begin(), order.end(), [&](int a, int b) { return angle[a] < angle[b]; });
        std::rotate(order.begin(), order.begin() + random.below(p.customers), order.end());
        return split(p, order);
    }

    // Goes on to the nearest neighbour that still fits, each distance drawn up to NOISE longer, and home where none does.
    Routes nearest() {
        std::vector<char> served(p.nodes);
        random.shuffle(order);
        Routes routes;
        for (int first : order) {
            if (served[first]) continue;
            double left = p.capacity;
            auto& route = routes.emplace_back();
            for (int u = first; u;) {
                served[u] = true, left -= p.demand[u];
                route.push_back(u);
                int best = 0;
                double least = std::numeric_limits<double>::infinity();
                for (const int* v = p.begin(u); v < p.end(u); v++)
                    if (!served[*v] && p.demand[*v] <= left)
                        if (const double away = p(u, *v) * (1 + NOISE * random.uniform()); away < least)
                            least = away, best = *v;
                u = best;
            }
        }
        return routes;
    }

    // Clarke and Wright 1964 on pairs of neighbours; from the second call on with a random weight of the distance between
    // them (Yellow 1970) and noise on each saving.
    Routes savings() {
        if (pairs.empty()) list_pairs();
        const double weight = drawn ? LIGHT + (HEAVY - LIGHT) * random.uniform() : 1, noise = drawn ? NOISE : 0;
        drawn = true;
        ranked.clear();
        for (uint32_t i = 0; i < pairs.size(); i++) {
            const Pair& pair = pairs[i];
            const double saving = (pair.apart - weight * pair.between) * (1 + noise * (2 * random.uniform() - 1));
            if (saving > 0) ranked.push_back(key((float)saving) << 32 | i);
        }
        std::sort(ranked.begin(), ranked.end(), std::greater<>());
        return join();
    }

  private:
    static constexpr double NOISE = 0.1, LIGHT = 0.8, HEAVY = 1.6;
    static constexpr int BESIDE = 20;  // neighbours with which routes are joined
    struct Pair { int u, v; double apart, between; };

    static uint64_t key(float positive) {  // keeps the order
        uint32_t bits;
        std::memcpy(&bits, &positive, sizeof bits);
        return bits;
    }

    void list_pairs() {
        const int beside = std::min(BESIDE, p.near);
        for (int u = 1; u < p.nodes; u++)
            for (const int* v = p.begin(u); v < p.begin(u) + beside; v++) {
                const int* const back = p.begin(*v);
                if (u < *v || std::find(back, back + beside, u) == back + beside)
                    pairs.push_back({u, *v, p(0, u) + p(*v, 0), p(u, *v)});
            }
    }

    // Joins routes at their ends, in the order of `ranked`.
    Routes join() {
        std::vector<std::array<int, 2>> beside(p.nodes, {0, 0});  // each customer's neighbours on its route
        std::vector<int> end(p.nodes);                            // the other end of the route that ends here
        std::vector<double> load(p.demand, p.demand + p.nodes);   // of the route, kept at both ends
        std::iota(end.begin(), end.end(), 0);
        for (const uint64_t each : ranked) {
            const auto [u, v, apart, between] = pairs[(uint32_t)each];
            if (beside[u][1] || beside[v][1] || end[u] == v || load[u] + load[v] > p.capacity) continue;
            const int first = end[u], last = end[v];
            beside[u][beside[u][0] > 0] = v, beside[v][beside[v][0] > 0] = u;
            end[first] = last, end[last] = first;
            load[first] = load[last] = load[u] + load[v];
        }
        Routes routes;
        for (int first = 1; first < p.nodes; first++)
            if (!beside[first][1] && end[first] >= first) {
                auto& route = routes.emplace_back();
                for (int u = first, before = 0; u;) {
                    route.push_back(u);
                    const int after = beside[u][0] == before ? beside[u][1] : beside[u][0];
                    before = u, u = after;
                }
            }
        return routes;
    }

    const Problem& p;
    Random& random;
    std::vector<int> order;
    std::vector<double> angle;
    std::vector<Pair> pairs;
    std::vector<uint64_t> ranked;  // keys of savings, with the numbers of their pairs
    bool drawn = false;
};
