// What torch asks of the accelerator outside of any kernel.
#include <ATen/detail/PrivateUse1HooksInterface.h>

#include <cstring>

#include "generators.h"
#include "memory.h"
#include "pinned.h"
#include "place.h"

namespace rig {
namespace {

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return c10::DeviceIndex(device_count()); }
  c10::DeviceIndex getCurrentDevice() const override { return c10::DeviceIndex(current_device()); }
  void setCurrentDevice(c10::DeviceIndex device) const override { select_device(device); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override { return c10::DeviceIndex(select_device(device)); }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return device < 0 ? getCurrentDevice() : exchangeDevice(device);
  }
  bool isPinnedPtr(const void* address) const override { return is_pinned(address); }
  at::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }
  at::Device getDeviceFromPtr(void* address) const override { return {kRig, c10::DeviceIndex(owner(address))}; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override { return default_generator(device); }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override { return new_generator(device); }

  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    int device = storage.device().index();
    auto larger = allocate(bytes, device);
    if (size_t kept = std::min(bytes, storage.nbytes()))
      current_stream(device).push([to = opened(device, larger.get()), from = opened(device, storage.data()), kept] {
        std::memcpy(to, from, kept);
      });
    storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(larger));
    storage.unsafeGetStorageImpl()->set_nbytes(bytes);
  }
};

const bool hooked = [] {
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  at::setHostAllocator(kRig, pinned_allocator());
  return true;
}();

}  // namespace
}  // namespace rig
