// What the devices were asked to do, for tests that hold programs to numbers.
#pragma once
#include <cstdint>
#include <map>
#include <string>

namespace rig {

void count(const std::string& what, int64_t times = 1);
void count_sync(const std::string& reason);  // the host waited for a device
std::map<std::string, int64_t> taken_counts(bool reset);

}  // namespace rig
