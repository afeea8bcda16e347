// Threads that anneal one fleet's problem together, in spells. In a spell of a large problem each thread anneals a group of
// adjacent routes, divided anew each time; of a small problem, each anneals all routes, and the worst plan is then replaced
// by the best.
#pragma once
#include "fleet_ruin.h"

namespace fleet {

class Crew {
  public:
    Crew(const Fleet& fleet, const Near& near, uint64_t seed, int members) : f(fleet), near(near), random{seed}, members(members) {}

    // Anneals the given routes for `seconds` of each thread's CPU time; returns the best plan found.
    Kept anneal(const Routes& routes, const std::vector<int>& kinds, double seconds) {
        std::vector<Kept> plans(members);
        for (Kept& each : plans) each.routes = routes, each.kinds = kinds;
        const double spent = compete(plans, seconds, 0, 1. / SPELLS), each = (1 - spent) / (SPELLS - 1);
        const bool divided = f.customers / members >= PART && (int)best.routes.size() >= 2 * members;
        for (int spell = 1; spell < SPELLS && each > 0; spell++) {
            const double last = 1 - each * (SPELLS - 1 - spell);
            if (divided) divide(plans[0], seconds, last - each, last);
            else compete(plans, seconds, last - each, last);
        }
        return std::move(best);
    }

  private:
    static constexpr int SPELLS = 12;
    static constexpr int PART = 100;  // customers per thread from which a problem is divided

    static bool less(const Kept& one, const Kept& other) {
        return one.missing < other.missing || (one.missing == other.missing && one.cost < other.cost);
    }

    // Anneals each plan from the fraction `first` of the time to `last`; returns the fraction then spent. Afterwards
    // plans[0] is the best of the plans' last states.
    double compete(std::vector<Kept>& plans, double seconds, double first, double last) {
        std::vector<Kept> found(members);
        std::vector<double> passed(members);
        const std::vector<uint64_t> seeds = drawn();
        spread(members, members, [&](int i) {
            const double begun = thread_seconds();
            Annealing annealing(f, near, seeds[i]);
            found[i] = annealing.run(plans[i].routes, plans[i].kinds, 0, seconds, first, last), plans[i] = annealing.last();
            passed[i] = first + (thread_seconds() - begun) / seconds;
        });
        for (const Kept& each : found)
            if (less(each, best)) best = each;
        std::sort(plans.begin(), plans.end(), less);
        plans.back() = best;
        return *std::max_element(passed.begin(), passed.end());
    }

    struct Part {                // a subproblem: some customers, renumbered from 1, with their routes
        std::vector<int> nodes;  // their numbers in the whole problem
        std::vector<double> distance, duration, demand, open, close, service, prize;
        std::vector<Kind> kinds;
        Routes routes;
        std::vector<int> route_kinds;
        Kept best, last;
    };

    // Anneals a plan in parts, likewise; leaves it in their last states.
    void divide(Kept& plan, double seconds, double first, double last) {
        std::vector<char> served(f.nodes);
        for (const auto& route : plan.routes)
            for (int c : route) served[c] = 1;
        const size_t count = plan.routes.size();
        Routes groups = plan.routes;  // and each customer in no route as a group
        for (int c = 1; c <= f.customers; c++)
            if (!served[c]) groups.push_back({c});
        std::vector<int> order(groups.size());
        std::iota(order.begin(), order.end(), 0);
        std::vector<std::pair<size_t, size_t>> cuts;
        cut(groups, order, 0, order.size(), members, cuts);
        std::vector<double> spare(f.kinds);
        for (int k = 0; k < f.kinds; k++) spare[k] = f.kind[k].count;
        for (int k : plan.kinds) spare[k]--;
        std::vector<Part> parts(members);
        for (int i = 0; i < members; i++) {
            Part& part = parts[i];
            part.nodes = {0}, part.kinds.assign(f.kind, f.kind + f.kinds);
            for (int k = 0; k < f.kinds; k++) {
                part.kinds[k].count = std::floor(spare[k] / (members - i));
                spare[k] -= part.kinds[k].count;
            }
            for (size_t at = cuts[i].first; at < cuts[i].second; at++) {
                const size_t g = order[at];
                if (g < count) {
                    part.routes.emplace_back(), part.route_kinds.push_back(plan.kinds[g]);
                    part.kinds[plan.kinds[g]].count++;
                }
                for (int c : groups[g]) {
                    if (g < count) part.routes.back().push_back((int)part.nodes.size());
                    part.nodes.push_back(c);
                }
            }
        }
        const std::vector<uint64_t> seeds = drawn();
        spread(members, members, [&](int i) { anneal_part(parts[i], seeds[i], seconds, first, last); });
        Kept least;
        for (Kept* whole : {&least, &plan}) {
            *whole = {{}, {}, 0, 0};
            for (Part& part : parts) {
                Kept& own = whole == &least ? part.best : part.last;
                for (auto& route : own.routes) {
                    for (int& u : route) u = part.nodes[u];
                    whole->routes.push_back(std::move(route));
                }
                whole->kinds.insert(whole->kinds.end(), own.kinds.begin(), own.kinds.end());
                whole->cost += own.cost, whole->missing += own.missing;
            }
        }
        if (less(least, best)) best = std::move(least);
    }

    // Cuts groups of customers, order[begin] to order[end - 1], into `parts` of like size, by lines between two customers.
    void cut(const Routes& groups, std::vector<int>& order, size_t begin, size_t end, int parts,
             std::vector<std::pair<size_t, size_t>>& cuts) {
        if (parts == 1) return cuts.emplace_back(begin, end), void();
        const int p = 1 + (int)(random() % f.customers), q = 1 + (int)(random() % f.customers);
        std::vector<double> side(groups.size());
        int64_t customers = 0;
        for (size_t at = begin; at < end; at++) {
            const auto& group = groups[order[at]];
            for (int c : group) side[order[at]] += f.d(p, c) + f.d(c, p) - f.d(q, c) - f.d(c, q);
            side[order[at]] /= (double)group.size(), customers += (int64_t)group.size();
        }
        std::sort(order.begin() + begin, order.begin() + end, [&](int a, int b) {
            return side[a] < side[b] || (side[a] == side[b] && a < b);
        });
        const int first = parts / 2;
        size_t middle = begin;
        for (int64_t sum = 0; middle < end && sum * parts < customers * first; middle++) sum += (int64_t)groups[order[middle]].size();
        cut(groups, order, begin, middle, first, cuts);
        cut(groups, order, middle, end, parts - first, cuts);
    }

    void anneal_part(Part& part, uint64_t seed, double seconds, double first, double last) const {
        const double begun = thread_seconds();
        const int customers = (int)part.nodes.size() - 1;
        part.best.cost = part.last.cost = 0, part.best.missing = part.last.missing = 0;
        if (!customers) return;
        for (int node = f.customers + 1; node < f.nodes; node++) part.nodes.push_back(node);
        for (Kind& kind : part.kinds)
            if (kind.depot != 0) kind.depot += customers - f.customers;
        for (int u : part.nodes) {
            part.demand.push_back(f.demand[u]), part.open.push_back(f.open[u]), part.close.push_back(f.close[u]);
            part.service.push_back(f.service[u]), part.prize.push_back(f.prize[u]);
            for (int v : part.nodes) part.distance.push_back(f.d(u, v)), part.duration.push_back(f.t(u, v));
        }
        Fleet own{(int)part.nodes.size(), customers, f.kinds, part.distance.data(), part.duration.data(), part.demand.data(),
                  part.open.data(), part.close.data(), part.service.data(), part.prize.data(), part.kinds.data()};
        own.prepare();
        const Near close(own);
        Annealing annealing(own, close, seed);
        first += (thread_seconds() - begun) / seconds;
        part.best = annealing.run(part.routes, part.route_kinds, 0, seconds, first, last), part.last = annealing.last();
    }

    std::vector<uint64_t> drawn() {
        std::vector<uint64_t> seeds(members);
        for (auto& seed : seeds) seed = random();
        return seeds;
    }

    const Fleet& f;
    const Near& near;
    Random random;
    const int members;
    Kept best;
};

}  // namespace fleet
