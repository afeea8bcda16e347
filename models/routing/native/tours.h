// Problems and tours of the local search: distances, neighbours, tours that are given or drawn.
#pragma once
#include "common.h"

#include <numeric>

using Routes = std::vector<std::vector<int>>;  // of one tour: the customers between visits to the depot

struct Random {  // SplitMix64 (Steele, Lea and Flood 2014)
    uint64_t state;
    uint64_t operator()() {
        uint64_t z = (state += 0x9E3779B97F4A7C15ull);
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
        return z ^ (z >> 31);
    }
    void shuffle(std::vector<int>& values) {
        for (size_t i = values.size(); i > 1; i--) std::swap(values[i - 1], values[(*this)() % i]);
    }
};

struct Problem {
    int customers;
    const double *distance, *demand, capacity;
    double longest = 0, price;                 // of a distance; of a unit of overload, to begin with
    std::vector<std::vector<int>> neighbours;  // of each customer, those near it or to which it is near

    Problem(int nodes, int granular, const double* distance, const double* demand, double capacity)
        : customers(nodes - 1), distance(distance), demand(demand), capacity(capacity), neighbours(nodes) {
        std::vector<int> order(customers);
        for (int u = 1; u < nodes; u++) {
            const double* from = distance + (size_t)u * nodes;
            std::iota(order.begin(), order.end(), 1);
            std::swap(order[u - 1], order.back());
            const int near = std::min(granular, customers - 1);
            std::partial_sort(order.begin(), order.begin() + near, order.end() - 1,
                              [&](int a, int b) { return from[a] < from[b]; });
            for (int i = 0; i < near; i++) {
                neighbours[u].push_back(order[i]);
                neighbours[order[i]].push_back(u);
            }
        }
        for (auto& near : neighbours) {
            std::sort(near.begin(), near.end());
            near.erase(std::unique(near.begin(), near.end()), near.end());
        }
        for (size_t i = 0; i < (size_t)nodes * nodes; i++) longest = std::max(longest, distance[i]);
        const double most = *std::max_element(demand, demand + nodes);
        price = longest / std::max(most, 1.0);
    }
};

inline double length(const Problem& p, const Routes& routes) {
    double sum = 0;
    for (const auto& route : routes) {
        int u = 0;
        for (int v : route) sum += p.distance[(size_t)u * (p.customers + 1) + v], u = v;
        sum += p.distance[(size_t)u * (p.customers + 1)];
    }
    return sum;
}

// Cuts a random order of the customers into routes at the least length (Prins 2004).
inline Routes random_routes(const Problem& p, Random& random) {
    const int n = p.customers;
    std::vector<int> order(n), begin(n + 1);
    std::iota(order.begin(), order.end(), 1);
    random.shuffle(order);
    std::vector<double> least(n + 1, std::numeric_limits<double>::infinity());
    least[0] = 0;
    for (int i = 0; i < n; i++) {
        double load = 0, path = p.distance[order[i]];
        for (int j = i; j < n && (load += p.demand[order[j]]) <= p.capacity; j++) {
            if (j > i) path += p.distance[(size_t)order[j - 1] * (n + 1) + order[j]];
            const double sum = least[i] + path + p.distance[order[j]];
            if (sum < least[j + 1]) least[j + 1] = sum, begin[j + 1] = i;
        }
    }
    Routes routes;
    for (int end = n; end > 0; end = begin[end]) routes.emplace_back(order.begin() + begin[end], order.begin() + end);
    return routes;
}

inline Routes given_routes(const int64_t* actions, int steps) {
    Routes routes(1);
    for (int t = 0; t < steps; t++) {
        if (actions[t]) routes.back().push_back((int)actions[t]);
        else if (!routes.back().empty()) routes.emplace_back();
    }
    if (routes.back().empty()) routes.pop_back();
    return routes;
}

// Returns `count` tours: those given (S, steps), or random ones if that is null.
inline std::vector<Routes> starting_routes(const Problem& p, Random& random, const int64_t* given, int count) {
    const int steps = 2 * p.customers;
    std::vector<Routes> starts;
    for (int s = 0; s < count; s++)
        starts.push_back(given ? given_routes(given + (size_t)s * steps, steps) : random_routes(p, random));
    return starts;
}

// Writes routes to actions (T), which the caller has filled with the depot.
inline void write_routes(const Routes& routes, int64_t* actions, int steps) {
    const int64_t* const end = actions + steps;
    for (const auto& route : routes) {
        actions = std::copy(route.begin(), route.end(), actions);
        actions += actions < end;
    }
}
