// What a process is told of its devices: by environment variables, read when the first device is used, and from Python.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>

namespace rig {

enum class Randomness { kOwnGenerators, kHostGenerator };

struct Settings {
  int devices = 4;                                        // RIG_DEVICES
  int64_t bytes = int64_t(8) << 30;                       // RIG_MEGABYTES: of each device
  bool strict = true;                                     // RIG_STRICT: refuse work on a device that the thread did not select
  bool one_device = false;                                // RIG_FORBID=others: the first device touched is the only one
  uint64_t forbidden = 0;                                 // RIG_FORBID=0,2: a bit a device
  bool one_order = true;                                  // RIG_ORDER=group: communicators of a device do not wait for each other
  Randomness randomness = Randomness::kOwnGenerators;     // RIG_GENERATOR=host: draws are the host's
};

// The settings of this process. Its first caller reads the environment.
Settings& settings();
void forget_settings();  // they are read anew

// How late streams run: RIG_SCHEDULE=prompt, main-late, side-late, both-late, random:SEED.
void set_schedule(const std::string& name);
std::chrono::microseconds next_delay(bool main_stream);

}  // namespace rig
