// Rules on times and lengths for policies: the clocks and limits of models/routing/environment.py, in float32 and summed in
// the same order, so that both allow the same nodes.
#pragma once
#include "common.h"

namespace {

constexpr int RULES = 6;
constexpr float MARGIN = 1e-5f;
enum Rule { OPENS, CLOSES, SERVICE, LONGEST, LIMIT, OPENED };

// Progress of a route that left as early as it may, and by how much it could have left later.
struct Clock {
    float free, length, waited, movable;
};

// The rules (N, RULES) of one instance and the ways (N, N) between its nodes, in one unit; null without rules.
struct Rules {
    const float *all, *ways;
    int nodes;

    // The rules of one instance of a batch.
    static Rules of(const float* rules, const float* ways, int instance, int nodes) {
        const size_t first = (size_t)instance * nodes;
        return {rules ? rules + first * RULES : nullptr, rules ? ways + first * nodes : nullptr, nodes};
    }

    Clock begun() const { return {0, 0, 0, all ? at(0, CLOSES) : 0}; }

    Clock after(const Clock& clock, int node, int next) const {
        const float away = ways[(size_t)node * nodes + next], arrival = clock.free + away;
        const float begins = std::max(arrival, at(next, OPENS)), waited = clock.waited + begins - arrival;
        const float movable = std::min(clock.movable, waited + at(next, CLOSES) - begins);
        return {begins + at(next, SERVICE), clock.length + away, waited, movable};
    }

    float at(int node, Rule rule) const { return all[node * RULES + rule]; }

    // Time from the start of service at a node until it closes.
    float left(const Clock& after, int node) const { return at(node, CLOSES) - (after.free - at(node, SERVICE)); }

    // Whether a route with this clock at a customer served it in time, and can still end within its limits.
    bool allow(const Clock& after, int node) const {
        const float home = ways[(size_t)node * nodes] * (1 - at(node, OPENED)), end = after.free + home;
        return after.free - at(node, SERVICE) <= at(node, CLOSES) - MARGIN && end <= at(0, CLOSES) - MARGIN &&
               after.length + home <= at(node, LONGEST) - MARGIN &&
               end - std::min(after.waited, after.movable) <= at(node, LIMIT) - MARGIN;
    }
};

}  // namespace
