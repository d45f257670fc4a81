// Events, and what torch asks of a kind of device: its threads' devices and streams.
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>
#include <memory>

#include "counts.h"
#include "memory.h"
#include "place.h"
#include "streams.h"

namespace rig {
namespace {

using Clock = std::chrono::steady_clock;

struct Event {
  Stream* stream = nullptr;
  Ticket ticket = 0;
  std::shared_ptr<std::atomic<int64_t>> passed = std::make_shared<std::atomic<int64_t>>(0);  // nanoseconds
};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  Guard() = default;
  explicit Guard(c10::DeviceType) {}

  c10::DeviceType type() const override { return kRig; }
  c10::DeviceIndex deviceCount() const noexcept override { return c10::DeviceIndex(device_count()); }
  c10::Device getDevice() const override { return {kRig, c10::DeviceIndex(current_device())}; }
  c10::Device exchangeDevice(c10::Device device) const override {
    return {kRig, c10::DeviceIndex(select_device(device.index()))};
  }
  void setDevice(c10::Device device) const override {
    if (device.has_index()) select_device(device.index());
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index()) select_unchecked(device.index());
  }

  c10::Stream getStream(c10::Device device) const override { return as_torch(current_stream(index(device))); }
  c10::Stream getDefaultStream(c10::Device device) const override { return as_torch(stream(index(device), 0)); }
  c10::Stream getNewStream(c10::Device device, int) const override {
    touch(index(device), "a new stream");
    return as_torch(next_side_stream(index(device)));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override { return getNewStream(device, 0); }
  c10::Stream exchangeStream(c10::Stream chosen) const override {
    return as_torch(stream(chosen.device_index(), select_stream(stream(chosen))));
  }
  void* getStreamNativeHandle(const c10::Stream handle) const override { return &stream(handle); }
  bool queryStream(const c10::Stream& queried) const override {
    Stream& stream = rig::stream(queried);
    return stream.reached(stream.last());
  }
  void synchronizeStream(const c10::Stream& awaited) const override {
    count_sync("stream");
    stream(awaited).wait_for_all();
  }
  void synchronizeDevice(const c10::DeviceIndex device) const override { synchronize(device < 0 ? current_device() : device); }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex, const c10::EventFlag) const override {
    touch(stream.device_index(), "an event");
    auto* made = static_cast<Event*>(*event);
    if (!made) *event = made = new Event;
    made->passed = std::make_shared<std::atomic<int64_t>>(0);
    made->stream = &rig::stream(stream);
    made->ticket = made->stream->push([passed = made->passed] { *passed = Clock::now().time_since_epoch().count(); });
  }
  void block(void* event, const c10::Stream& waiting) const override {
    auto* awaited = static_cast<Event*>(event);
    if (!awaited || !awaited->stream) return;
    count("stream waits");
    stream(waiting).push_wait(*awaited->stream, awaited->ticket);
  }
  bool queryEvent(void* event) const override {  // in the context of the device that the thread selected
    touch(current_device(), "a look at an event");
    auto* queried = static_cast<Event*>(event);
    return !queried || !queried->stream || queried->stream->reached(queried->ticket);
  }
  void synchronizeEvent(void* event) const override {  // in the context of the device that the thread selected
    touch(current_device(), "a wait for an event");
    count_sync("event");
    auto* awaited = static_cast<Event*>(event);
    if (awaited && awaited->stream) awaited->stream->wait(awaited->ticket);
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
  double elapsedTime(void* first, void* second, const c10::DeviceIndex) const override {
    auto passed = [](void* event) { return event ? static_cast<Event*>(event)->passed->load() : 0; };
    int64_t begin = passed(first), end = passed(second);
    TORCH_CHECK(begin && end, "rig: elapsed_time of events that have not both been recorded and passed");
    return double(end - begin) / 1e6;
  }
  void recordDataPtrOnStream(const c10::DataPtr& block, const c10::Stream& user) const override {
    record_use(block.get(), stream(user));
  }

 private:
  static int index(c10::Device device) { return device.has_index() ? device.index() : current_device(); }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

}  // namespace
}  // namespace rig
