// Two routes between which SWAP* exchanges customers (Vidal 2022): their distances, and where each customer fits best.
#pragma once
#include "common.h"

#include <cmath>

struct Inserts {  // the three cheapest places for a customer: behind which place of the other route, at what cost
    int behind[3] = {-1, -1, -1};
    double cost[3] = {INFINITY, INFINITY, INFINITY};
};

// A route; its depot is at place 0 and again at the last.
struct Side {
    std::vector<int> nodes;
    std::vector<double> ahead, bridge, cut;  // of each place: distance to the next, between its neighbours; change of
                                             // length without its customer
    std::vector<double> away;                // from each place to each of the other route, row by row
    std::vector<Inserts> inserts;

    // Computes distances to the other route, and each customer's cheapest places there.
    template <class Distance> void measure(const Side& other, Distance distance) {
        const size_t width = other.nodes.size();
        away.resize(nodes.size() * width);
        inserts.assign(nodes.size(), {});
        for (size_t i = 0; i < nodes.size(); i++) {
            double* const row = away.data() + i * width;
            for (size_t j = 0; j < width; j++) row[j] = distance(nodes[i], other.nodes[j]);
            Inserts& found = inserts[i];
            for (size_t j = 0; j + 1 < width; j++) {
                double cost = row[j] + row[j + 1] - other.ahead[j];
                if (cost >= found.cost[2]) continue;
                int behind = (int)j;
                for (int k = 0; k < 3; k++)
                    if (cost < found.cost[k]) std::swap(cost, found.cost[k]), std::swap(behind, found.behind[k]);
            }
        }
    }

    // Cost of the best place for customer i in the other route once its customer j has left; it goes in after `behind`.
    double insertion(int i, const Side& other, int j, int& behind) const {
        const double* const row = away.data() + (size_t)i * other.nodes.size();
        double best = row[j - 1] + row[j + 1] - other.bridge[j];
        behind = j - 1;
        const Inserts& found = inserts[i];
        for (int k = 0; k < 3 && found.behind[k] >= 0; k++)
            if (found.behind[k] != j && found.behind[k] + 1 != j) {
                if (found.cost[k] < best) best = found.cost[k], behind = found.behind[k];
                break;
            }
        return best;
    }
};
