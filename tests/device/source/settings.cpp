#include "settings.h"

#include <c10/util/Exception.h>

#include <cstdlib>
#include <mutex>
#include <random>
#include <sstream>

namespace rig {
namespace {

constexpr std::chrono::microseconds kLate(300000);
constexpr int64_t kRandomMicroseconds = 3000;

struct Schedule {
  bool main_late = false, side_late = false, random = false;
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

void choose(const std::string& name) {  // under the mutex
  Schedule chosen;
  chosen.main_late = name == "main-late" || name == "both-late";
  chosen.side_late = name == "side-late" || name == "both-late";
  chosen.random = name.rfind("random:", 0) == 0;
  if (chosen.random) chosen.source.seed(std::stoull(name.substr(7)));
  TORCH_CHECK(chosen.main_late || chosen.side_late || chosen.random || name == "prompt", "rig: no schedule is called '", name,
              "'; there are prompt, main-late, side-late, both-late and random:SEED");
  schedule = chosen;
}

}  // namespace

Settings& settings() {
  std::lock_guard<std::mutex> guard(settings_mutex);
  if (known) return *known;
  auto* read = new Settings;
  if (auto devices = variable("RIG_DEVICES"); !devices.empty()) read->devices = std::stoi(devices);
  if (auto megabytes = variable("RIG_MEGABYTES"); !megabytes.empty()) read->bytes = std::stoll(megabytes) << 20;
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
  return (main_stream ? schedule.main_late : schedule.side_late) ? kLate : std::chrono::microseconds(0);
}

}  // namespace rig
