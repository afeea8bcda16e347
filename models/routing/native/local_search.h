// Local search on tours of a capacitated vehicle routing problem, as in the hybrid genetic search of Vidal 2022
// (Hybrid Genetic Search for the CVRP: Open-Source Implementation and SWAP* Neighborhood), for symmetric distances.
//
// Nodes 1 to n are customers; node n + 1 + r is the depot of route r, a ring: its successor is the first customer of
// the route and its predecessor the last. Overload is allowed at a price per unit, which rises until no route has any.
// Moves are tried between neighbours, SWAP* between routes that hold neighbours, so a pass costs some n log n.
#pragma once
#include "sides.h"
#include "tours.h"

class LocalSearch {
  public:
    LocalSearch(const Problem& problem, int granular, uint64_t seed)
        : p(problem), n(p.customers), random{seed}, beside(n + 2), tested(n + 1), order(n) {
        std::iota(order.begin(), order.end(), 1);
        pair_up(std::min(granular, p.near));
    }

    // Improves the routes until no move gains, at a price of overload that rises, up to 100-fold, until there is none.
    // Returns whether no route is overloaded.
    bool improve(const Routes& routes) {
        begin((int)std::min<size_t>(routes.size() + SPARE, n));
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
    static constexpr double EPSILON = 1e-9;  // of the longest distance: the least gain of a move
    static constexpr int SPARE = 2;          // empty routes to begin with

    // Lists the neighbours of each customer: those nearest to it, and those it is nearest to.
    void pair_up(int near) {
        auto each = [&](auto visit) {
            for (int u = 1; u <= n; u++)
                for (const int* v = p.begin(u); v < p.begin(u) + near; v++) {
                    visit(u, *v);
                    const int* const back = p.begin(*v);
                    if (std::find(back, back + near, u) == back + near) visit(*v, u);
                }
        };
        each([&](int u, int) { beside[u + 1]++; });
        for (int u = 1; u <= n + 1; u++) beside[u] += beside[u - 1];
        others.resize(beside[n + 1]);
        std::vector<int> at = beside;
        each([&](int u, int v) { others[at[u]++] = v; });
    }

    void begin(int routes) {
        count = routes;
        vacancies.clear();
        const size_t nodes = n + 1 + count;
        for (auto* each : {&site, &next, &prev, &route, &place}) each->assign(nodes, 0);
        for (auto* each : {&before, &ahead}) each->assign(nodes, 0);
        for (auto* each : {&load, &over}) each->assign(count, 0);
        for (auto* each : {&changed, &swapped, &seen}) each->assign(count, 0);
        for (int u = 1; u <= n; u++) site[u] = u;
        for (int r = 0; r < count; r++) route[n + 1 + r] = r;
    }

    double d(int u, int v) const { return p(site[u], site[v]); }
    double q(int u) const { return p.demand[site[u]]; }
    double penalty(double load) const { return std::max(0., load - p.capacity) * price; }
    bool depot(int u) const { return u > n; }
    bool empty(int r) const { return next[n + 1 + r] > n; }
    void link(int u, int v) { next[u] = v; prev[v] = u; }

    // Recomputes the state along a route's ring.
    void renew(int r) {
        double sum = 0;
        int u = n + 1 + r, at = 0;
        place[u] = 0, before[u] = 0;
        for (int v = next[u]; v <= n; u = v, v = next[v]) {
            ahead[u] = d(u, v);
            route[v] = r;
            place[v] = ++at;
            before[v] = sum += q(v);
        }
        ahead[u] = d(u, n + 1 + r);
        load[r] = sum, over[r] = penalty(sum), changed[r] = ++moves;
        if (at == 0) vacancies.push_back(r);
    }

    void descend() {
        moves = 0;
        std::fill(tested.begin(), tested.end(), -1);
        std::fill(swapped.begin(), swapped.end(), -1);
        for (int r = 0; r < count; r++) renew(r);
        bool found = true;
        for (int loop = 0; found || loop < 2; loop++) {  // empty routes are tried from the second on
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
        for (int i = beside[u]; i < beside[u + 1]; i++) {
            const int v = others[i];
            if (std::max(changed[route[u]], changed[route[v]]) <= last) continue;
            if (pair(u, v)) { found = true; continue; }
            if (depot(prev[v]) && with_depot(u, prev[v])) found = true;
        }
        if (loop > 0 && vacant()) found |= with_depot(u, n + 1 + vacancies.back());
        return found;
    }

    // Whether any route is empty; if so, vacancies.back() is one.
    bool vacant() {
        while (!vacancies.empty() && !empty(vacancies.back())) vacancies.pop_back();
        return !vacancies.empty();
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

    // Below, o, u, x, z follow each other on a route, and w, v, y, t on a route. Distances are looked up from one of the
    // former, so that few rows of the matrix are read for all neighbours of u.

    // Moves u, or u and its successor x, or x and u, after v.
    bool relocate(int u, int v) {
        const int a = route[u], b = route[v], o = prev[u], x = next[u], y = next[v];
        if (u == y) return false;
        const double rest = -ahead[v] - ahead[o], uv = d(u, v), uy = d(u, y);
        if (gains(rest - ahead[u] + d(o, x) + uv + uy, a, b, load[a] - q(u), load[b] + q(u)))
            return move_behind(v, {u}, a, b);
        if (depot(x) || x == v) return false;
        const double both = q(u) + q(x), two = rest - ahead[x] + d(o, next[x]);
        if (gains(two + uv + d(x, y), a, b, load[a] - both, load[b] + both)) return move_behind(v, {u, x}, a, b);
        if (gains(two + d(x, v) + uy, a, b, load[a] - both, load[b] + both)) return move_behind(v, {x, u}, a, b);
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
        const int a = route[u], b = route[v], o = prev[u], x = next[u], w = prev[v], y = next[v];
        if (u == w || u == y) return false;
        const double rest = -ahead[o] - ahead[w] + d(o, v) + d(u, w), more = q(v) - q(u), one = rest - ahead[v];
        if (u < v && gains(one - ahead[u] + d(x, v) + d(u, y), a, b, load[a] + more, load[b] - more))
            return exchange_chains(u, u, v, v, a, b);
        if (depot(x) || x == w) return false;
        const int z = next[x];
        const double two = more - q(x);
        if (gains(one - ahead[x] + d(z, v) + d(x, y), a, b, load[a] + two, load[b] - two))
            return exchange_chains(u, x, v, v, a, b);
        if (depot(y) || y == o || u > v) return false;
        const double four = two + q(y);
        if (gains(rest - ahead[x] - ahead[y] + d(z, y) + d(x, next[y]), a, b, load[a] + four, load[b] - four))
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

    // 2-opt: reverses the customers after u up to v.
    bool reverse(int u, int v) {
        if (place[u] >= place[v]) return false;
        const int x = next[u], y = next[v], r = route[u];
        if (x == v || !gains(d(u, v) + d(x, y) - ahead[u] - ahead[v], r, r, 0, 0)) return false;
        std::vector<int> path = between(x, y);
        std::reverse(path.begin(), path.end());
        chain(u, path, y);
        renew(r);
        return true;
    }

    // 2-opt*: exchanges the tails after u and v, or the tail after u with the head up to v.
    bool cross(int u, int v) {
        const int a = route[u], b = route[v], x = next[u], y = next[v], A = n + 1 + a, B = n + 1 + b;
        const double cut = -ahead[u] - ahead[v], after_u = load[a] - before[u], after_v = load[b] - before[v];
        if (gains(cut + d(u, y) + d(x, v), a, b, before[u] + after_v, before[v] + after_u)) {
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

    bool swap_all() {
        bool found = false;
        std::fill(seen.begin(), seen.end(), -1);
        for (int a = 0; a < count; a++) {
            const int last = swapped[a];
            swapped[a] = moves;
            around_route.clear();
            for (int u = next[n + 1 + a]; !depot(u); u = next[u])
                for (int i = beside[u]; i < beside[u + 1]; i++)
                    if (const int b = route[others[i]]; b > a && seen[b] != a) seen[b] = a, around_route.push_back(b);
            for (int b : around_route)
                if (std::max(changed[a], changed[b]) > last) found |= swap_star(a, b);
        }
        return found;
    }

    // Exchanges a customer of each route, each to its cheapest place in the other, or moves one to its best place.
    bool swap_star(int a, int b) {
        lay_out(one, a), lay_out(other, b);
        const auto away = [&](int u, int v) { return d(u, v); };
        one.measure(other, away), other.measure(one, away);
        double best = -EPSILON * p.longest;
        int u = 0, v = 0, behind_u = 0, behind_v = 0;
        for (int i = 1; i + 1 < (int)one.nodes.size(); i++)
            for (int j = 1; j + 1 < (int)other.nodes.size(); j++) {
                const double more = q(other.nodes[j]) - q(one.nodes[i]);
                const double gain =
                    one.cut[i] + other.cut[j] + penalty(load[a] + more) - over[a] + penalty(load[b] - more) - over[b];
                if (gain >= best) continue;
                int behind_i, behind_j;
                const double both = gain + one.insertion(i, other, j, behind_i) + other.insertion(j, one, i, behind_j);
                if (both < best) best = both, u = i, v = j, behind_u = behind_i, behind_v = behind_j;
            }
        for (bool back : {false, true}) {
            const Side &from = back ? other : one;
            const int s = back ? b : a, t = back ? a : b;
            for (int i = 1; i + 1 < (int)from.nodes.size(); i++) {
                const double moved = q(from.nodes[i]);
                const double gain = from.cut[i] + from.inserts[i].cost[0] + penalty(load[s] - moved) - over[s] +
                                    penalty(load[t] + moved) - over[t];
                if (gain < best) {
                    best = gain;
                    (back ? v : u) = i, (back ? u : v) = 0;
                    (back ? behind_v : behind_u) = from.inserts[i].behind[0];
                }
            }
        }
        if (!u && !v) return false;
        const int moving[] = {u ? one.nodes[u] : 0, v ? other.nodes[v] : 0};
        const int behind[] = {other.nodes[behind_u], one.nodes[behind_v]};
        for (int w : moving)
            if (w) link(prev[w], next[w]);
        for (int i : {0, 1})
            if (moving[i]) {
                const int after = next[behind[i]];
                link(behind[i], moving[i]), link(moving[i], after);
            }
        renew(a), renew(b);
        return true;
    }

    void lay_out(Side& side, int r) const {
        side.nodes.assign(1, n + 1 + r);
        for (int u = next[n + 1 + r]; !depot(u); u = next[u]) side.nodes.push_back(u);
        side.nodes.push_back(n + 1 + r);
        for (auto* each : {&side.ahead, &side.bridge, &side.cut}) each->assign(side.nodes.size(), 0);
        for (size_t i = 0; i + 1 < side.nodes.size(); i++) {
            const int u = side.nodes[i];
            side.ahead[i] = ahead[u];
            if (!i) continue;
            side.bridge[i] = d(prev[u], next[u]);
            side.cut[i] = side.bridge[i] - ahead[prev[u]] - ahead[u];
        }
    }

    const Problem& p;
    const int n;
    int count = 0, moves = 0;
    Random random;
    double price = 0;
    std::vector<int> beside, others;                  // where the neighbours of each customer begin in `others`
    std::vector<int> site, next, prev, route, place;  // of every node
    std::vector<double> before, ahead;                // load of the route up to and including the node; distance to the next
    std::vector<int> tested, order;
    std::vector<double> load, over;  // of every route; the price of its overload
    std::vector<int> changed, swapped, seen, around_route, vacancies;
    Side one, other;
};
