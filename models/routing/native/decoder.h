// One query of the pointer decoder in float32, shared by the construction of tours and its gradients.
//
// Where channels are summed, nodes are the innermost axis, padded to whole vectors; a query costs some 3 * nodes * width
// multiplications. Shapes as in models/routing/environment.py: N nodes, D width, H heads, S tours, T steps.
#pragma once
#include "policy_rules.h"

#include <cmath>
#include <numeric>

namespace {

// As many as one register holds: a vector of several registers goes through memory, which takes ten times as long.
#if defined(__AVX512F__)
constexpr int LANES = 16;
#elif defined(__AVX__)
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif
constexpr float CLIP = 10, NEVER = -1e30f;
typedef float Vector __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int32_t Whole __attribute__((vector_size(4 * LANES), aligned(4)));

// e**x for x <= 0, to a relative 2e-7: 2**whole by the exponent's bits, e**part by its series. ln 2 is subtracted in two
// parts, the first of them exact.
inline Vector exponential(Vector x) {
    x = x < -87.f ? x * 0 - 87.f : x;
    const Vector y = x * 1.44269504f;
    const Whole whole = __builtin_convertvector(y - 0.5f, Whole);
    const Vector turns = __builtin_convertvector(whole, Vector), part = x - turns * 0.693359375f + turns * 2.1219444e-4f;
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
    float lanes[LANES];
    std::memcpy(lanes, &x, sizeof lanes);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) lanes[i] = fold(lanes[i], lanes[i + half]);
    return lanes[0];
}

inline float total(Vector x) {
    return folded(x, [](float a, float b) { return a + b; });
}

// x[n] = e**(scale * (x[n] + y[n] - the largest)); returns their sum.
inline float exponentials(float* x, const float* y, int padded, float scale = 1) {
    Vector most = *(Vector*)x + *(const Vector*)y, sum = {};
    for (int n = 0; n < padded; n += LANES) {
        const Vector other = *(Vector*)(x + n) + *(const Vector*)(y + n);
        *(Vector*)(x + n) = other;
        most = other > most ? other : most;
    }
    const float largest = folded(most, [](float a, float b) { return a > b ? a : b; });
    for (int n = 0; n < padded; n += LANES) {
        const Vector found = exponential((*(Vector*)(x + n) - largest) * scale);
        *(Vector*)(x + n) = found;
        sum += found;
    }
    return total(sum);
}

struct Shape {
    int nodes, width, heads, tours, steps, factors, padded;

    Shape(int nodes, int width, int heads, int tours, int steps, int factors)
        : nodes(nodes), width(width), heads(heads), tours(tours), steps(steps), factors(factors),
          padded((nodes + LANES - 1) / LANES * LANES) {}
};

// A tour's weighted inputs to a query, beside its node: the load and, for a policy that reads rules, the clock.
constexpr int FACTORS = 4;

// The decoder's weights: load (K, D) for K factors; distance (1), or (3) with those of waiting and of the time left;
// dynamic as in `Dynamic`, or null for a policy whose nodes do not change.
struct Weights {
    const float *load, *distance, *dynamic;
};

// Progress of a tour.
struct State {
    int node;    // visited last
    float load;  // capacity left
    Clock clock;
};

// The weights of the channels that change while a tour grows, or their gradients: models/routing/dgt.py.
constexpr int CHANNELS = 8, FEATURES = 6;
typedef float Channels __attribute__((vector_size(4 * CHANNELS), aligned(4)));
template <class Number> struct Dynamic {
    Number *hidden, *bias, *key, *value, *pointer, *direct;  // (M, F), (M), (D, M), (M, D), (D, M), (M): M channels

    Dynamic(Number* all, int width)
        : hidden(all), bias(hidden + CHANNELS * FEATURES), key(bias + CHANNELS), value(key + CHANNELS * width),
          pointer(value + CHANNELS * width), direct(pointer + CHANNELS * width) {}

    static int size(int width) { return CHANNELS * (FEATURES + 2 + 3 * width); }
};

// One instance's part of a Cache, in the layout that queries read.
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

// The feasible next nodes of a tour, the attention over them and the pointer's logits.
class Query {
  public:
    Query(const Shape& shape, const Instance& instance, const Weights& weights, const float* demand, float capacity,
          const Rules& rules)
        : s(shape), at(instance), by(weights), demand(demand), capacity(capacity), rules(rules), allowed(s.nodes),
          blocked(s.padded), query(s.width), glimpse(s.width), attention(s.heads * s.padded), sums(s.heads),
          logits(s.padded), slopes(s.padded), chances(s.padded), waited(s.padded), left(s.padded),
          changes(by.dynamic), dynamic(by.dynamic, s.width), features(changes ? FEATURES * s.padded : 0),
          channels(changes ? CHANNELS * s.padded : 0), added(s.padded), mean(s.padded) {}

  protected:
    State begin() const { return {0, capacity, rules.begun()}; }

    State after(const State& state, int next) const {
        if (!next) return begin();
        return {next, state.load - demand[next], rules.all ? rules.after(state.clock, state.node, next) : state.clock};
    }

    // Lists in `allowed` the customers of `waiting`, and the depot, that may be next; the depot alone if none may. Returns
    // their number.
    int allow(const State& state, const std::vector<int>& waiting) {
        many = state.node != 0;
        allowed[0] = 0;
        for (int n : waiting) {
            allowed[many] = n;
            many += demand[n] <= state.load && (!rules.all || rules.allow(rules.after(state.clock, state.node, n), n));
        }
        if (many) return many;
        allowed[0] = 0;
        return many = 1;
    }

    // Computes the attention over nodes and the pointer's logits before clipping. Each step runs for all heads before the
    // next one: a single head would wait for its own results.
    void look(const State& state, const std::vector<int>& waiting) {
        std::fill(blocked.begin(), blocked.end(), NEVER);
        for (int i = 0; i < many; i++) blocked[allowed[i]] = 0;
        const float share = state.load / capacity, *from = &at.query[state.node * s.width];
        const Clock& clock = state.clock;
        factors[0] = share, factors[1] = clock.free, factors[2] = clock.length, factors[3] = clock.waited;
        for (int d = 0; d < s.width; d++) query[d] = from[d] + by.load[d] * share;
        for (int k = 1; k < s.factors; k++)
            for (int d = 0; d < s.width; d++) query[d] += by.load[k * s.width + d] * factors[k];
        const int depth = s.width / s.heads;
        for (int h = 0; h < s.heads; h++)
            products(depth, s.padded, &query[h * depth], &at.key[h * depth * s.padded], &attention[h * s.padded]);
        if (changes) change(state.node, share, waiting);
        const std::vector<float>& bias = changes ? added : blocked;
        for (int h = 0; h < s.heads; h++) sums[h] = exponentials(&attention[h * s.padded], bias.data(), s.padded);
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
        if (changes) watch();
        products(s.width, s.padded, glimpse.data(), at.pointer.data(), logits.data());
        if (changes) {
            read(glimpse, dynamic.pointer, dynamic.direct, pointing);
            products(CHANNELS, s.padded, pointing, channels.data(), added.data());
            for (int n = 0; n < s.padded; n++) logits[n] += added[n];
        }
        const float *away = &at.distance[state.node * s.padded], weight = by.distance[0];
        for (int n = 0; n < s.padded; n++) logits[n] -= weight * away[n];
        if (s.factors > 1) wait(state);
    }

    // Subtracts from the logits, weighted, how long each feasible node makes the route wait and the time left there.
    void wait(const State& state) {
        std::fill(waited.begin(), waited.end(), 0.f);
        std::fill(left.begin(), left.end(), 0.f);
        for (int i = 0; i < many; i++) {
            const int n = allowed[i];
            const Clock after = rules.after(state.clock, state.node, n);
            waited[n] = after.waited - state.clock.waited;
            const float spare = rules.left(after, n);
            left[n] = std::isfinite(spare) ? spare : 0;
            logits[n] -= by.distance[1] * waited[n] + by.distance[2] * left[n];
        }
    }

    // Computes the channels of all nodes, and `added`, the bias that they and `blocked` add to every head's attention.
    void change(int node, float share, const std::vector<int>& waiting) {
        const float *away = &at.distance[node * s.padded], *home = &at.distance[0];
        const float part = 1 / capacity;
        float left = 0;
        std::fill(features.begin(), features.end(), 0.f);
        for (int n : waiting) {
            features[n] = 1;
            left += demand[n];
        }
        left *= part / std::sqrt((float)s.nodes);
        for (int n = 0; n < s.nodes; n++) {
            float* feature = &features[n];
            feature[s.padded] = share - demand[n] * part;
            feature[2 * s.padded] = away[n];
            feature[3 * s.padded] = away[0] + home[n] - away[n];
            feature[4 * s.padded] = home[n];
            feature[5 * s.padded] = left;
        }
        for (int m = 0; m < CHANNELS; m++) {
            float* channel = &channels[m * s.padded];
            products(FEATURES, s.padded, dynamic.hidden + m * FEATURES, features.data(), channel);
            const float bias = dynamic.bias[m];
            for (int n = 0; n < s.padded; n += LANES) {
                const Vector found = *(Vector*)(channel + n) + bias;
                *(Vector*)(channel + n) = found < 0.f ? Vector{} : found;  // NaN stays NaN
            }
        }
        read(query, dynamic.key, nullptr, asking);
        products(CHANNELS, s.padded, asking, channels.data(), added.data());
        for (int n = 0; n < s.padded; n++) added[n] += blocked[n];
    }

    // Adds to the glimpse the channels under the heads' mean attention.
    void watch() {
        std::fill(mean.begin(), mean.end(), 0.f);
        for (int h = 0; h < s.heads; h++) {
            const float part = 1 / (sums[h] * s.heads), *weight = &attention[h * s.padded];
            for (int n = 0; n < s.padded; n++) mean[n] += part * weight[n];
        }
        for (int m = 0; m < CHANNELS; m++) {
            seen[m] = dot(mean.data(), &channels[m * s.padded]);
            for (int d = 0; d < s.width; d++) glimpse[d] += seen[m] * dynamic.value[m * s.width + d];
        }
    }

    // Writes state (D) times `by` (D, M), plus `more` (M) unless null.
    void read(const std::vector<float>& state, const float* by, const float* more, float* out) const {
        Channels sums[2] = {};
        if (more) sums[0] = *(const Channels*)more;
        for (int d = 0; d < s.width; d++) sums[d % 2] += state[d] * *(const Channels*)(by + d * CHANNELS);
        *(Channels*)out = sums[0] + sums[1];
    }

    float dot(const float* x, const float* y) const {
        Vector sum = {};
        for (int n = 0; n < s.padded; n += LANES) sum += *(const Vector*)(x + n) * *(const Vector*)(y + n);
        return total(sum);
    }

    // Computes VECTORS vectors of the glimpse from channel d on: sums over nodes of attention[n] * value[n][d].
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

    // Turns the logits into unnormalised probabilities, e**(CLIP * (tanh - the largest)); returns their sum. The slope of
    // tanh, 1 - tanh**2, is computed so that it is exact for large logits too.
    float weigh() {
        for (int n = 0; n < s.padded; n += LANES) {
            const Vector logit = *(Vector*)&logits[n], most = logit < 0.f ? logit : -logit;
            const Vector power = exponential(2 * most), tanh = (1 - power) / (1 + power);
            *(Vector*)&chances[n] = logit < 0.f ? -tanh : tanh;
            *(Vector*)&slopes[n] = 4 * power / ((1 + power) * (1 + power));
        }
        return exponentials(chances.data(), blocked.data(), s.padded, CLIP);
    }

    const Shape& s;
    const Instance& at;
    const Weights by;
    const float *demand, capacity;
    const Rules rules;
    std::vector<int> allowed;  // the first `many` are the feasible next nodes
    int many;
    float factors[FACTORS];
    std::vector<float> blocked, query, glimpse, attention, sums, logits, slopes, chances, waited, left;
    const bool changes;
    const Dynamic<const float> dynamic;
    std::vector<float> features, channels, added, mean;  // (F, N'), (M, N'), (N'), the mean attention of the heads (N')
    float asking[CHANNELS], seen[CHANNELS], pointing[CHANNELS];  // factors of the channels in the decoder's products
};

}  // namespace
