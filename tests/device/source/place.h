// Which device a thread has selected, and what it may touch.
#pragma once
#include <c10/core/Device.h>

namespace rig {

constexpr auto kRig = c10::DeviceType::PrivateUse1;

int device_count();
int current_device();
int select_device(int device);               // returns the one before
void select_unchecked(int device) noexcept;

// Refuses what needs something on a device that is forbidden to this process, or comes after a fork.
void touch(int device, const char* what);
// Refuses, too, work on a device that the thread did not select.
void touch_for_work(int device, const char* what);

}  // namespace rig
