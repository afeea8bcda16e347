// Problems and tours of the searches: distances, neighbours, tours that are given or written.
#pragma once
#include "common.h"

#include <cmath>
#include <ctime>
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
    double uniform() { return (double)((*this)() >> 11) * 0x1p-53; }
    int below(int limit) { return (int)(uniform() * limit); }
    void shuffle(std::vector<int>& values) {
        for (size_t i = values.size(); i > 1; i--) std::swap(values[i - 1], values[(size_t)below((int)i)]);
    }
};

inline double thread_seconds() {  // of CPU time, so that a busy machine changes no result
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

// How distances between places in a plane are rounded (numbers as in __init__.py).
enum Rounding : int { EXACT, ROUND, TRUNC, DIMACS };  // the last cuts to one decimal
constexpr int MOST_HELD = 2000;  // customers up to which distances between places are computed once, as a matrix

constexpr int FEW = 100;         // customers up to which neighbours are found by sorting all distances

class Problem {
  public:
    const int customers, nodes;
    const double *const demand, capacity;
    double longest = 0, price;     // a bound on distances; the first price of a unit of overload
    int near = 0;                  // neighbours of each customer
    const double *const places, *const matrix;
    const Rounding rounding;
    std::vector<int> neighbours;   // (n + 1, near), nearest first

    // One of `matrix` (N, N) and `places` (N, 2) is given, the other null.
    Problem(int nodes, int most, const double* matrix, const double* places, int rounding, const double* demand,
            double capacity)
        : customers(nodes - 1), nodes(nodes), demand(demand), capacity(capacity),
          near(std::min(most, customers - 1)), places(places), matrix(matrix), rounding((Rounding)rounding) {
        if (matrix || customers <= MOST_HELD) hold();
        if (matrix) longest = *std::max_element(held.begin(), held.end());
        else for (int u = 0; u < nodes; u++) longest = std::max(longest, 2 * exact(0, u));
        price = longest / std::max(*std::max_element(demand, demand + nodes), 1.0);
        neighbours.resize((size_t)nodes * near);
        if (matrix || customers <= FEW) for (int u = 1; u < nodes; u++) rank(u);
        else Tree(*this).rank();
    }

    // The distance to seven digits, by which searches compare; `exact` is the distance itself.
    float operator()(int u, int v) const {
        return __builtin_expect(row != nullptr, 1) ? row[(size_t)u * nodes + v] : measured(u, v);
    }
    [[gnu::noinline]] float measured(int u, int v) const { return (float)rounded(straight(u, v), rounding); }
    double exact(int u, int v) const {
        return matrix ? matrix[(size_t)u * nodes + v] : rounded(straight(u, v), rounding);
    }
    const int* begin(int u) const { return neighbours.data() + (size_t)u * near; }
    const int* end(int u) const { return begin(u) + near; }
    bool has_places() const { return places; }
    double angle(int u) const { return std::atan2(places[2 * u + 1] - places[1], places[2 * u] - places[0]); }

  private:
    std::vector<float> held;
    const float* row = nullptr;  // the first of `held`
    std::vector<std::pair<float, int>> others;

    static double rounded(double length, Rounding how) {
        if (how == DIMACS) return std::floor(10 * length) / 10;
        return how == EXACT ? length : how == ROUND ? std::floor(length + 0.5) : std::floor(length);
    }
    double straight(int u, int v) const {
        const double x = places[2 * u] - places[2 * v], y = places[2 * u + 1] - places[2 * v + 1];
        return std::sqrt(x * x + y * y);
    }

    void hold() {
        held.resize((size_t)nodes * nodes);
        row = held.data();
        if (matrix) return void(std::copy(matrix, matrix + held.size(), held.begin()));
        std::vector<double> x(nodes), y(nodes), away(nodes);
        for (int u = 0; u < nodes; u++) x[u] = places[2 * u], y[u] = places[2 * u + 1];
        for (int u = 0; u < nodes; u++) {
            for (int v = 0; v < nodes; v++) away[v] = std::sqrt((x[u] - x[v]) * (x[u] - x[v]) + (y[u] - y[v]) * (y[u] - y[v]));
            if (rounding != EXACT)
                for (int v = 0; v < nodes; v++) away[v] = rounded(away[v], rounding);
            std::copy(away.begin(), away.end(), held.begin() + (size_t)u * nodes);
        }
    }

    void rank(int u) {  // by the matrix
        const float* const from = row + (size_t)u * nodes;
        others.clear();
        for (int v = 1; v < nodes; v++)
            if (v != u) others.emplace_back(from[v], v);
        if (near < (int)others.size()) std::nth_element(others.begin(), others.begin() + near, others.end());
        std::sort(others.begin(), others.begin() + near);
        for (int i = 0; i < near; i++) neighbours[(size_t)u * near + i] = others[i].second;
    }

    // A k-d tree over the customers: implicit, each part divided at its median along its longer side.
    class Tree {
      public:
        explicit Tree(Problem& problem) : p(problem), order(p.customers), found(p.near + 1) {
            std::iota(order.begin(), order.end(), 1);
            divide(0, p.customers);
        }
        void rank() {
            for (int u = 1; u < p.nodes; u++) {
                held = 0;
                search(0, p.customers, u);
                std::sort_heap(found.begin(), found.begin() + held);
                int* to = p.neighbours.data() + (size_t)u * p.near;
                for (int i = 0; i < held; i++)
                    if (found[i].second != u && to < p.neighbours.data() + (size_t)(u + 1) * p.near) *to++ = found[i].second;
            }
        }

      private:
        static constexpr int LEAF = 8;
        Problem& p;
        std::vector<int> order;
        std::vector<std::pair<double, int>> found;  // a heap of the nearest, u itself among them
        std::vector<char> axis = std::vector<char>(order.size());
        int held = 0;

        double at(int u, int side) const { return p.places[2 * u + side]; }
        void divide(int first, int last) {
            if (last - first <= LEAF) return;
            double low[2] = {1e300, 1e300}, high[2] = {-1e300, -1e300};
            for (int i = first; i < last; i++)
                for (int side : {0, 1}) {
                    low[side] = std::min(low[side], at(order[i], side));
                    high[side] = std::max(high[side], at(order[i], side));
                }
            const int middle = (first + last) / 2, side = high[1] - low[1] > high[0] - low[0];
            axis[middle] = (char)side;
            std::nth_element(order.begin() + first, order.begin() + middle, order.begin() + last,
                             [&](int a, int b) { return at(a, side) < at(b, side); });
            divide(first, middle), divide(middle + 1, last);
        }
        void consider(int v, int u) {
            const std::pair<double, int> one{p.straight(u, v), v};
            if (held == (int)found.size()) {
                if (!(one < found[0])) return;
                std::pop_heap(found.begin(), found.end());
                held--;
            }
            found[held++] = one;
            std::push_heap(found.begin(), found.begin() + held);
        }
        void search(int first, int last, int u) {
            if (last - first <= LEAF) {
                for (int i = first; i < last; i++) consider(order[i], u);
                return;
            }
            const int middle = (first + last) / 2, side = axis[middle];
            const double across = at(u, side) - at(order[middle], side);
            const bool left = across < 0;
            search(left ? first : middle + 1, left ? middle : last, u);
            consider(order[middle], u);
            if (held < (int)found.size() || std::abs(across) <= found[0].first)
                search(left ? middle + 1 : first, left ? last : middle, u);
        }
    };
};

inline double length(const Problem& p, const Routes& routes) {
    double sum = 0;
    for (const auto& route : routes) {
        int u = 0;
        for (int v : route) sum += p.exact(u, v), u = v;
        sum += p.exact(u, 0);
    }
    return sum;
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

// Writes routes to actions (T), which the caller has filled with the depot.
inline void write_routes(const Routes& routes, int64_t* actions, int steps) {
    const int64_t* const end = actions + steps;
    for (const auto& route : routes) {
        actions = std::copy(route.begin(), route.end(), actions);
        actions += actions < end;
    }
}
