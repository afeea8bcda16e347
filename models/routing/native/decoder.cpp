// The loop of RoutingPolicy.build without Python: tours of the pointer decoder, step by step, in float32.
//
// Nodes are the innermost axis, padded to whole vectors; a step looks at one query and costs some 3 * nodes * width
// multiplications. Letters are those of models/routing/environment.py: N nodes, D width, H heads, S tours, T steps.
#include "common.h"

#include <cmath>
#include <numeric>
#include <unordered_map>

namespace {

constexpr int LANES = 16;
constexpr float CLIP = 10, NEVER = -1e30f;
typedef float Vector __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int32_t Whole __attribute__((vector_size(4 * LANES), aligned(4)));

// e**x for x <= 0, to 2e-7 of itself: 2**whole(y) by the exponent's bits, 2**part(y) by its series.
inline Vector exponential(Vector x) {
    x = x < -87.f ? x * 0 - 87.f : x;
    const Vector y = x * 1.44269504f;
    const Whole whole = __builtin_convertvector(y - 0.5f, Whole);
    const Vector part = (y - __builtin_convertvector(whole, Vector)) * 0.69314718f;
    Vector series = part * (1 / 5040.f) + 1 / 720.f;
    for (float factor : {1 / 120.f, 1 / 24.f, 1 / 6.f, 0.5f, 1.f, 1.f}) series = series * part + factor;
    return series * (Vector)((whole + 127) << 23);
}

// out[n] = sum over d of q[d] * k[d][n], for BLOCKS vectors of nodes.
template <int BLOCKS> inline void products(int depth, int padded, const float* q, const float* k, float* out) {
    Vector sums[BLOCKS][2] = {};
    for (int d = 0; d + 1 < depth; d += 2)
        for (int v = 0; v < BLOCKS; v++)
            for (int odd = 0; odd < 2; odd++)
                sums[v][odd] += q[d + odd] * *(const Vector*)(k + (size_t)(d + odd) * padded + v * LANES);
    for (int v = 0; v < BLOCKS; v++) {
        if (depth % 2) sums[v][0] += q[depth - 1] * *(const Vector*)(k + (size_t)(depth - 1) * padded + v * LANES);
        *(Vector*)(out + v * LANES) = sums[v][0] + sums[v][1];
    }
}

void products(int depth, int padded, const float* q, const float* k, float* out) {
    int n = 0;
    for (; padded - n >= 4 * LANES; n += 4 * LANES) products<4>(depth, padded, q, k + n, out + n);
    for (; padded - n >= 2 * LANES; n += 2 * LANES) products<2>(depth, padded, q, k + n, out + n);
    for (; n < padded; n += LANES) products<1>(depth, padded, q, k + n, out + n);
}

// The lanes of a vector folded into one number, half onto half.
template <class Fold> inline float folded(Vector x, Fold fold) {
    x = fold(x, __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
    x = fold(x, __builtin_shufflevector(x, x, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11));
    x = fold(x, __builtin_shufflevector(x, x, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13));
    return fold(x, __builtin_shufflevector(x, x, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14))[0];
}

// x[n] = e**(scale * (x[n] + y[n] - the largest)); returns their sum.
inline float exponentials(float* x, const float* y, int padded, float scale = 1) {
    Vector most = *(Vector*)x + *(const Vector*)y, sum = {};
    for (int n = 0; n < padded; n += LANES) {
        const Vector other = *(Vector*)(x + n) + *(const Vector*)(y + n);
        *(Vector*)(x + n) = other;
        most = other > most ? other : most;
    }
    const float largest = folded(most, [](Vector a, Vector b) { return a > b ? a : b; });
    for (int n = 0; n < padded; n += LANES) {
        const Vector found = exponential((*(Vector*)(x + n) - largest) * scale);
        *(Vector*)(x + n) = found;
        sum += found;
    }
    return folded(sum, [](Vector a, Vector b) { return a + b; });
}

struct Shape {
    int nodes, width, heads, tours, steps, padded;
};

// The parts of a Cache of one instance, each stored as the loop reads it.
struct Instance {
    std::vector<float> query, key, value, pointer, distance;  // (N, D), (D, N'), (N, D), (D, N'), (N, N')

    Instance(const Shape& s, const float* q, const float* k, const float* v, const float* p, const float* dist)
        : query(s.nodes * s.width), key(s.width * s.padded), value(query.size()), pointer(key.size()),
          distance(s.nodes * s.padded) {
        const int depth = s.width / s.heads;
        for (int n = 0; n < s.nodes; n++) {
            std::memcpy(&distance[n * s.padded], dist + n * s.nodes, sizeof(float) * s.nodes);
            for (int d = 0; d < s.width; d++) {
                query[n * s.width + d] = q[d * s.nodes + n];
                value[n * s.width + d] = v[d * s.nodes + n];
                key[d * s.padded + n] = k[(d / depth * s.nodes + n) * depth + d % depth];
                pointer[d * s.padded + n] = p[n * s.width + d];
            }
        }
    }
};

class Builder {
  public:
    Builder(const Shape& shape, const Instance& instance, const float* load_weight, float distance_weight,
            const float* demand, float capacity)
        : s(shape), at(instance), load_weight(load_weight), distance_weight(distance_weight), demand(demand),
          capacity(capacity), left(s.nodes), allowed(s.nodes), blocked(s.padded), query(s.width), glimpse(s.width),
          attention(s.heads * s.padded), sums(s.heads), logits(s.padded) {}

    // Writes one tour (T,): greedy, or drawn by `uniform` (T,); returns its number of steps. Weights that are not finite
    // leave customers out, which every check of a tour finds.
    int build(int first, const float* uniform, int64_t* actions) {
        waiting.resize(s.nodes - 1);
        std::iota(waiting.begin(), waiting.end(), 1);
        left.assign(s.nodes, true);
        int node = 0, t = 0;
        float load = capacity;
        while (!waiting.empty() || node != 0) {
            if (!uniform && node == 0 && t > 0) {
                const auto [known, unknown] = continuations.try_emplace(left, actions + t);
                if (!unknown) return t + repeat(known->second, actions + t);
            }
            const int next = t == 0 && first > 0 ? first : choose(node, load, uniform ? uniform + t : nullptr);
            if (next < 0) {
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
        many = node != 0;
        allowed[0] = 0;
        for (int n : waiting) {
            allowed[many] = n;
            many += demand[n] <= load;
        }
        if (many == 1) return allowed[0];
        std::fill(blocked.begin(), blocked.end(), NEVER);
        for (int i = 0; i < many; i++) blocked[allowed[i]] = 0;
        look(node, load);
        if (std::isnan(logits[allowed[0]])) return -1;
        // tanh and the softmax after it are monotone: the greedy choice does without.
        return uniform ? draw(*uniform) : best();
    }

    // The attention over nodes, and the pointer's logits before they are clipped. Each step is done for all heads before
    // the next one, as a head alone would wait for its own numbers.
    void look(int node, float load) {
        const float share = load / capacity, *from = &at.query[node * s.width];
        for (int d = 0; d < s.width; d++) query[d] = from[d] + load_weight[d] * share;
        const int depth = s.width / s.heads;
        for (int h = 0; h < s.heads; h++)
            products(depth, s.padded, &query[h * depth], &at.key[h * depth * s.padded], &attention[h * s.padded]);
        for (int h = 0; h < s.heads; h++)
            sums[h] = exponentials(&attention[h * s.padded], blocked.data(), s.padded);
        int d = 0;
        if (depth % LANES == 0) {
            for (; d + 4 * LANES <= s.width; d += 4 * LANES) mix<4>(d);
            for (; d < s.width; d += LANES) mix<1>(d);
        }
        for (; d < s.width; d++) {
            const float* weights = &attention[d / depth * s.padded];
            float sum = 0;
            for (int i = 0; i < many; i++) sum += weights[allowed[i]] * at.value[allowed[i] * s.width + d];
            glimpse[d] = sum / sums[d / depth];
        }
        products(s.width, s.padded, glimpse.data(), at.pointer.data(), logits.data());
        const float* away = &at.distance[node * s.padded];
        for (int n = 0; n < s.padded; n++) logits[n] -= distance_weight * away[n];
    }

    // The glimpse's channels from d on, so many vectors of them: sums over nodes of attention[n] * value[n][d].
    template <int VECTORS> void mix(int d) {
        const int depth = s.width / s.heads;
        const float* weights[VECTORS];
        for (int v = 0; v < VECTORS; v++) weights[v] = &attention[(d + v * LANES) / depth * s.padded];
        Vector sum[VECTORS] = {};
        for (int i = 0; i < many; i++) {
            const int n = allowed[i];
            const Vector* value = (const Vector*)&at.value[n * s.width + d];
            for (int v = 0; v < VECTORS; v++) sum[v] += weights[v][n] * value[v];
        }
        for (int v = 0; v < VECTORS; v++) *(Vector*)&glimpse[d + v * LANES] = sum[v] / sums[(d + v * LANES) / depth];
    }

    int best() const {
        int found = allowed[0];
        for (int i = 1; i < many; i++)
            if (logits[allowed[i]] > logits[found]) found = allowed[i];
        return found;
    }

    int draw(float uniform) {
        for (int n = 0; n < s.padded; n++) attention[n] = -2 * std::abs(logits[n]);
        for (int n = 0; n < s.padded; n += LANES) {
            const Vector power = exponential(*(Vector*)&attention[n]), sign = *(Vector*)&logits[n];
            const Vector tanh = (1 - power) / (1 + power);
            *(Vector*)&attention[n] = sign < 0.f ? -tanh : tanh;
        }
        const float threshold = uniform * exponentials(attention.data(), blocked.data(), s.padded, CLIP);
        float sum = 0;
        for (int i = 0; i < many; i++)
            if ((sum += attention[allowed[i]]) > threshold) return allowed[i];
        return allowed[many - 1];
    }

    const Shape& s;
    const Instance& at;
    const float *load_weight, distance_weight, *demand, capacity;
    std::vector<bool> left;  // which customers are to be visited
    std::unordered_map<std::vector<bool>, const int64_t*> continuations;  // of greedy tours, by who was left at the depot
    std::vector<int> waiting, allowed;  // customers to visit; nodes that may be next, the first `many` of them
    int many;
    std::vector<float> blocked, query, glimpse, attention, sums, logits;
};

}  // namespace

// Writes actions (B, S, T), which the caller has filled with the depot, and returns the steps of the longest tour.
// query (B, D, N), key (B, H, N, D/H), value (B, H, D/H, N), pointer (B, N, D), distance (B, N, N), load_weight (D),
// demand (B, N), capacity (B); first (S) or null, uniform (B, S, T) or null.
extern "C" int build_tours(
    int threads, int batch, int nodes, int width, int heads, int tours, int steps, const float* query,
    const float* key, const float* value, const float* pointer, const float* distance, const float* load_weight,
    float distance_weight, const float* demand, const float* capacity, const int64_t* first, const float* uniform,
    int64_t* actions) {
    const Shape shape{nodes, width, heads, tours, steps, (nodes + LANES - 1) / LANES * LANES};
    std::atomic<int> longest{0};
    spread(threads, batch, [&](int b) {
        const size_t states = (size_t)b * nodes * width, here = (size_t)b * nodes;
        const Instance instance(
            shape, query + states, key + states, value + states, pointer + states, distance + here * nodes);
        Builder builder(shape, instance, load_weight, distance_weight, demand + here, capacity[b]);
        int most = 0;
        for (int s = 0; s < tours; s++) {
            const size_t row = ((size_t)b * tours + s) * steps;
            most = std::max(most, builder.build(first ? first[s] : 0, uniform ? uniform + row : nullptr, actions + row));
        }
        for (int seen = longest; most > seen && !longest.compare_exchange_weak(seen, most);) {}
    });
    return longest;
}
