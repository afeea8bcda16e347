// Tours of capacitated vehicle routing problems: start tours, then local search from the best, then ruin and recreate.
#include "crew.h"
#include "local_search.h"

#include <memory>

namespace {

constexpr int GRANULAR = 10;               // neighbours with which the local search tries moves
constexpr int NEAR = 40;                   // neighbours in whose routes strings are removed
constexpr double HOT = 0.1, COLD = 0.01;   // first and last temperature, in units of the mean distance
constexpr int SAMPLE = 1000;               // random pairs to estimate the mean distance from
enum Kind : int { SAVINGS = 1, SWEEP = 2, NEAREST = 4, SHUFFLED = 8 };  // of start tours, as in __init__.py

// The problems of one call, B of N nodes. Distances are a matrix (B, N, N), or null; then they are those of `places`
// (B, N, 2) in a plane, rounded as `rounding` says. demand (B, N), capacity (B), seeds (B) of random streams. `given`
// are S tours (B, S, T), T = 2 (N - 1), or null; the result goes to best (B, T), which the caller has filled with the depot.
struct Call {
    int threads, batch, nodes, rounding, count;
    const double *distance, *places, *demand, *capacity;
    const int64_t *given, *seeds;
    int64_t* best;

    template <class Solve> void each(int near, int crew, Solve solve) const {
        const size_t steps = 2 * (size_t)(nodes - 1), pairs = (size_t)nodes * nodes;
        spread(std::max(1, threads / crew), batch, [&](int b) {
            const double begun = thread_seconds();
            const Problem p(nodes, near, distance ? distance + b * pairs : nullptr,
                            places ? places + (size_t)b * nodes * 2 : nullptr, rounding, demand + (size_t)b * nodes,
                            capacity[b]);
            Random random{(uint64_t)seeds[b]};
            std::vector<Routes> tours;
            for (int s = 0; given && s < count; s++) {
                Routes tour = given_routes(given + (b * (size_t)count + s) * steps, (int)steps);
                if (!s || tour != tours[0]) tours.push_back(std::move(tour));  // padding repeats the first
            }
            write_routes(solve(p, random, tours, begun), best + b * steps, (int)steps);
        });
    }
};

double mean_distance(const Problem& p, Random& random) {
    double mean = 0;
    for (int i = 0; i < SAMPLE; i++) mean += p(random.below(p.nodes), random.below(p.nodes)) / SAMPLE;
    return mean;
}

class Shortest {  // of the tours considered
  public:
    explicit Shortest(const Problem& problem, uint64_t seed, int granular) : p(problem), seed(seed), granular(granular) {}
    Routes routes;
    double least = std::numeric_limits<double>::infinity();

    void consider(Routes found) {
        if (const double sum = length(p, found); sum < least) least = sum, routes = std::move(found);
    }
    void improve(const Routes& start) {
        consider(start);
        if (!search) search = std::make_unique<LocalSearch>(p, granular, seed);
        if (search->improve(start)) consider(search->routes());
    }
    void anneal(Random& random, int64_t rounds, double seconds) {
        const double mean = mean_distance(p, random);
        Annealing annealing(p, routes, random());
        annealing.run(rounds, seconds, HOT * mean, COLD * mean);
        consider(annealing.best());
    }

  private:
    const Problem& p;
    const uint64_t seed;
    const int granular;
    std::unique_ptr<LocalSearch> search;
};

// The next start tour; `kinds` take turns.
Routes next_start(const Problem& p, Starts& starts, int kinds, int& turn) {
    for (;; turn++)
        switch (kinds & (1 << turn % 4)) {
            case SAVINGS: return turn++, starts.savings();
            case SWEEP: if (p.has_places()) return turn++, starts.sweep(); else break;
            case NEAREST: return turn++, starts.nearest();
            case SHUFFLED: return turn++, starts.shuffled();
        }
}

// The shortest tour of a local search from each given tour, and from the best of each `group` of start tours.
Routes from_starts(const Problem& p, Random& random, const std::vector<Routes>& given, int kinds, int group, double seconds) {
    const double begun = thread_seconds();
    Shortest shortest(p, random(), GRANULAR);
    Starts starts(p, random);
    int turn = 0;
    for (const Routes& tour : given) shortest.improve(tour);
    const double searching = thread_seconds();
    // Another search begins if half of it is expected to fit.
    for (int done = 0;; done++) {
        const double now = thread_seconds(), each = done ? (now - searching) / done : 0;
        if (!kinds || ((done || !given.empty()) && now - begun + each / 2 >= seconds)) return std::move(shortest.routes);
        Shortest start(p, 0, 0);
        for (int i = 0; i < group; i++) start.consider(next_start(p, starts, kinds, turn));
        shortest.improve(start.routes);
    }
}

}  // namespace

// Solves each problem in `seconds` of the CPU time of each of `crew` threads: local search from the given tours, then from
// the best of each `group` of start tours until a `share` of the time is spent, then ruin and recreate from the shortest.
// At least one search is made, whatever the time; no tour is longer than those given.
extern "C" void solve_tours(const Call* call, int kinds, int group, double share, double seconds, int crew) {
    call->each(NEAR, crew, [&](const Problem& p, Random& random, const std::vector<Routes>& given, double begun) {
        double left = seconds - (thread_seconds() - begun);
        std::vector<Random> randoms;
        for (int i = 0; i < crew; i++) randoms.push_back(Random{random()});
        std::vector<Routes> found(crew);
        spread(crew, crew, [&](int i) {
            found[i] = from_starts(p, randoms[i], given, kinds, group, share * left);
        });
        Shortest shortest(p, 0, 0);
        for (const Routes& tour : found) shortest.consider(tour);
        if (share < 1 && (left = seconds - (thread_seconds() - begun)) > 0) {
            if (crew == 1) return shortest.anneal(random, 0, left), std::move(shortest.routes);
            const double mean = mean_distance(p, random);
            return Crew(p, random, crew).anneal(std::move(found), left, HOT * mean, COLD * mean);
        }
        return std::move(shortest.routes);
    });
}

// Improves the given tours, or `count` random ones, by a local search of moves with `granular` neighbours.
extern "C" void improve_tours(const Call* call, int granular) {
    call->each(granular, 1, [&](const Problem& p, Random& random, std::vector<Routes> tours, double) {
        Starts starts(p, random);
        while (tours.empty() || (!call->given && (int)tours.size() < call->count)) tours.push_back(starts.shuffled());
        Shortest shortest(p, random(), granular);
        for (const Routes& tour : tours) shortest.improve(tour);
        return std::move(shortest.routes);
    });
}

// Improves the first given tour, or a random one, by `rounds` of ruin and recreate, or `seconds` of them if these are above 0.
extern "C" void ruin_and_recreate_tours(const Call* call, int64_t rounds, double seconds) {
    call->each(NEAR, 1, [&](const Problem& p, Random& random, const std::vector<Routes>& given, double) {
        Shortest shortest(p, 0, 0);
        shortest.consider(given.empty() ? Starts(p, random).shuffled() : given[0]);
        shortest.anneal(random, rounds, seconds);
        return std::move(shortest.routes);
    });
}
