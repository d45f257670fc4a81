#include "settings.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <random>
#include <sstream>

namespace rig {
namespace {

constexpr double kLateSeconds = 0.3;
constexpr int64_t kRandomMicroseconds = 3000;

struct Schedule {
  bool main_late = false, side_late = false, random = false;
  std::chrono::microseconds late{0};
  std::mt19937_64 source;
};

std::mutex settings_mutex;
Settings* known = nullptr;
Schedule schedule;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

void read_forbidden(Settings& read) {
  std::istringstream list(variable("RIG_FORBID"));
  for (std::string word; std::getline(list, word, ',');) {
    if (word == "others") read.one_device = true;
    else read.forbidden |= uint64_t(1) << std::stoi(word);
  }
}

void choose(const std::string& told) {  // under the mutex
  auto colon = std::min(told.find(':'), told.size());
  std::string name = told.substr(0, colon), number = told.substr(std::min(colon + 1, told.size()));
  Schedule chosen;
  chosen.main_late = name == "main-late" || name == "both-late";
  chosen.side_late = name == "side-late" || name == "both-late";
  chosen.late = std::chrono::microseconds(int64_t(1e6 * (number.empty() ? kLateSeconds : std::stod(number))));
  chosen.random = name == "random" && !number.empty();
  if (chosen.random) chosen.source.seed(std::stoull(number));
  TORCH_CHECK(chosen.main_late || chosen.side_late || chosen.random || name == "prompt", "rig: no schedule is called '", told,
              "'; there are prompt, main-late[:SECONDS], side-late[:SECONDS], both-late[:SECONDS] and random:SEED");
  schedule = chosen;
}

}  // namespace

Settings& settings() {
  std::lock_guard<std::mutex> guard(settings_mutex);
  if (known) return *known;
  auto* read = new Settings;
  if (auto devices = variable("RIG_DEVICES"); !devices.empty()) read->devices = std::stoi(devices);
  if (auto megabytes = variable("RIG_MEGABYTES"); !megabytes.empty()) read->bytes = int64_t(std::stod(megabytes) * (1 << 20));
  if (variable("RIG_STRICT") == "0") read->strict = false;
  if (variable("RIG_ORDER") == "group") read->one_order = false;
  if (variable("RIG_GENERATOR") == "host") read->randomness = Randomness::kHostGenerator;
  read_forbidden(*read);
  if (auto name = variable("RIG_SCHEDULE"); !name.empty()) choose(name);
  return *(known = read);
}

void forget_settings() {
  std::lock_guard<std::mutex> guard(settings_mutex);
  known = nullptr;
}

void set_schedule(const std::string& name) {
  settings();
  std::lock_guard<std::mutex> guard(settings_mutex);
  choose(name);
}

std::chrono::microseconds next_delay(bool main_stream) {
  std::lock_guard<std::mutex> guard(settings_mutex);
  if (schedule.random) return std::chrono::microseconds(schedule.source() % kRandomMicroseconds);
  return (main_stream ? schedule.main_late : schedule.side_late) ? schedule.late : std::chrono::microseconds(0);
}

}  // namespace rig
