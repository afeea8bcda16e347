// Slack induction by string removals (Christiaens and Vanden Berghe 2020): a search that removes strings of neighbouring
// customers from neighbouring routes, inserts them greedily, and accepts the result by annealing.
//
// Nodes 1 to n are customers; node n + 1 + r is the depot of route r, a ring, as in local_search.h. A round costs the
// same whatever n is: its changes are logged, so that a rejected round is undone, and the best tours follow the accepted
// ones, by those changes alone.
#pragma once
#include "tours.h"

class Annealing {
  public:
    // Temperatures are in units of the mean distance between neighbours.
    Annealing(const Problem& problem, const Routes& routes, uint64_t seed)
        : p(problem), n(p.customers), count((int)std::min(routes.size() + FURTHER, (size_t)n)), random{seed},
          capacity((float)p.capacity), demand(p.demand, p.demand + n + 1), load(count + 1), size(count), at(n + 1 + count) {
        load[count] = HUGE_VALF;
        for (int r = 0; r < count; r++) {
            int u = n + 1 + r;
            at[u].route = r;
            if (r < (int)routes.size())
                for (int v : routes[r]) {
                    link(u, v, d(u, v));
                    at[v].route = r, load[r] += demand[v], size[r]++;
                    u = v;
                }
            link(u, n + 1 + r, d(u, 0));
            used += size[r] > 0;
            if (!size[r]) vacancies.push_back(r);
        }
        now = length(p, routes);
        overlook();
    }

    // Anneals for `rounds`, or for `seconds` of this thread's CPU time if these are above 0.
    void run(int64_t rounds, double seconds, double hot, double cold) {
        const double begun = thread_seconds();
        double kept = now, least = now, temperature = 0;
        for (const Node& node : at) successors.push_back(node.next);
        for (int64_t round = 0;; round++) {
            if (round % CLOCK == 0) {
                const double done = seconds > 0 ? (thread_seconds() - begun) / seconds : (double)round / (double)rounds;
                if (done >= 1) break;
                temperature = hot * std::pow(cold / hot, done);
            }
            ruin(1 + random.below(n));
            if (recreate(kept - temperature * std::log(1 - random.uniform()))) {
                kept = now;
                note();
                if (kept < least) follow(), least = kept;
            } else {
                take_back(kept);
            }
        }
    }

    Routes best() const {
        return routes([&](int u) { return successors[u]; });
    }
    Routes last() const {
        return routes([&](int u) { return at[u].next; });
    }

  private:
    static constexpr double REMOVED = 8;      // customers at a time, on average, where routes are long enough
    static constexpr double LONGEST = 8;      // most customers removed in a string
    static constexpr double SPLIT = 0.5;      // probability that a string keeps customers in its middle
    static constexpr double ENOUGH = 0.01;    // probability that it keeps no further one
    static constexpr double BLINK = 0.01;     // probability that a place for a customer is skipped
    static constexpr int NEAR = 10;           // neighbours beside which a customer may be inserted
    static constexpr size_t FURTHER = 10;     // routes beyond those at the beginning
    static constexpr int64_t CLOCK = 32;      // rounds between two looks at the clock

    struct Node { int next, prev, route; float ahead, back; };  // route is `count` while in none; distances to next and prev
    struct Moved { int customer, behind, route; float before, ahead; };  // the state before the move

    template <class Next> Routes routes(Next next) const {
        Routes found;
        for (int r = 0; r < count; r++) {
            if (next(n + 1 + r) > n) continue;
            found.emplace_back();
            for (int u = next(n + 1 + r); u <= n; u = next(u)) found.back().push_back(u);
        }
        return found;
    }
    int site(int u) const { return u > n ? 0 : u; }
    float d(int u, int v) const { return p(site(u), site(v)); }
    void link(int u, int v, float apart) { at[u].next = v, at[v].prev = u, at[u].ahead = at[v].back = apart; }
    void weigh(int r, float more, int customers) {
        load[r] += more;
        used -= size[r] > 0;
        size[r] += customers;
        used += size[r] > 0;
        if (!size[r]) vacancies.push_back(r);
    }

    void take_back(double kept) {
        for (auto each = placed.rbegin(); each != placed.rend(); ++each) {
            link(each->behind, at[each->customer].next, each->before);
            weigh(each->route, -demand[each->customer], -1);
        }
        for (auto each = removed.rbegin(); each != removed.rend(); ++each) {
            const int c = each->customer;
            link(c, at[each->behind].next, each->ahead), link(each->behind, c, each->before);
            at[c].route = each->route;
            weigh(each->route, demand[c], 1);
        }
        now = kept;
    }

    // Logs the nodes whose successors changed in an accepted round.
    void note() {
        for (const auto* moved : {&removed, &placed})
            for (const Moved& each : *moved) since.push_back(each.behind), since.push_back(each.customer);
        if (since.size() > at.size()) since.clear(), stale = true;
    }

    void follow() {
        if (stale) for (size_t u = 0; u < at.size(); u++) successors[u] = at[u].next;
        else for (int u : since) successors[u] = at[u].next;
        since.clear(), stale = false;
    }

    void take_out(int c) {
        const Node node = at[c];
        const float apart = d(node.prev, node.next), before = node.back;
        removed.push_back({c, node.prev, node.route, before, node.ahead});
        now += (double)apart - before - node.ahead;
        link(node.prev, node.next, apart);
        weigh(node.route, -demand[c], -1);
        at[c].route = count;
    }

    // Removes strings of the routes of `seed` and of customers near it.
    void ruin(int seed) {
        removed.clear(), placed.clear(), ruined.clear();
        const double longest = std::min(LONGEST, (double)n / used);
        const int strings = 1 + random.below((int)std::max(1., 4 * REMOVED / (1 + longest) - 1));
        remove_string(seed, longest);
        for (const int* c = p.begin(seed); c < p.end(seed) && (int)ruined.size() < strings; c++)
            if (at[*c].route < count && std::find(ruined.begin(), ruined.end(), at[*c].route) == ruined.end())
                remove_string(*c, longest);
    }

    void remove_string(int c, double longest) {
        const int r = at[c].route, customers = size[r];
        const int taken = std::min(customers, 1 + (int)(random.uniform() * std::min((double)customers, longest)));
        int spared = 0;
        if (taken > 1 && taken < customers && random.uniform() < SPLIT)
            for (spared = 1; taken + spared < customers && random.uniform() > ENOUGH;) spared++;
        // The string begins up to `span` - 1 customers before c, and within the route.
        const int span = taken + spared;
        int before = 0, behind = 0, first = c;
        for (int u = at[c].prev; u <= n && before < span - 1; u = at[u].prev) before++;
        for (int u = at[c].next; u <= n && behind < span - 1; u = at[u].next) behind++;
        const int least = std::max(0, span - 1 - behind);
        for (int back = least + random.below(before - least + 1); back > 0; back--) first = at[first].prev;
        const int gap = spared ? random.below(taken + 1) : 0;
        for (int i = 0, u = first; i < span; i++) {
            const int after = at[u].next;
            if (i < gap || i >= gap + spared) take_out(u);
            u = after;
        }
        ruined.push_back(r);
    }

    // Inserts the removed customers, in an order of one of four kinds at random; returns whether all fit with a length
    // below `limit`. By the triangle inequality the length only grows.
    bool recreate(double limit) {
        const double kind = 11 * random.uniform();
        order.clear();
        for (const Moved& each : removed) {
            const int c = each.customer;
            order.emplace_back(kind < 4 ? (float)random.uniform() : kind < 8 ? -demand[c] : kind < 10 ? -d(0, c) : d(0, c), c);
        }
        std::sort(order.begin(), order.end());
        for (const auto& [_, c] : order)
            if (!insert(c) || now >= limit) return false;
        return true;
    }

    // Inserts c where that costs least; now and then the best place is skipped.
    bool insert(int c) {
        float least;
        int behind = cheapest(c, -1, least);
        if (--overlooked == 0) overlook(), behind = cheapest(c, behind, least);
        while (!vacancies.empty() && size[vacancies.back()]) vacancies.pop_back();
        if (!vacancies.empty() && 2 * d(0, c) < least) least = 2 * d(0, c), behind = n + 1 + vacancies.back();
        if (behind < 0) return false;
        now += least;
        const int r = at[behind].route, after = at[behind].next;
        if (!size[r]) vacancies.pop_back();
        placed.push_back({c, behind, r, at[behind].ahead, 0});
        link(behind, c, d(behind, c)), link(c, after, d(c, after));
        at[c].route = r;
        weigh(r, demand[c], 1);
        return true;
    }

    // Returns the node, other than `not_there`, after which c costs least, at a neighbour or at an end of a ruined route.
    int cheapest(int c, int not_there, float& least) {
        const float room = capacity - demand[c], home = d(0, c);
        const int* const beside = p.begin(c);
        const int tried = std::min(NEAR, p.near);
        int open[NEAR], some = 0;  // neighbours in whose routes there is room
        for (int i = 0; i < tried; i++) {
            open[some] = beside[i];
            some += load[at[beside[i]].route] <= room;
        }
        // Costs with the place in the lower half: comparing them needs no branch that is hard to predict.
        const int64_t none = place(HUGE_VALF, 0);
        int64_t best = none;
        for (int i = 0; i < some; i++) {
            const Node& node = at[open[i]];
            const float away = d(c, open[i]);
            const int64_t before = place(away + d(c, node.prev) - node.back, node.prev);
            const int64_t after = place(away + d(c, node.next) - node.ahead, open[i]);
            best = std::min(best, node.prev == not_there ? none : before);
            best = std::min(best, open[i] == not_there ? none : after);
        }
        auto at_ends = [&](int r) {
            if (!size[r] || load[r] > room) return;
            const int last = at[n + 1 + r].prev, u = n + 1 + r;
            if (u != not_there) best = std::min(best, place(home + d(c, at[u].next) - at[u].ahead, u));
            if (last != not_there) best = std::min(best, place(home + d(c, last) - at[u].back, last));
        };
        for (int r : ruined) at_ends(r);
        if (best == none)  // no neighbour's route has room
            for (int r = 0; r < count; r++) at_ends(r);
        const int32_t cost = (int32_t)(best >> 32);
        std::memcpy(&least, &cost, sizeof least);
        return best == none ? -1 : (int)(uint32_t)best;
    }

    static int64_t place(float cost, int behind) {
        int32_t bits;
        std::memcpy(&bits, &cost, sizeof bits);
        return (int64_t)((uint64_t)(uint32_t)bits << 32 | (uint32_t)behind);
    }

    void overlook() { overlooked = 1 + (int64_t)(std::log(1 - random.uniform()) / std::log(1 - BLINK)); }

    const Problem& p;
    const int n, count;
    Random random;
    double now = 0;                      // length
    int used = 0;                        // routes
    const float capacity;
    std::vector<float> demand, load;     // of every customer and route
    std::vector<int> size, successors;   // customers of every route; every node's successor in the best tours
    std::vector<Node> at;
    std::vector<Moved> removed, placed;  // in this round
    std::vector<int> since;              // nodes whose successors changed since the best tours were kept
    bool stale = false;                  // too many changed: all are copied
    std::vector<int> ruined, vacancies;  // routes
    std::vector<std::pair<float, int>> order;
    int64_t overlooked = 0;  // customers until the next whose best place is skipped
};
