// Plans for fleets, found by one thread or by several together.
#include "fleet_crew.h"

// Writes the cheapest plan found to `visits` (2 * customers), which the caller has filled with the depot, as routes each
// followed by the depot, and the routes' vehicle kinds to `chosen` (customers). Starts from `given` and `given_kinds`, in the
// same layouts, unless these are null. Runs `rounds`, or `seconds` of the CPU time of each of `crew` threads if that is not 0.
// The arrays are those of Fleet; `kind` (kinds, 7) is laid out as Kind. Returns the number of required customers left
// unserved; if no vehicle could serve one of them even alone, returns minus its number and writes nothing.
extern "C" int plan_fleet(int nodes, int customers, int kinds, int64_t rounds, double seconds, int64_t seed, int crew,
                          const double* distance, const double* duration, const double* demand, const double* open,
                          const double* close, const double* service, const double* prize, const double* kind,
                          const int64_t* given, const int64_t* given_kinds, int64_t* visits, int64_t* chosen) {
    using namespace fleet;
    const double begun = thread_seconds();
    static_assert(sizeof(Kind) == 7 * sizeof(double));
    Fleet data{nodes, customers, kinds, distance, duration, demand, open, close, service, prize, (const Kind*)kind};
    data.prepare();
    const Near near(data);
    Routes start;
    for (int i = 0; given && i < 2 * customers; i++) {
        if (!given[i]) continue;
        if (!i || !given[i - 1]) start.emplace_back();
        start.back().push_back((int)given[i]);
    }
    const std::vector<int> start_kinds(given_kinds, given_kinds + start.size());
    const double left = seconds > 0 ? std::max(seconds - (thread_seconds() - begun), 1e-6) : 0;
    const Kept best = crew > 1 && seconds > 0 ? Crew(data, near, (uint64_t)seed, crew).anneal(start, start_kinds, left)
                                              : Annealing(data, near, (uint64_t)seed).run(start, start_kinds, rounds, left);
    std::vector<char> served(nodes);
    for (const auto& route : best.routes)
        for (int c : route) served[c] = 1;
    const State empty(data, 1);
    for (int c = 1; c <= customers && best.missing; c++) {
        bool explained = served[c] || !data.required(c);
        double cost;
        for (int k = 0; k < kinds; k++) explained = explained || empty.fits(k, {c}, cost);
        if (!explained) return -c;  // not served in the plan found, nor servable by any vehicle alone
    }
    for (size_t r = 0; r < best.routes.size(); r++) {
        visits = std::copy(best.routes[r].begin(), best.routes[r].end(), visits) + 1;
        chosen[r] = best.kinds[r];
    }
    return best.missing;
}
