#include "counts.h"

#include <mutex>

namespace rig {
namespace {
std::mutex counts_mutex;
std::map<std::string, int64_t> counts;
}  // namespace

void count(const std::string& what, int64_t times) {
  std::lock_guard<std::mutex> guard(counts_mutex);
  counts[what] += times;
}

void count_sync(const std::string& reason) {
  std::lock_guard<std::mutex> guard(counts_mutex);
  ++counts["syncs"];
  ++counts["sync: " + reason];
}

std::map<std::string, int64_t> taken_counts(bool reset) {
  std::lock_guard<std::mutex> guard(counts_mutex);
  auto taken = counts;
  if (reset) counts.clear();
  return taken;
}

}  // namespace rig
