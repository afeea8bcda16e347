// Threads that anneal one problem together, in spells. In a spell of a large problem each thread anneals a group of adjacent
// routes, divided anew each time; of a small problem, each anneals all routes, and the worst tour is then replaced by the
// best.
#pragma once
#include "ruin.h"
#include "starts.h"

#include <memory>

class Crew {
  public:
    Crew(const Problem& problem, Random& random, int members) : p(problem), random(random), members(members) {}

    // Anneals the given tours for `seconds` of each thread's CPU time; returns the best routes found.
    Routes anneal(std::vector<Routes> tours, double seconds, double hot, double cold) {
        for (const Routes& tour : tours) consider(tour);
        const bool divided = p.has_places() && p.customers / members >= PART && (int)best.size() >= 2 * members;
        Routes now = best;
        for (int spell = 0; spell < SPELLS; spell++) {
            const double from = hot * std::pow(cold / hot, (double)spell / SPELLS), to = from * std::pow(cold / hot, 1. / SPELLS);
            if (divided) now = divide(now, seconds / SPELLS, from, to, spell % 2);
            else compete(tours, seconds / SPELLS, from, to);
        }
        return std::move(best);
    }

  private:
    static constexpr int SPELLS = 12;
    static constexpr int PART = 100;  // customers per thread from which a problem is divided

    void consider(const Routes& found) {
        if (const double sum = length(p, found); sum < least) least = sum, best = found;
    }

    void compete(std::vector<Routes>& tours, double seconds, double hot, double cold) {
        std::vector<Routes> found(members);
        std::vector<uint64_t> seeds(members);
        for (auto& seed : seeds) seed = random();
        tours.resize(members, best);
        spread(members, members, [&](int i) {
            Annealing annealing(p, tours[i], seeds[i]);
            annealing.run(0, seconds, hot, cold);
            found[i] = annealing.best(), tours[i] = annealing.last();
        });
        int worst = 0;
        for (int i = 0; i < members; i++) {
            consider(found[i]);
            if (length(p, tours[i]) > length(p, tours[worst])) worst = i;
        }
        tours[worst] = best;
    }

    struct Part {  // a subproblem: some routes, their customers renumbered from 1
        std::vector<int> nodes{0};
        std::vector<double> demand, places, matrix;
        Routes routes, best, last;
    };

    // Anneals `now` in parts, cut by direction from the depot or `across` the plane; returns the last state, not the best.
    Routes divide(const Routes& now, double seconds, double hot, double cold, bool across) {
        std::vector<std::pair<double, size_t>> order;
        const double turn = 2 * M_PI * random.uniform();
        for (size_t r = 0; r < now.size(); r++) {
            double x = 0, y = 0;
            for (int u : now[r]) x += p.places[2 * u] - p.places[0], y += p.places[2 * u + 1] - p.places[1];
            x /= (double)now[r].size(), y /= (double)now[r].size();
            order.emplace_back(across ? x * std::cos(turn) + y * std::sin(turn) : std::remainder(std::atan2(y, x) - turn, 2 * M_PI), r);
        }
        std::sort(order.begin(), order.end());
        std::vector<Part> parts(members);
        int sum = 0;
        for (const auto& [_, r] : order) {
            Part& part = parts[std::min<int64_t>(members - 1, (int64_t)sum * members / p.customers)];
            sum += (int)now[r].size();
            part.routes.emplace_back();
            for (int u : now[r]) part.routes.back().push_back((int)part.nodes.size()), part.nodes.push_back(u);
        }
        std::vector<uint64_t> seeds(members);
        for (auto& seed : seeds) seed = random();
        spread(members, members, [&](int i) {
            if (!parts[i].routes.empty()) anneal_part(parts[i], seeds[i], seconds, hot, cold);
        });
        Routes least, last;
        for (Part& part : parts)
            for (auto* each : {&part.best, &part.last})
                for (auto& route : *each) {
                    for (int& u : route) u = part.nodes[u];
                    (each == &part.best ? least : last).push_back(std::move(route));
                }
        consider(least);
        return last;
    }

    void anneal_part(Part& part, uint64_t seed, double seconds, double hot, double cold) const {
        const double begun = thread_seconds();
        for (int u : part.nodes) {
            part.demand.push_back(p.demand[u]);
            for (int side : {0, 1}) part.places.push_back(p.places[2 * u + side]);
            if (p.matrix)
                for (int v : part.nodes) part.matrix.push_back(p.exact(u, v));
        }
        const Problem problem((int)part.nodes.size(), p.near, p.matrix ? part.matrix.data() : nullptr, part.places.data(),
                              p.rounding, part.demand.data(), p.capacity);
        Annealing annealing(problem, part.routes, seed);
        annealing.run(0, std::max(1e-9, seconds - (thread_seconds() - begun)), hot, cold);
        part.best = annealing.best(), part.last = annealing.last();
    }

    const Problem& p;
    Random& random;
    const int members;
    Routes best;
    double least = std::numeric_limits<double>::infinity();
};
