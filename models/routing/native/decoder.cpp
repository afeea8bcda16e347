// The loop of RoutingPolicy.build without Python: tours of the pointer decoder, step by step, in float32.
#include "decoder.h"

#include <unordered_map>

namespace {

class Builder : Query {
  public:
    Builder(const Shape& shape, const Instance& instance, const float* load_weight, float distance_weight,
            const float* demand, float capacity, const float* dynamic)
        : Query(shape, instance, load_weight, distance_weight, demand, capacity, dynamic), left(shape.nodes) {}

    // Writes one tour (T,): greedy, or drawn by `uniform` (T,); returns its number of steps. Weights that are not finite
    // leave customers out, which every check of a tour finds. `log_prob` is then that of the steps drawn.
    int build(int first, const float* uniform, int64_t* actions) {
        waiting.resize(s.nodes - 1);
        std::iota(waiting.begin(), waiting.end(), 1);
        left.assign(s.nodes, true);
        int node = 0, t = 0;
        float load = capacity;
        log_prob = 0;
        while (!waiting.empty() || node != 0) {
            if (!uniform && node == 0 && t > 0) {
                const auto [known, unknown] = continuations.try_emplace(left, actions + t);
                if (!unknown) return t + repeat(known->second, actions + t);
            }
            const int next = t == 0 && first > 0 ? first : choose(node, load, uniform ? uniform + t : nullptr);
            if (next < 0) {
                log_prob = NAN;
                continuations.clear();  // of tours that do not end
                break;
            }
            actions[t++] = node = next;
            load = next ? load - demand[next] : capacity;
            if (next) waiting.erase(std::lower_bound(waiting.begin(), waiting.end(), next));
            left[next] = next == 0;
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

    int choose(int node, float load, const float* uniform) {
        if (allow(node, load, waiting) == 1) return allowed[0];
        look(node, load, waiting);
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

    std::vector<bool> left;  // which customers are to be visited
    std::unordered_map<std::vector<bool>, const int64_t*> continuations;  // of greedy tours, by who was left at the depot
    std::vector<int> waiting;  // customers to visit
};

}  // namespace

// Writes actions (B, S, T), which the caller has filled with the depot, and returns the steps of the longest tour.
// query (B, D, N), key (B, H, N, D/H), value (B, H, D/H, N), pointer (B, N, D), distance (B, N, N), load_weight (D),
// demand (B, N), capacity (B); dynamic as in `Dynamic` or null; first (S) or null, uniform (B, S, T) or null. log_prob
// (B, S) or null, of tours drawn.
extern "C" int build_tours(
    int threads, int batch, int nodes, int width, int heads, int tours, int steps, const float* query,
    const float* key, const float* value, const float* pointer, const float* distance, const float* load_weight,
    float distance_weight, const float* demand, const float* capacity, const float* dynamic, int64_t* actions,
    const int64_t* first, const float* uniform, float* log_prob) {
    const Shape shape{nodes, width, heads, tours, steps, (nodes + LANES - 1) / LANES * LANES};
    std::atomic<int> longest{0};
    spread(threads, batch, [&](int b) {
        const size_t states = (size_t)b * nodes * width, here = (size_t)b * nodes;
        const Instance instance(
            shape, query + states, key + states, value + states, pointer + states, distance + here * nodes);
        Builder builder(shape, instance, load_weight, distance_weight, demand + here, capacity[b], dynamic);
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
