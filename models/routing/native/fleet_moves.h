// Moves of the local search for fleets. A move's change of the distances follows from a few legs; only where that gains are
// the new routes evaluated in full, to see whether they keep to all limits.
#pragma once
#include "fleet.h"

namespace fleet {

constexpr int NEAREST = 40;      // customers before and behind which one is inserted
constexpr double WAITING = 0.1;  // of a unit of time, in units of distance (Vidal et al. 2013)
constexpr int CHAIN = 3;         // most customers that a move takes along

// Each customer's likely direct predecessors and successors: near, with little waiting in between.
struct Near {
    std::vector<std::vector<int>> before, behind;

    explicit Near(const Fleet& f) : before(f.nodes), behind(f.nodes) {
        std::vector<std::pair<double, int>> to, from;
        for (int c = 1; c <= f.customers; c++) {
            to.clear(), from.clear();
            const size_t row = (size_t)c * f.nodes;
            for (int v = 1; v <= f.customers; v++) {
                if (v == c) continue;
                consider(f, c, v, f.distance[row + v], f.duration[row + v], v, to);
                consider(f, v, c, f.distance_into[row + v], f.duration_into[row + v], v, from);
            }
            behind[c] = first(to), before[c] = first(from);
        }
    }

  private:
    static void consider(const Fleet& f, int u, int v, double far, double travel, int other,
                         std::vector<std::pair<double, int>>& found) {
        if (f.open[u] + f.service[u] + travel > f.close[v]) return;
        const double waiting = std::max(f.open[v] - travel - f.service[u] - f.close[u], 0.);
        found.emplace_back(far + WAITING * waiting, other);
    }

    static std::vector<int> first(std::vector<std::pair<double, int>>& found) {
        const size_t count = std::min((size_t)NEAREST, found.size());
        std::partial_sort(found.begin(), found.begin() + (std::ptrdiff_t)count, found.end());
        std::vector<int> nodes;
        for (size_t i = 0; i < count; i++) nodes.push_back(found[i].second);
        return nodes;
    }
};

class Moves {
  public:
    Moves(const Fleet& fleet, const Near& near, State& state) : f(fleet), near(near), now(state) {}

    // Improves the routes until no move gains, or until this thread's CPU time passes `end`.
    void descend(Random& random, double end) {
        std::vector<int> order(f.customers);
        std::iota(order.begin(), order.end(), 1);
        for (bool found = true; found;) {
            found = false;
            now.begin_round();
            random.shuffle(order);
            for (int u : order) {
                if (end < INFINITE && thread_seconds() > end) return;
                for (int v : near.before[u])
                    if (now.stops[u].route >= 0 && now.stops[v].route >= 0) found |= join(v, u);
            }
            for (int r : std::vector<int>(now.active)) found |= now.routes[r].kind >= 0 && other_kind(r);
        }
    }

    // Gives a route to a vehicle of another kind, possibly in exchange for that vehicle's route, if that costs less.
    bool other_kind(int r) {
        if (f.kinds == 1 || now.routes[r].kind < 0) return false;
        const int own = now.routes[r].kind;
        const std::vector<int> order = now.order_of(r);
        for (int k = 0; k < f.kinds; k++) {
            double cost, other;
            if (k == own || !now.fits(k, order, cost)) continue;
            if (now.used[k] < f.kind[k].count) {
                if (cost >= now.cost_of(r) - gain()) continue;
                replace({{r, k, order}});
                return true;
            }
            for (int s : now.active) {
                if (now.routes[s].kind != k) continue;
                const std::vector<int> exchanged = now.order_of(s);
                if (!now.fits(own, exchanged, other) || cost + other >= now.cost_of(r) + now.cost_of(s) - gain()) continue;
                replace({{r, k, order}, {s, own, exchanged}});
                return true;
            }
        }
        return false;
    }

  private:
    struct Renewed { int route, kind; std::vector<int> order; };

    double gain() const { return 1e-9 * f.dear; }

    void replace(const std::vector<Renewed>& renewed) {
        for (const auto& each : renewed) now.clear(each.route);
        for (const auto& each : renewed)
            if (!each.order.empty()) now.fill(each.route, each.kind, each.order.data(), each.order.data() + each.order.size());
    }

    double d(int u, int v) const { return f.d(now.stops[u].site, now.stops[v].site); }

    // Tries the moves that put u directly after v.
    bool join(int v, int u) {
        if (now.stops[v].next == u) return false;
        const int a = now.stops[v].route, b = now.stops[u].route;
        if (a == b) return within(a, v, u);
        if (cross(a, b, v, u)) return true;
        const double rate_a = now.kind_of(a).rate, rate_b = now.kind_of(b).rate;
        // 1 to CHAIN customers from u on change places with 0 to CHAIN after v, or 1 to CHAIN customers up to v move in
        // front of u.
        const int y = now.stops[v].next, o = now.stops[u].prev;
        double inner = 0;
        for (int i = 1, x = u; i <= CHAIN && now.is_customer(x); inner += now.stops[x].leg, x = now.stops[x].next, i++) {
            const int z = now.stops[x].next;
            double other = 0;
            for (int j = 0, w = v; j <= CHAIN; j++) {
                if (j) {
                    if (w != v) other += now.stops[w].leg;
                    w = now.stops[w].next;
                    if (!now.is_customer(w)) break;
                }
                const int t = now.stops[w].next;
                const double cut = rate_a * (now.stops[w].leg + (j ? now.stops[v].leg + other : 0)) +
                                   rate_b * (d(o, u) + inner + now.stops[x].leg);
                const double add = rate_a * (d(v, u) + inner + d(x, t)) + rate_b * (j ? d(o, y) + other + d(w, z) : d(o, z));
                if (add < cut - gain() && exchange(a, b, u, i, y, j)) return true;
            }
        }
        inner = 0;
        for (int i = 1, x = v; i <= CHAIN && now.is_customer(x); x = now.stops[x].prev, i++) {
            const int w = now.stops[x].prev;
            const double cut = rate_a * (d(w, x) + inner + now.stops[v].leg) + rate_b * d(o, u);
            const double add = rate_a * d(w, y) + rate_b * (d(o, x) + inner + d(v, u));
            if (add < cut - gain() && exchange(b, a, x, i, u, 0)) return true;
            inner += d(w, x);
        }
        return false;
    }

    // Exchanges `count` customers from u on, of route b, with `others` from y on, of route a, where y may be a's end.
    bool exchange(int a, int b, int u, int count, int y, int others) {
        auto one = now.order_of(a), two = now.order_of(b);
        const auto at = std::find(one.begin(), one.end(), y), from = std::find(two.begin(), two.end(), u);
        const std::vector<int> taken(at, at + others), given(from, from + count);
        const auto place = at - one.begin(), other = from - two.begin();
        one.erase(at, at + others), two.erase(from, from + count);
        one.insert(one.begin() + place, given.begin(), given.end());
        two.insert(two.begin() + other, taken.begin(), taken.end());
        return adopt(a, b, one, two);
    }

    // 2-opt*: exchanges the tail after v with the tail from u on.
    bool cross(int a, int b, int v, int u) {
        const int y = now.stops[v].next, o = now.stops[u].prev;
        const double rate_a = now.kind_of(a).rate, rate_b = now.kind_of(b).rate;
        const bool same = rate_a == rate_b && now.stops[now.base + a].site == now.stops[now.base + b].site;
        const bool emptied = !now.is_customer(y) && !now.is_customer(o);
        const double saved = emptied ? now.kind_of(b).fixed : 0;
        if (same && rate_a * (d(v, u) + (emptied ? 0 : d(o, y))) >=
                        rate_a * (now.stops[v].leg + now.stops[o].leg) + saved - gain()) return false;
        if (same && now.stops[v].leave + f.t(v, u) > now.stops[u].due) return false;
        auto one = now.order_of(a), two = now.order_of(b);
        const auto place = std::find(one.begin(), one.end(), v) + 1 - one.begin(), from = std::find(two.begin(), two.end(), u) - two.begin();
        const std::vector<int> tail(one.begin() + place, one.end());
        one.resize((size_t)place), one.insert(one.end(), two.begin() + from, two.end());
        two.resize((size_t)from), two.insert(two.end(), tail.begin(), tail.end());
        return adopt(a, b, one, two);
    }

    // Moves a chain within a route, or reverses a part of it, so that u comes directly after v.
    bool within(int r, int v, int u) {
        const std::vector<int> order = now.order_of(r);
        const auto at = std::find(order.begin(), order.end(), v) - order.begin(), from = std::find(order.begin(), order.end(), u) - order.begin();
        const auto size = (std::ptrdiff_t)order.size();
        const auto begin = order.begin();
        std::vector<int> changed;
        for (std::ptrdiff_t i = 1; i <= CHAIN; i++) {
            changed = order;
            const auto first = changed.begin();
            if (from > at) {  // the chain from u on moves forward to v
                if (from + i > size) break;
                std::rotate(first + at + 1, first + from, first + from + i);
            } else {
                if (from + i > at) break;
                std::rotate(first + from, first + from + i, first + at + 1);
            }
            if (adopt(r, changed)) return true;
            if (from < at) {  // the chain up to v moves forward to u
                changed.assign(begin, order.end());
                if (at - i + 1 <= from) break;
                std::rotate(changed.begin() + from, changed.begin() + at - i + 1, changed.begin() + at + 1);
                if (adopt(r, changed)) return true;
            }
        }
        if (from < at) return false;
        changed = order;
        std::reverse(changed.begin() + at + 1, changed.begin() + from + 1);
        return adopt(r, changed);
    }

    bool adopt(int r, const std::vector<int>& order) {
        double cost;
        if (!now.fits(now.routes[r].kind, order, cost) || cost >= now.cost_of(r) - gain()) return false;
        replace({{r, now.routes[r].kind, order}});
        return true;
    }

    bool adopt(int a, int b, const std::vector<int>& one, const std::vector<int>& two) {
        double first = 0, second = 0;
        const int k = now.routes[a].kind, l = now.routes[b].kind;
        if (!one.empty() && !now.fits(k, one, first)) return false;
        if (!two.empty() && !now.fits(l, two, second)) return false;
        if (first + second >= now.cost_of(a) + now.cost_of(b) - gain()) return false;
        replace({{a, k, one}, {b, l, two}});
        return true;
    }

    const Fleet& f;
    const Near& near;
    State& now;
};

}  // namespace fleet
