#include "streams.h"

#include <c10/util/Exception.h>

#include <array>
#include <memory>
#include <thread>
#include <unordered_map>

#include "counts.h"
#include "place.h"
#include "settings.h"

namespace rig {

namespace {

std::mutex broken_mutex;
std::unordered_map<int, std::string> broken;  // by device: what a kernel there has failed with

constexpr int64_t kSideStreams = 32;  // as many as CUDA has; the next one is the first again
constexpr int kPolls = 8;  // a host that asks so often whether a stream has come somewhere waits for it
constexpr int64_t kCommunication = kSideStreams + 1;
constexpr int32_t kAssertion = 710;  // as CUDA numbers it

}  // namespace

void check_unbroken(int device) {
  std::lock_guard<std::mutex> guard(broken_mutex);
  auto found = broken.find(device);
  if (found == broken.end()) return;
  throw c10::AcceleratorError({__func__, __FILE__, __LINE__}, kAssertion,
                              "rig: earlier work on device " + std::to_string(device) + " failed: " + found->second);
}

Ticket Stream::push(std::function<void()> work) { return enqueue(std::move(work), next_delay(id == 0), id != kCommunication); }

void Stream::push_wait(Stream& other, Ticket ticket) {
  if (&other == this) return;
  enqueue([&other, ticket] {
    std::unique_lock<std::mutex> lock(other.mutex_);
    other.await(ticket, lock);
    if (!other.failure_.empty()) throw std::runtime_error(other.failure_);
  }, std::chrono::microseconds(0), false);
}

Ticket Stream::enqueue(std::function<void()> work, std::chrono::microseconds delay, bool kernel) {
  std::lock_guard<std::mutex> guard(mutex_);
  if (ended_) return ++last_;
  if (!serving_) {
    serving_ = true;
    std::thread([this] { serve(); }).detach();
  }
  waiting_.push_back({std::move(work), std::chrono::steady_clock::now() + delay, ++last_, kernel});
  changed_.notify_one();
  return last_;
}

void Stream::serve() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return !waiting_.empty(); });
    const auto& next = waiting_.front();
    if (next.ticket > wanted_ && std::chrono::steady_clock::now() < next.due) {
      auto due = next.due;  // the queue may be another when the wait is over
      changed_.wait_until(lock, due);
      continue;
    }
    Work work = std::move(waiting_.front());
    waiting_.pop_front();
    run(std::move(work), lock);
  }
}

void Stream::run(Work work, std::unique_lock<std::mutex>& lock) {
  running_ = true;
  lock.unlock();
  std::string failure;
  try {
    work.run();
  } catch (const std::exception& error) {
    failure = error.what();
    std::lock_guard<std::mutex> guard(broken_mutex);
    if (work.kernel) broken.emplace(device, failure);
  }
  work.run = nullptr;  // what it held is given back before anybody hears that it is done
  lock.lock();
  running_ = false;
  if (failure_.empty()) failure_ = failure;
  done_ = work.ticket;
  done_something_.notify_all();
}

void Stream::await(Ticket ticket, std::unique_lock<std::mutex>& lock) {
  if (wanted_ < ticket) {
    wanted_ = ticket;
    changed_.notify_one();
  }
  done_something_.wait(lock, [&] { return done_ >= ticket || ended_; });
}

void Stream::wait(Ticket ticket) {
  std::unique_lock<std::mutex> lock(mutex_);
  await(ticket, lock);
  std::string failure;
  failure.swap(failure_);
  lock.unlock();
  check_unbroken(device);
  TORCH_CHECK(failure.empty(), "rig: earlier work on device ", device, " failed: ", failure);
}

Ticket Stream::last() {
  std::lock_guard<std::mutex> guard(mutex_);
  return last_;
}

bool Stream::reached(Ticket ticket) {
  std::lock_guard<std::mutex> guard(mutex_);
  if (done_ >= ticket) return true;
  polls_ = polled_ == ticket ? polls_ + 1 : 1;
  polled_ = ticket;
  if (polls_ >= kPolls && wanted_ < ticket) {
    wanted_ = ticket;
    changed_.notify_one();
  }
  return false;
}

void Stream::end() {
  std::unique_lock<std::mutex> lock(mutex_);
  ended_ = true;
  waiting_.clear();
  done_something_.notify_all();
  done_something_.wait_for(lock, std::chrono::seconds(1), [&] { return !running_; });
}

namespace {

struct Streams {  // never destroyed: their threads are detached
  std::vector<std::unique_ptr<Stream>> all;
  std::atomic<uint64_t> taken{0};
  explicit Streams(int device) {
    for (int64_t id = 0; id <= kCommunication; ++id) all.push_back(std::make_unique<Stream>(device, id));
  }
};

std::vector<std::unique_ptr<Streams>>& devices() {
  static auto* made = [] {
    auto* devices = new std::vector<std::unique_ptr<Streams>>;
    for (int device = 0; device < device_count(); ++device) devices->push_back(std::make_unique<Streams>(device));
    return devices;
  }();
  return *made;
}

std::atomic<bool> any_stream{false};
thread_local std::unordered_map<int, int64_t> thread_streams;

}  // namespace

Stream& stream(int device, int64_t id) {
  any_stream = true;
  return *devices().at(device)->all.at(id);
}

Stream& stream(const c10::Stream& wanted) { return stream(wanted.device_index(), wanted.id()); }

Stream& current_stream(int device) {
  auto found = thread_streams.find(device);
  return stream(device, found == thread_streams.end() ? 0 : found->second);
}

Stream& next_side_stream(int device) {
  stream(device, 0);
  return stream(device, 1 + int64_t(devices().at(device)->taken++ % kSideStreams));
}

Stream& communication_stream(int device) { return stream(device, kCommunication); }

int64_t select_stream(Stream& chosen) {
  int64_t before = current_stream(chosen.device).id;
  thread_streams[chosen.device] = chosen.id;
  return before;
}

c10::Stream as_torch(const Stream& stream) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kRig, c10::DeviceIndex(stream.device)), stream.id);
}

void synchronize(int device) {
  touch(device, "synchronize");
  count_sync("device");
  for (int64_t id = 0; id <= kCommunication; ++id) stream(device, id).wait_for_all();
}

void end_all_streams() {
  if (!any_stream) return;
  for (auto& device : devices())
    for (auto& each : device->all) each->end();
}

}  // namespace rig
