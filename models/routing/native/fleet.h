// Routes of a fleet under all constraints that a problem may have beside capacities: one-way roads, travel times apart from
// distances, time windows, limits on the length and the duration of routes, vehicles of several kinds and depots, and
// customers that may be left out at a price.
//
// Nodes 1 to n are customers, node 0 and those above n are depots. Stop `nodes + r` is the depot of route r, a ring: its
// successor is the first customer of the route and its predecessor the last. All routes keep to all limits at all times;
// customers that do not fit are in no route, at their price.
#pragma once
#include "common.h"

#include <cmath>
#include <ctime>
#include <numeric>

namespace fleet {

using Routes = std::vector<std::vector<int>>;

constexpr double INFINITE = std::numeric_limits<double>::infinity();

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

inline double thread_seconds() {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

struct Kind {  // of vehicle: number, depot, limits and costs
    double count, capacity, depot, fixed, rate, longest, limit;
};

struct Fleet {
    int nodes, customers, kinds;
    const double *distance, *duration;  // (nodes, nodes), from row to column
    const double *demand, *open, *close, *service, *prize;  // (nodes); the prize of a customer that must be served is infinite
    const Kind* kind;
    bool limited = false;                                // whether a kind has a limit on the duration of routes
    std::vector<double> distance_into = {}, duration_into = {};// the matrices, from column to row
    double dear = 0;                                     // above the cost of a route for one customer

    void prepare() {
        const auto size = (size_t)nodes;
        distance_into.resize(size * size), duration_into.resize(size * size);
        double longest = 0, rate = 0, fixed = 0;
        for (size_t u = 0; u < size; u++)
            for (size_t v = 0; v < size; v++) {
                distance_into[v * size + u] = distance[u * size + v];
                duration_into[v * size + u] = duration[u * size + v];
                longest = std::max(longest, distance[u * size + v]);
            }
        for (int k = 0; k < kinds; k++) {
            limited |= kind[k].limit < INFINITE;
            rate = std::max(rate, kind[k].rate), fixed = std::max(fixed, kind[k].fixed);
        }
        dear = 2 * longest * rate + fixed + 1e-9;
    }
    double d(int u, int v) const { return distance[(size_t)u * nodes + v]; }
    double t(int u, int v) const { return duration[(size_t)u * nodes + v]; }
    bool required(int c) const { return prize[c] == INFINITE; }
};

// A part of a route: its duration with the least waiting, and when it must begin for that (Vidal et al. 2013).
struct Span {
    double duration, early, late;
    Span then(const Span& next, double travel) const {
        const double delta = duration + travel, wait = std::max(next.early - delta - late, 0.);
        return {delta + next.duration + wait, std::max(next.early - delta, early) - wait,
                std::min(next.late - delta, late)};
    }
};

struct Stop {
    int next, prev, route = -1, site;  // -1: in no route
    double leave;  // earliest end of its service
    double due;    // latest start of its service that keeps all later stops in time
    double leg;    // distance to the next
};

struct Route {
    int kind = -1, size = 0, place = -1;  // -1: no vehicle; place among the routes in use
    double load = 0, length = 0;
};

class State {
  public:
    State(const Fleet& fleet, double free_price)
        : f(fleet), n(f.customers), base(f.nodes), used(f.kinds), price(f.nodes, free_price) {
        int slots = 0;
        for (int k = 0; k < f.kinds; k++) slots += (int)std::min(f.kind[k].count, (double)n);
        slots = std::min(slots, n);
        stops.resize(base + slots), routes.resize(slots), touched.assign(slots, -1);
        for (int u = 0; u < base; u++) stops[u].site = u;
        for (int r = slots; r--;) stops[base + r].route = r, free.push_back(r);
        if (f.limited) until.resize(stops.size()), from.resize(stops.size());
        for (int c = 1; c <= n; c++) {
            if (!f.required(c)) price[c] = f.prize[c];
            missing += f.required(c), cost += price[c];
            absent.push_back(c);
        }
    }

    bool is_customer(int u) const { return u < base; }
    bool spare(int k) const { return used[k] < f.kind[k].count && !free.empty(); }
    const Kind& kind_of(int r) const { return f.kind[routes[r].kind]; }
    void link(int u, int v) { stops[u].next = v, stops[v].prev = u; }

    // Opens a route for a vehicle of kind k and returns it.
    int open(int k) {
        const int r = free.back();
        touch(r);
        free.pop_back();
        occupy(r, k);
        return r;
    }

    // Inserts customer c after stop u; the caller renews the route and removes c from `absent`.
    void put(int c, int u) {
        const int v = stops[u].next, r = stops[u].route;
        link(u, c), link(c, v);
        stops[c].route = r;
        routes[r].size++;
        cost -= price[c], missing -= f.required(c);
    }

    void take(int c) {
        const int r = stops[c].route;
        link(stops[c].prev, stops[c].next);
        stops[c].route = -1;
        routes[r].size--;
        cost += price[c], missing += f.required(c);
    }

    // Recomputes the state along a route and its share of the cost; an empty route gives its vehicle back.
    void renew(int r) {
        Route& route = routes[r];
        const Kind& kind = f.kind[route.kind];
        const int head = base + r;
        cost -= kind.rate * route.length;
        if (!route.size) {
            vacate(r);
            return;
        }
        double load = 0, length = 0;
        int u = head;
        if (f.limited) until[head] = span(head);
        do {
            const int v = stops[u].next;
            Stop& stop = stops[v];
            length += stops[u].leg = f.d(stops[u].site, stop.site);
            if (v != head) {
                load += f.demand[v];
                const double travel = f.t(stops[u].site, v);
                stop.leave = std::max(stops[u].leave + travel, f.open[v]) + f.service[v];
                if (f.limited) until[v] = until[u].then(span(v), travel);
            }
            u = v;
        } while (u != head);
        if (f.limited) from[head] = span(head);
        for (u = stops[head].prev; u != head; u = stops[u].prev) {
            const int v = stops[u].next;
            const double travel = f.t(u, stops[v].site);
            stops[u].due = std::min(f.close[u], stops[v].due - travel - f.service[u]);
            if (f.limited) from[u] = span(u).then(from[v], travel);
        }
        route.load = load, route.length = length;
        cost += kind.rate * length;
    }

    // Whether a renewed route keeps to its limits: removing a customer may lengthen it, where detours are short cuts.
    bool sound(int r) const {
        const int head = base + r, v = stops[head].next;
        const double travel = f.t(stops[head].site, stops[v].site);
        if (std::max(stops[head].leave + travel, f.open[v]) > stops[v].due || routes[r].length > kind_of(r).longest) return false;
        return kind_of(r).limit == INFINITE || until[head].then(from[v], travel).duration <= kind_of(r).limit;
    }

    Span span(int u) const {
        const int site = stops[u].site;
        return {f.service[site], f.open[site], f.close[site]};
    }

    // Saves a route as it was at the beginning of the round, for `restore`.
    void touch(int r) {
        if (touched[r] == round) return;
        touched[r] = round;
        saved.push_back({r, routes[r].kind, (int)path.size()});
        if (routes[r].kind >= 0)
            for (int u = stops[base + r].next; is_customer(u); u = stops[u].next) path.push_back(u);
    }

    void begin_round() {
        round++;
        saved.clear(), path.clear();
        cost_before = cost, missing_before = missing;
    }

    void restore() {
        for (const auto& each : saved) {
            const int r = each.route;
            if (routes[r].kind < 0) continue;
            for (int u = stops[base + r].next; is_customer(u); u = stops[u].next) stops[u].route = -1;
            vacate(r);
        }
        for (size_t i = 0; i < saved.size(); i++) {
            const auto& each = saved[i];
            if (each.kind < 0) continue;
            fill(each.route, each.kind, path.data() + each.begin,
                 path.data() + (i + 1 < saved.size() ? saved[i + 1].begin : (int)path.size()));
        }
        cost = cost_before, missing = missing_before;
    }

    // Empties a route for `fill`, without charging its customers' prices.
    void clear(int r) {
        touch(r);
        cost -= kind_of(r).rate * routes[r].length;
        for (int u = stops[base + r].next; is_customer(u); u = stops[u].next) stops[u].route = -1;
        vacate(r);
    }

    // Puts customers that are in no route onto the empty route r, with a vehicle of kind k.
    void fill(int r, int k, const int* begin, const int* end) {
        free.erase(std::find(free.rbegin(), free.rend(), r).base() - 1);  // it is near the end
        occupy(r, k);
        int u = base + r;
        for (; begin != end; begin++) {
            link(u, *begin);
            u = *begin;
            stops[u].route = r;
            routes[r].size++;
        }
        link(u, base + r);
        renew(r);
    }

    // Whether a vehicle of kind k can serve these customers in this order; `total` becomes the cost.
    bool fits(int k, const std::vector<int>& order, double& total) const {
        const Kind& kind = f.kind[k];
        const int depot = (int)kind.depot;
        double load = 0, length = 0, leave = f.open[depot];
        Span whole{0, f.open[depot], f.close[depot]};
        int u = depot;
        for (int v : order) {
            const double travel = f.t(u, v), begin = std::max(leave + travel, f.open[v]);
            if (begin > f.close[v] || (load += f.demand[v]) > kind.capacity) return false;
            leave = begin + f.service[v];
            length += f.d(u, v);
            if (f.limited) whole = whole.then({f.service[v], f.open[v], f.close[v]}, travel);
            u = v;
        }
        length += f.d(u, depot);
        if (leave + f.t(u, depot) > f.close[depot] || length > kind.longest) return false;
        if (f.limited && whole.then({0, f.open[depot], f.close[depot]}, f.t(u, depot)).duration > kind.limit) return false;
        total = kind.rate * length + kind.fixed;
        return true;
    }

    double cost_of(int r) const { return kind_of(r).rate * routes[r].length + kind_of(r).fixed; }

    double driven() const {
        double sum = 0;
        for (int r : active) sum += cost_of(r);
        return sum;
    }

    std::vector<int> order_of(int r) const {
        std::vector<int> order;
        for (int u = stops[base + r].next; is_customer(u); u = stops[u].next) order.push_back(u);
        return order;
    }

    const Fleet& f;
    const int n, base;
    std::vector<Stop> stops;
    std::vector<Route> routes;
    std::vector<int> used, active, free, absent;  // vehicles in use per kind; routes in use and not; customers in no route
    std::vector<double> price;                    // of leaving out each customer
    std::vector<Span> until, from;                // per stop, the route up to it and from it on, itself included
    double cost = 0;                              // of vehicles and distances, and the prices of absent customers
    int missing = 0;                              // customers that must be served and are not

  private:
    struct Saved { int route, kind, begin; };

    void occupy(int r, int k) {
        Stop& head = stops[base + r];
        const int depot = (int)f.kind[k].depot;
        head.site = depot, head.next = head.prev = base + r;
        head.leave = f.open[depot], head.due = f.close[depot], head.leg = 0;
        routes[r] = {k, 0, (int)active.size(), 0, 0};
        active.push_back(r);
        used[k]++;
        cost += f.kind[k].fixed;
        if (f.limited) until[base + r] = from[base + r] = span(base + r);
    }

    void vacate(int r) {
        Route& route = routes[r];
        cost -= f.kind[route.kind].fixed;
        used[route.kind]--;
        routes[active.back()].place = route.place;
        active[route.place] = active.back();
        active.pop_back();
        route = {};
        free.push_back(r);
    }

    std::vector<int64_t> touched;  // per slot, the round in which it was saved
    std::vector<Saved> saved;
    std::vector<int> path;
    int64_t round = 0;
    double cost_before = 0;
    int missing_before = 0;
};

}  // namespace fleet
