// Shared by all native routing code: work spread over threads.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

// Calls work(i) for i in [0, count) on at most `threads` threads, this one included.
template <class Work> void spread(int threads, int count, Work work) {
    std::atomic<int> next{0};
    auto run = [&] { for (int i; (i = next++) < count;) work(i); };
    std::vector<std::thread> others;
    for (int t = 1; t < std::min(threads, count); t++) others.emplace_back(run);
    run();
    for (auto& thread : others) thread.join();
}
