#include "place.h"

#include <c10/util/Exception.h>
#include <pthread.h>

#include <atomic>

#include "counts.h"
#include "settings.h"
#include "streams.h"

namespace rig {
namespace {

thread_local int current = 0;
std::atomic<bool> in_use{false}, lost_by_fork{false};
std::atomic<int> own{-1};  // the first that was touched

// A child of a process that used a device has no streams; one of a process that did not begins with its own settings.
const bool watched = [] {
  pthread_atfork(nullptr, nullptr, [] {
    if (in_use) lost_by_fork = true;
    else forget_settings();
  });
  return true;
}();

}  // namespace

int device_count() { return settings().devices; }
int current_device() { return current; }

int select_device(int device) {
  TORCH_CHECK(device >= 0 && device < device_count(), "rig: there is no device ", device, "; there are ", device_count());
  int before = current;
  select_unchecked(device);
  return before;
}

void select_unchecked(int device) noexcept {
  current = device;
}

void touch(int device, const char* what) {
  TORCH_CHECK(!lost_by_fork, "rig: ", what, " in a forked process: its parent used a device before the fork; start the process anew");
  in_use = true;
  const auto& rules = settings();
  TORCH_CHECK(!(rules.forbidden >> device & 1), "rig: ", what, " touches device ", device, ", which is forbidden to this process");
  int first = -1;
  if (!own.compare_exchange_strong(first, device) && rules.one_device)
    TORCH_CHECK(first == device, "rig: ", what, " touches device ", device, ", but this process has touched device ", first,
                " and may have no other");
}

void touch_for_work(int device, const char* what) {
  touch(device, what);
  check_unbroken(device);
  if (current == device) return;
  count("work on another device");
  TORCH_CHECK(!settings().strict, "rig: ", what, " works on device ", device, " in a thread whose device is ", current);
}

}  // namespace rig
