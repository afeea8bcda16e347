// The log-probabilities of given tours and their gradients: RoutingPolicy.log_prob in float32, query by query.
//
// Only feasible next nodes take part, and a step without a choice costs nothing; torch, which scores all steps at once,
// computes each node of each step. A query's intermediate results are recomputed for its gradient, not kept.
#include "decoder.h"

namespace {

// Loads a number or an unaligned vector; as a template argument, Vector loses its alignment of 4.
template <class Number> inline Number get(const float* from) {
    Number found;
    std::memcpy(&found, from, sizeof found);
    return found;
}

template <class Number> inline void add(float* to, Number what) {
    what += get<Number>(to);
    std::memcpy(to, &what, sizeof what);
}

// The gradients of one instance, by rows of nodes even where the arguments of `score_tours` have columns.
struct Gradients {
    std::vector<float> query, key, value, pointer, load, dynamic;  // (N, D), but the last two as in `Weights`
    std::vector<double> distance;                                  // as there; double, as many terms cancel out

    Gradients(const Shape& s, bool changes)
        : query(s.nodes * s.width), key(query.size()), value(query.size()), pointer(query.size()),
          load(s.factors * s.width), dynamic(changes ? Dynamic<float>::size(s.width) : 0),
          distance(s.factors > 1 ? 3 : 1) {}
};

// The transposed layouts of an instance, for sums over nodes instead of channels and vice versa.
struct Turned {
    std::vector<float> key, value;  // (N, D), (D, N')
    const float* pointer;           // (N, D)

    Turned(const Shape& s, const float* k, const float* v, const float* pointer)
        : key(s.nodes * s.width), value(s.width * s.padded), pointer(pointer) {
        const int depth = s.width / s.heads;
        for (int n = 0; n < s.nodes; n++)
            for (int d = 0; d < s.width; d++) {
                key[n * s.width + d] = k[(d / depth * s.nodes + n) * depth + d % depth];
                value[d * s.padded + n] = v[d * s.nodes + n];
            }
    }
};

class Scorer : Query {
  public:
    Scorer(const Query& query, const Turned* turned, Gradients* gradients)
        : Query(query), turned(turned), to(gradients), d_logits(s.padded), d_glimpse(s.width),
          d_attention(s.heads * s.padded), d_channels(channels.size()) {}

    // Returns the log-probability of a tour's steps (T,) from `begin` on; adds the gradients of `upstream` times it, if they
    // are wanted. ends (N, S) or null: a step from the depot to a route's end counts as one to any end.
    float score(const int64_t* actions, int begin, const bool* ends, float upstream) {
        waiting.resize(s.nodes - 1);
        std::iota(waiting.begin(), waiting.end(), 1);
        State state = Query::begin();
        float log_prob = 0;
        for (int t = 0; t < s.steps && (!waiting.empty() || state.node != 0); t++) {
            const int next = actions[t];
            if (t >= begin) log_prob += step(state, next, state.node == 0 ? ends : nullptr, upstream);
            const auto place = std::lower_bound(waiting.begin(), waiting.end(), next);
            if (place != waiting.end() && *place == next) waiting.erase(place);
            state = after(state, next);
        }
        return log_prob;
    }

  private:
    float step(const State& state, int next, const bool* ends, float upstream) {
        allow(state, waiting);
        if (std::find(allowed.begin(), allowed.begin() + many, next) == allowed.begin() + many) return -INFINITY;
        if (many == 1) return 0;
        look(state, waiting);
        const float all = weigh();
        const bool any = ends && state.node == 0 && next != 0;  // any end of a route may begin the next one
        const auto fits = [&](int n) { return any ? ends[n * s.tours] : n == next; };
        float meant = 0, rest = 0;
        for (int i = 0; i < many; i++) (fits(allowed[i]) ? meant : rest) += chances[allowed[i]];
        if (to) {
            for (int n = 0; n < s.padded; n++) d_logits[n] = -chances[n] / all;
            for (int i = 0; i < many; i++) {  // 1 / meant - 1 / all would lose most digits where a probability is near 1
                const int n = allowed[i];
                if (fits(n)) d_logits[n] = chances[n] / meant * (rest / all);
            }
            back(state.node, upstream);
        }
        return std::log(meant / all);
    }

    // Backpropagates from the log-probabilities to all their inputs. Infeasible nodes have next to no probability and
    // weight, so whole vectors may be computed.
    void back(int node, float upstream) {
        const float* away = &at.distance[node * s.padded];
        Vector farther = {};
        for (int n = 0; n < s.padded; n += LANES) {
            *(Vector*)&d_logits[n] *= upstream * CLIP * *(Vector*)&slopes[n];
            farther += *(Vector*)&d_logits[n] * *(const Vector*)(away + n);
        }
        to->distance[0] -= total(farther);
        if (s.factors > 1) {
            to->distance[1] -= dot(d_logits.data(), waited.data());
            to->distance[2] -= dot(d_logits.data(), left.data());
        }
        const int depth = s.width / s.heads, whole = depth % LANES ? 0 : s.width;
        for (int d = 0; d < whole; d += LANES) back_to_glimpse<Vector>(d);
        for (int d = whole; d < s.width; d++) back_to_glimpse<float>(d);
        if (changes) back_to_watched();
        for (int h = 0; h < s.heads; h++) {
            float *slope = &d_attention[h * s.padded], *weight = &attention[h * s.padded];
            products(depth, s.padded, &d_glimpse[h * depth], &turned->value[h * depth * s.padded], slope);
            for (int n = 0; changes && n < s.padded; n++) slope[n] += added[n];
            Vector sum = {};
            for (int n = 0; n < s.padded; n += LANES) {
                *(Vector*)(weight + n) *= 1 / sums[h];
                sum += *(Vector*)(weight + n) * *(Vector*)(slope + n);
            }
            const float mean = total(sum);
            for (int n = 0; n < s.padded; n += LANES)
                *(Vector*)(slope + n) = *(Vector*)(weight + n) * (*(Vector*)(slope + n) - mean);
        }
        for (int d = 0; d < whole; d += LANES) back_to_states<Vector>(d, node);
        for (int d = whole; d < s.width; d++) back_to_states<float>(d, node);
        if (changes) back_to_changed(node);
    }

    // Backpropagates from logits and glimpse to the channels as the pointer and `watch` read them; leaves in `added` the
    // gradient that each head's attention gets through the mean.
    void back_to_watched() {
        const Dynamic<float> found(to->dynamic.data(), s.width);
        float d_pointing[CHANNELS], d_seen[CHANNELS];
        for (int m = 0; m < CHANNELS; m++)
            found.direct[m] += d_pointing[m] = dot(d_logits.data(), &channels[m * s.padded]);
        back_to_read(d_pointing, dynamic.pointer, found.pointer, glimpse, d_glimpse.data());
        for (int m = 0; m < CHANNELS; m++) {
            const float *by = dynamic.value + m * s.width, shown = seen[m], pointed = pointing[m];
            float* to_by = found.value + m * s.width;
            float sum = 0;
            for (int d = 0; d < s.width; d++) {
                sum += by[d] * d_glimpse[d];
                to_by[d] += shown * d_glimpse[d];
            }
            float* slope = &d_channels[m * s.padded];
            for (int n = 0; n < s.padded; n++) slope[n] = d_logits[n] * pointed + sum * mean[n];
            d_seen[m] = sum / s.heads;
        }
        products(CHANNELS, s.padded, d_seen, channels.data(), added.data());
    }

    // Backpropagates from the attention to the channels as it reads them, and on to their weights.
    void back_to_changed(int node) {
        const Dynamic<float> found(to->dynamic.data(), s.width);
        float d_asking[CHANNELS];
        std::fill(added.begin(), added.end(), 0.f);
        for (int h = 0; h < s.heads; h++)
            for (int n = 0; n < s.padded; n++) added[n] += d_attention[h * s.padded + n];
        for (int m = 0; m < CHANNELS; m++) {
            float *slope = &d_channels[m * s.padded], *channel = &channels[m * s.padded];
            d_asking[m] = dot(added.data(), channel);
            for (int n = 0; n < s.padded; n++) {
                const float all = slope[n] + added[n] * asking[m];
                slope[n] = channel[n] > 0 ? all : 0;
                channel[n] = 1;
            }
            found.bias[m] += dot(slope, channel);
            for (int f = 0; f < FEATURES; f++) found.hidden[m * FEATURES + f] += dot(slope, &features[f * s.padded]);
        }
        std::fill(d_glimpse.begin(), d_glimpse.end(), 0.f);  // of the query from here on
        back_to_read(d_asking, dynamic.key, found.key, query, d_glimpse.data());
        for (int d = 0; d < s.width; d++) {
            to->query[node * s.width + d] += d_glimpse[d];
            for (int k = 0; k < s.factors; k++) to->load[k * s.width + d] += factors[k] * d_glimpse[d];
        }
    }

    // Backpropagates through `read`: adds the gradients of `by` and of the state, given `slope`, that of its output.
    void back_to_read(
        const float* slope, const float* by, float* to_by, const std::vector<float>& state, float* to_state) const {
        const Channels slopes = *(const Channels*)slope;
        for (int d = 0; d < s.width; d++) {
            const Channels along = slopes * *(const Channels*)(by + d * CHANNELS);
            for (int m = 0; m < CHANNELS; m++) to_state[d] += along[m];
            *(Channels*)(to_by + d * CHANNELS) += slopes * state[d];
        }
    }

    // Channel d, or a vector of channels from d on that belong to one head.
    template <class Number> void back_to_glimpse(int d) {
        const float *pointer = turned->pointer + d, *slope = d_logits.data();
        float* found = &to->pointer[d];
        const int *nodes = allowed.data(), width = s.width, count = many;
        const Number seen = get<Number>(&glimpse[d]);
        Number sum = {};
        for (int i = 0; i < count; i++) {
            const int n = nodes[i];
            sum += slope[n] * get<Number>(pointer + n * width);
            add(found + n * width, slope[n] * seen);
        }
        std::memcpy(&d_glimpse[d], &sum, sizeof sum);
    }

    template <class Number> void back_to_states(int d, int node) {
        const int *nodes = allowed.data(), width = s.width, count = many, head = d / (width / s.heads) * s.padded;
        const float *weight = &attention[head], *slope = &d_attention[head], *key = &turned->key[d];
        float *to_key = &to->key[d], *to_value = &to->value[d];
        const Number asked = get<Number>(&query[d]), d_seen = get<Number>(&d_glimpse[d]);
        Number sum = {};
        for (int i = 0; i < count; i++) {
            const int n = nodes[i];
            sum += slope[n] * get<Number>(key + n * width);
            add(to_key + n * width, slope[n] * asked);
            add(to_value + n * width, weight[n] * d_seen);
        }
        add(&to->query[node * width + d], sum);
        for (int k = 0; k < s.factors; k++) add(&to->load[k * width + d], factors[k] * sum);
    }

    const Turned* turned;
    Gradients* to;  // null: no gradients wanted
    std::vector<int> waiting;
    std::vector<float> d_logits, d_glimpse, d_attention, d_channels;
};

}  // namespace

// Writes log_prob (B, S) of actions (B, S, T) from step `begin` on. Given its gradient `upstream` (B, S), writes instead
// those of query, key, value and pointer, in their shapes, and of load_weight, distance_weight and dynamic, separately for
// each instance. Other arguments as in `build_tours`; ends (B, N, S) or null.
extern "C" int score_tours(
    int threads, int batch, int nodes, int width, int heads, int tours, int steps, int factors, const float* query,
    const float* key, const float* value, const float* pointer, const float* load_weight,
    const float* distance_weight, const float* dynamic, const float* distance, const float* demand,
    const float* capacity, const float* rules, const float* ways, const int64_t* actions, int begin, const bool* ends,
    float* log_prob, const float* upstream, float* d_query, float* d_key, float* d_value, float* d_pointer,
    float* d_load, float* d_distance, float* d_dynamic) {
    const Shape s(nodes, width, heads, tours, steps, factors);
    spread(threads, batch, [&](int b) {
        const size_t states = (size_t)b * nodes * width, here = (size_t)b * nodes;
        const float *k = key + states, *v = value + states, *p = pointer + states;
        const Instance instance(s, query + states, k, v, p, distance + here * nodes);
        const Turned turned(s, k, v, p);
        Gradients found(s, dynamic);
        const Weights weights{load_weight, distance_weight, dynamic};
        const Query query_of(s, instance, weights, demand + here, capacity[b], Rules::of(rules, ways, b, nodes));
        Scorer scorer(query_of, &turned, upstream ? &found : nullptr);
        for (int t = 0; t < tours; t++) {
            const size_t row = (size_t)b * tours + t;
            const bool* own = ends ? ends + here * tours + t : nullptr;
            const float score = scorer.score(actions + row * steps, begin, own, upstream ? upstream[row] : 0);
            if (!upstream) log_prob[row] = score;
        }
        if (!upstream) return;
        const int depth = width / heads;
        for (int n = 0; n < nodes; n++)
            for (int d = 0; d < width; d++) {
                const int from = n * width + d;
                d_query[states + d * nodes + n] = found.query[from];
                d_value[states + d * nodes + n] = found.value[from];
                d_key[states + (d / depth * nodes + n) * depth + d % depth] = found.key[from];
                d_pointer[states + from] = found.pointer[from];
            }
        std::copy(found.load.begin(), found.load.end(), d_load + b * found.load.size());
        std::copy(found.distance.begin(), found.distance.end(), d_distance + b * found.distance.size());
        std::copy(found.dynamic.begin(), found.dynamic.end(), d_dynamic + b * found.dynamic.size());
    });
    return 0;
}
