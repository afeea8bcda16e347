// The loop of RoutingPolicy.build without Python: tours of the pointer decoder, step by step, in float32.
#include "decoder.h"

#include <unordered_map>

namespace {

class Builder : Query {
  public:
    using Query::Query;

    // Writes one tour (T,): greedy, or drawn by `uniform` (T,); returns its number of steps. Weights that are not finite
    // leave customers out, which every check of a tour finds, and so do rules that a customer cannot be served by.
    // `log_prob` is then that of the steps drawn.
    int build(int first, const float* uniform, int64_t* actions) {
        waiting.resize(s.nodes - 1);
        std::iota(waiting.begin(), waiting.end(), 1);
        unserved.assign(s.nodes, true);
        State state = begin();
        int t = 0;
        log_prob = 0;
        while (!waiting.empty() || state.node != 0) {
            if (!uniform && state.node == 0 && t > 0) {
                const auto [known, unknown] = continuations.try_emplace(unserved, actions + t);
                if (!unknown) return t + repeat(known->second, actions + t);
            }
            const int next = t == 0 && first > 0 ? first : choose(state, uniform ? uniform + t : nullptr);
            if (next < 0 || next == state.node) {
                if (next < 0) log_prob = NAN;
                continuations.clear();  // of tours that do not end
                break;
            }
            actions[t++] = next;
            state = after(state, next);
            if (next) waiting.erase(std::lower_bound(waiting.begin(), waiting.end(), next));
            unserved[next] = next == 0;
        }
        return t;
    }

    float log_prob;

  private:
    // Writes what an earlier tour did from the depot on, with the same customers left; returns how many steps that were.
    int repeat(const int64_t* earlier, int64_t* actions) const {
        int t = 0;
        for (size_t visits = waiting.size(); visits > 0 || earlier[t - 1] != 0; t++) {
            actions[t] = earlier[t];
            visits -= earlier[t] != 0;
        }
        return t;
    }

    int choose(const State& state, const float* uniform) {
        if (allow(state, waiting) == 1) return allowed[0];
        look(state, waiting);
        if (std::isnan(logits[allowed[0]])) return -1;
        // tanh and the softmax after it are monotone: the greedy choice does without.
        return uniform ? draw(*uniform) : best();
    }

    int best() const {
        int found = allowed[0];
        for (int i = 1; i < many; i++)
            if (logits[allowed[i]] > logits[found]) found = allowed[i];
        return found;
    }

    int draw(float uniform) {
        const float all = weigh(), threshold = uniform * all;
        float sum = 0;
        int i = 0;
        while (i < many - 1 && (sum += chances[allowed[i]]) <= threshold) i++;
        log_prob += std::log(chances[allowed[i]] / all);
        return allowed[i];
    }

    std::vector<bool> unserved;  // which customers are to be visited
    std::unordered_map<std::vector<bool>, const int64_t*> continuations;  // of greedy tours, by who was left at the depot
    std::vector<int> waiting;  // customers to visit
};

}  // namespace

// Writes actions (B, S, T), which the caller has filled with the depot, and returns the steps of the longest tour.
// query (B, D, N), key (B, H, N, D/H), value (B, H, D/H, N), pointer (B, N, D), distance (B, N, N), demand (B, N),
// capacity (B); rules (B, N, RULES) and ways (B, N, N), or null; load_weight, distance_weight and dynamic as in
// `Weights`; first (S) or null, uniform (B, S, T) or null. log_prob (B, S) or null, of tours drawn.
extern "C" int build_tours(
    int threads, int batch, int nodes, int width, int heads, int tours, int steps, int factors, const float* query,
    const float* key, const float* value, const float* pointer, const float* load_weight,
    const float* distance_weight, const float* dynamic, const float* distance, const float* demand,
    const float* capacity, const float* rules, const float* ways, int64_t* actions, const int64_t* first,
    const float* uniform, float* log_prob) {
    const Shape shape(nodes, width, heads, tours, steps, factors);
    std::atomic<int> longest{0};
    spread(threads, batch, [&](int b) {
        const size_t states = (size_t)b * nodes * width, here = (size_t)b * nodes;
        const Instance instance(
            shape, query + states, key + states, value + states, pointer + states, distance + here * nodes);
        const Rules own = Rules::of(rules, ways, b, nodes);
        Builder builder(
            shape, instance, {load_weight, distance_weight, dynamic}, demand + here, capacity[b], own);
        int most = 0;
        for (int s = 0; s < tours; s++) {
            const size_t row = ((size_t)b * tours + s) * steps;
            most = std::max(most, builder.build(first ? first[s] : 0, uniform ? uniform + row : nullptr, actions + row));
            if (log_prob) log_prob[b * tours + s] = builder.log_prob;
        }
        for (int seen = longest; most > seen && !longest.compare_exchange_weak(seen, most);) {}
    });
    return longest;
}
