// What the native parts of a routing policy share: work spread over threads.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

// Calls work(i) for i in [0, count), by at most `threads` threads of which this is one.
template <class Work> void spread(int threads, int count, Work work) {
    std::atomic<int> next{0};
    auto run = [&] { for (int i; (i = next++) < count;) work(i); };
    std::vector<std::thread> others;
    for (int t = 1; t < std::min(threads, count); t++) others.emplace_back(run);
    run();
    for (auto& thread : others) thread.join();
}
