// Local search on tours of a capacitated vehicle routing problem, as in the hybrid genetic search of Vidal 2022
// (Hybrid Genetic Search for the CVRP: Open-Source Implementation and SWAP* Neighborhood), for symmetric distances.
//
// Nodes 1 to n are customers; node n + 1 + r is the depot of route r, a ring: its successor is the first customer of
// the route and its predecessor the last. A route may be overloaded at a price for each unit, which rises until it is not.
#include "tours.h"

namespace {

constexpr double EPSILON = 1e-9;  // of the longest distance: what a move must gain
constexpr size_t SPARE = 2;       // routes that stand empty to begin with

class Search {
  public:
    Search(const Problem& problem, int routes, uint64_t seed)
        : p(problem), n(p.customers), count(routes), random{seed}, neighbours(p.neighbours), site(n + 1 + count),
          next(site.size()), prev(site.size()), route(site.size()), place(site.size()), before(site.size()),
          tested(n + 1), load(count), over(count), changed(count), swapped((size_t)count * count),
          inserts((size_t)count * (n + 1)) {
        for (int u = 1; u <= n; u++) site[u] = u;
        for (int r = 0; r < count; r++) route[n + 1 + r] = r;
        order.resize(n);
        std::iota(order.begin(), order.end(), 1);
    }

    // Improves the routes until no move gains, at a price for overload that rises until there is none, if it may.
    // Returns whether no route is overloaded.
    bool improve(const Routes& routes) {
        for (int r = 0; r < count; r++) {
            int u = n + 1 + r;
            if (r < (int)routes.size())
                for (int v : routes[r]) { link(u, v); u = v; }
            link(u, n + 1 + r);
        }
        for (double factor : {1., 10., 100.}) {
            price = p.price * factor;
            descend();
            if (std::all_of(load.begin(), load.end(), [&](double l) { return l <= p.capacity; })) return true;
        }
        return false;
    }

    Routes routes() const {
        Routes found;
        for (int r = 0; r < count; r++) {
            if (empty(r)) continue;
            found.emplace_back();
            for (int u = next[n + 1 + r]; u <= n; u = next[u]) found.back().push_back(u);
        }
        return found;
    }

  private:
    double d(int u, int v) const { return p.distance[(size_t)site[u] * (n + 1) + site[v]]; }
    double q(int u) const { return p.demand[site[u]]; }
    double penalty(double load) const { return std::max(0., load - p.capacity) * price; }
    bool depot(int u) const { return u > n; }
    bool empty(int r) const { return next[n + 1 + r] > n; }
    void link(int u, int v) { next[u] = v; prev[v] = u; }

    // Renews what is known of a route along its ring.
    void renew(int r) {
        double sum = 0;
        int u = n + 1 + r, at = 0;
        place[u] = 0, before[u] = 0;
        for (u = next[u]; u <= n; u = next[u]) {
            route[u] = r;
            place[u] = ++at;
            before[u] = sum += q(u);
        }
        load[r] = sum, over[r] = penalty(sum), changed[r] = ++moves;
    }

    void descend() {
        moves = 0;
        std::fill(tested.begin(), tested.end(), -1);
        std::fill(swapped.begin(), swapped.end(), -1);
        for (auto& insert : inserts) insert.when = -1;
        for (int r = 0; r < count; r++) renew(r);
        bool found = true;
        for (int loop = 0; found || loop < 2; loop++) {  // emptied routes come into play from the second on
            found = false;
            random.shuffle(order);
            for (int u : order) found |= around(u, loop);
            found |= swap_all();
        }
    }

    // Tries the moves of customer u with its neighbours, with the depots beside them and with an empty route.
    bool around(int u, int loop) {
        bool found = false;
        const int last = tested[u];
        tested[u] = moves;
        random.shuffle(neighbours[u]);
        for (int v : neighbours[u]) {
            if (std::max(changed[route[u]], changed[route[v]]) <= last) continue;
            if (pair(u, v)) { found = true; continue; }
            if (depot(prev[v]) && with_depot(u, prev[v])) found = true;
        }
        if (loop > 0)
            for (int r = 0; r < count; r++)
                if (empty(r)) { found |= with_depot(u, n + 1 + r); break; }
        return found;
    }

    bool with_depot(int u, int v) { return relocate(u, v) || (route[u] != route[v] && cross(u, v)); }

    bool pair(int u, int v) {
        if (relocate(u, v) || exchange(u, v)) return true;
        return route[u] == route[v] ? reverse(u, v) : cross(u, v);
    }

    // Whether a move gains, given the change of length and the new loads of the two routes.
    bool gains(double length, int a, int b, double load_a, double load_b) const {
        if (a != b) length += penalty(load_a) - over[a] + penalty(load_b) - over[b];
        return length < -EPSILON * p.longest;
    }

    // Puts u, or u and its successor x, or x and u, behind v.
    bool relocate(int u, int v) {
        const int a = route[u], b = route[v], x = next[u], y = next[v];
        if (u == y) return false;
        const double add = -d(v, y), cut = -d(prev[u], u);
        if (gains(add + cut - d(u, x) + d(prev[u], x) + d(v, u) + d(u, y), a, b, load[a] - q(u), load[b] + q(u)))
            return move_behind(v, {u}, a, b);
        if (depot(x) || x == v) return false;
        const double both = q(u) + q(x), rest = add + cut - d(x, next[x]) + d(prev[u], next[x]);
        if (gains(rest + d(v, u) + d(x, y), a, b, load[a] - both, load[b] + both)) return move_behind(v, {u, x}, a, b);
        if (gains(rest + d(v, x) + d(u, y), a, b, load[a] - both, load[b] + both)) return move_behind(v, {x, u}, a, b);
        return false;
    }

    bool move_behind(int v, std::initializer_list<int> chain, int a, int b) {
        for (int u : chain) link(prev[u], next[u]);
        for (int u : chain) {
            const int y = next[v];
            link(v, u), link(u, y);
            v = u;
        }
        renew(a);
        if (b != a) renew(b);
        return true;
    }

    // Exchanges u, or u and x, with v, or u and x with v and y.
    bool exchange(int u, int v) {
        const int a = route[u], b = route[v], x = next[u], y = next[v], o = prev[u], w = prev[v];
        if (u == w || u == y) return false;
        const double cut = -d(o, u) - d(w, v), more = q(v) - q(u);
        if (u < v && gains(cut - d(u, x) - d(v, y) + d(o, v) + d(v, x) + d(w, u) + d(u, y), a, b, load[a] + more,
                           load[b] - more))
            return exchange_chains(u, u, v, v, a, b);
        if (depot(x) || x == w) return false;
        const int z = next[x];
        const double two = more - q(x);
        if (gains(cut - d(x, z) - d(v, y) + d(o, v) + d(v, z) + d(w, u) + d(x, y), a, b, load[a] + two, load[b] - two))
            return exchange_chains(u, x, v, v, a, b);
        if (depot(y) || y == o || u > v) return false;
        const double four = two + q(y);
        if (gains(cut - d(x, z) - d(y, next[y]) + d(o, v) + d(y, z) + d(w, u) + d(x, next[y]), a, b, load[a] + four,
                  load[b] - four))
            return exchange_chains(u, x, v, y, a, b);
        return false;
    }

    // Exchanges the chains u..x and v..y, which do not touch.
    bool exchange_chains(int u, int x, int v, int y, int a, int b) {
        const int o = prev[u], z = next[x], w = prev[v], t = next[y];
        link(o, v), link(y, z), link(w, u), link(x, t);
        renew(a);
        if (b != a) renew(b);
        return true;
    }

    // 2-opt: drives what lies between u and v the other way round.
    bool reverse(int u, int v) {
        if (place[u] >= place[v]) return false;
        const int x = next[u], y = next[v], r = route[u];
        if (x == v || !gains(d(u, v) + d(x, y) - d(u, x) - d(v, y), r, r, 0, 0)) return false;
        std::vector<int> path = between(x, y);
        std::reverse(path.begin(), path.end());
        chain(u, path, y);
        renew(r);
        return true;
    }

    // 2-opt*: exchanges what comes after u and v, or what comes after u with what comes before v.
    bool cross(int u, int v) {
        const int a = route[u], b = route[v], x = next[u], y = next[v], A = n + 1 + a, B = n + 1 + b;
        const double cut = -d(u, x) - d(v, y), after_u = load[a] - before[u], after_v = load[b] - before[v];
        if (gains(cut + d(u, y) + d(v, x), a, b, before[u] + after_v, before[v] + after_u)) {
            const auto tail = between(x, A), other = between(y, B);
            chain(u, other, A);
            chain(v, tail, B);
        } else if (gains(cut + d(u, v) + d(x, y), a, b, before[u] + before[v], after_u + after_v)) {
            auto tail = between(x, A), head = between(next[B], y);
            std::reverse(tail.begin(), tail.end());
            std::reverse(head.begin(), head.end());
            chain(u, head, A);
            chain(B, tail, y);
        } else {
            return false;
        }
        renew(a), renew(b);
        return true;
    }

    std::vector<int> between(int first, int end) const {
        std::vector<int> path;
        for (int u = first; u != end; u = next[u]) path.push_back(u);
        return path;
    }

    void chain(int u, const std::vector<int>& path, int end) {
        for (int v : path) { link(u, v); u = v; }
        link(u, end);
    }

    // ------------------------------------------------------------------------------------------------- SWAP*

    struct Inserts {  // the three cheapest places for a customer in a route: behind which node, at what cost
        int when = -1, behind[3];
        double cost[3];
    };

    bool swap_all() {
        bool found = false;
        std::vector<char> near((size_t)count * count);
        for (int u = 1; u <= n; u++)
            for (int v : neighbours[u]) near[(size_t)route[u] * count + route[v]] = true;
        for (int a = 0; a < count; a++)
            for (int b = a + 1; b < count; b++) {
                int& last = swapped[(size_t)a * count + b];
                if (!near[(size_t)a * count + b] || std::max(changed[a], changed[b]) <= last) continue;
                last = moves;
                found |= swap_star(a, b);
            }
        return found;
    }

    // Exchanges a customer of each route, each put where it then costs least, or moves one to its best place.
    bool swap_star(int a, int b) {
        double best = -EPSILON * p.longest;
        int u = 0, v = 0, behind_u = 0, behind_v = 0, behind_x, behind_y;
        auto propose = [&](double gain, int x, int behind_x, int y, int behind_y) {
            if (gain < best) best = gain, u = x, v = y, behind_u = behind_x, behind_v = behind_y;
        };
        for (int x = next[n + 1 + a]; !depot(x); x = next[x]) {
            const double cut_x = removal(x);
            for (int y = next[n + 1 + b]; !depot(y); y = next[y]) {
                const double more = q(y) - q(x);
                const double base = cut_x + removal(y) + penalty(load[a] + more) - over[a] + penalty(load[b] - more) - over[b];
                if (base >= best) continue;
                const double to_b = insertion(x, b, y, behind_x), to_a = insertion(y, a, x, behind_y);
                propose(base + to_b + to_a, x, behind_x, y, behind_y);
            }
        }
        for (auto [from, to] : {std::pair(a, b), std::pair(b, a)})
            for (int x = next[n + 1 + from]; !depot(x); x = next[x]) {
                const Inserts& found = cheapest(x, to);
                const double loads = penalty(load[from] - q(x)) - over[from] + penalty(load[to] + q(x)) - over[to];
                propose(removal(x) + found.cost[0] + loads, x, found.behind[0], 0, 0);
            }
        if (!u) return false;
        link(prev[u], next[u]);
        if (v) link(prev[v], next[v]);
        for (auto [w, behind] : {std::pair(u, behind_u), std::pair(v, behind_v)})
            if (w) {
                const int after = next[behind];
                link(behind, w), link(w, after);
            }
        renew(a), renew(b);
        return true;
    }

    double removal(int u) const { return d(prev[u], next[u]) - d(prev[u], u) - d(u, next[u]); }

    // Cost of the best place for u in route r once v has left it.
    double insertion(int u, int r, int v, int& behind) {
        behind = prev[v];
        double best = d(prev[v], u) + d(u, next[v]) - d(prev[v], next[v]);
        const Inserts& found = cheapest(u, r);
        for (int i = 0; i < 3 && found.behind[i]; i++)
            if (found.behind[i] != v && next[found.behind[i]] != v) {
                if (found.cost[i] < best) best = found.cost[i], behind = found.behind[i];
                break;
            }
        return best;
    }

    const Inserts& cheapest(int u, int r) {
        Inserts& found = inserts[(size_t)r * (n + 1) + u];
        if (found.when == changed[r]) return found;
        found.when = changed[r];
        std::fill(found.behind, found.behind + 3, 0);
        std::fill(found.cost, found.cost + 3, std::numeric_limits<double>::infinity());
        int v = n + 1 + r;
        do {
            double cost = d(v, u) + d(u, next[v]) - d(v, next[v]);
            int behind = v;
            for (int i = 0; i < 3; i++)
                if (cost < found.cost[i]) std::swap(cost, found.cost[i]), std::swap(behind, found.behind[i]);
            v = next[v];
        } while (!depot(v));
        return found;
    }

    const Problem& p;
    const int n, count;
    Random random;
    double price = 0;
    int moves = 0;
    std::vector<std::vector<int>> neighbours;
    std::vector<int> site, next, prev, route, place;  // of every node
    std::vector<double> before;                       // load of the route up to and with the node
    std::vector<int> tested, order;
    std::vector<double> load, over;  // of every route; its price if overloaded
    std::vector<int> changed, swapped;
    std::vector<Inserts> inserts;
};

}  // namespace

// Writes to best (B, T), which the caller has filled with the depot, the shortest tour that a search from each of
// `tours` tours finds, and never a longer one than those given. given (B, S, T), or null for random tours, whose stream
// and that of the order of moves is seeds (B). distance (B, N, N), demand (B, N), capacity (B). T = 2 (N - 1).
extern "C" void improve_tours(int threads, int batch, int nodes, int tours, int granular, const double* distance,
                              const double* demand, const double* capacity, const int64_t* given, const int64_t* seeds,
                              int64_t* best) {
    const int steps = 2 * (nodes - 1);
    spread(threads, batch, [&](int b) {
        const Problem p(nodes, granular, distance + (size_t)b * nodes * nodes, demand + (size_t)b * nodes, capacity[b]);
        Random random{(uint64_t)seeds[b]};
        Routes shortest;
        double least = std::numeric_limits<double>::infinity();
        auto consider = [&](Routes routes) {
            if (const double found = length(p, routes); found < least) least = found, shortest = std::move(routes);
        };
        const auto starts = starting_routes(p, random, given ? given + (size_t)b * tours * steps : nullptr, tours);
        size_t routes = 0;
        for (const Routes& start : starts) routes = std::max(routes, start.size());
        Search search(p, (int)std::min<size_t>(routes + SPARE, p.customers), random());
        for (const Routes& start : starts) {
            if (start == starts[0] && &start != &starts[0]) continue;  // fewer different tours were found
            consider(start);
            if (search.improve(start)) consider(search.routes());
        }
        write_routes(shortest, best + (size_t)b * steps, steps);
    });
}
