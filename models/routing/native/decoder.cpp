// RoutingPolicy.build without Python: the pointer decoder builds tours step by step, in float32.
#include "decoder.h"

#include <unordered_map>

namespace {

class Builder : Query {
  public:
    using Query::Query;

    // Writes one tour (T,), greedy or sampled by `uniform` (T,), and returns its number of steps. Non-finite weights, and
    // rules under which a customer cannot be served, leave customers out, which every check of a tour detects.
    // `log_prob` becomes that of the sampled steps.
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
                continuations.clear();  // some are of this unfinished tour
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
    // Copies the steps of an earlier tour that left the depot with the same customers to visit; returns their number.
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
        // tanh and softmax are monotone: the greedy choice needs neither.
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

    std::vector<bool> unserved;  // per node; the depot stays true
    std::unordered_map<std::vector<bool>, const int64_t*> continuations;  // of greedy tours from the depot, by `unserved`
    std::vector<int> waiting;  // unserved customers, ascending
};

}  // namespace

// Writes actions (B, S, T), which the caller has filled with the depot; returns the number of steps of the longest tour.
// query (B, D, N), key (B, H, N, D/H), value (B, H, D/H, N), pointer (B, N, D), distance (B, N, N), demand (B, N),
// capacity (B); rules (B, N, RULES) and ways (B, N, N), or null; load_weight, distance_weight and dynamic as in
// `Weights`; first (S) or null, uniform (B, S, T) or null. log_prob (B, S) of sampled tours, or null.
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
