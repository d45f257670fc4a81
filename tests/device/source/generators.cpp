#include "generators.h"

#include <ATen/CPUGeneratorImpl.h>

#include "place.h"
#include "settings.h"

namespace rig {
namespace {

class Generator final : public c10::GeneratorImpl {
 public:
  Generator(int device, at::Generator inner)
      : c10::GeneratorImpl(c10::Device(kRig, c10::DeviceIndex(device)), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        inner(std::move(inner)) {}
  static c10::DeviceType device_type() { return kRig; }
  const at::Generator inner;

  void set_current_seed(uint64_t seed) override { impl()->set_current_seed(seed); }
  uint64_t current_seed() const override { return impl()->current_seed(); }
  uint64_t seed() override { return impl()->seed(); }
  void set_offset(uint64_t) override {}
  uint64_t get_offset() const override { return 0; }
  void set_state(const c10::TensorImpl& state) override { impl()->set_state(state); }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override { return impl()->get_state(); }

 private:
  c10::GeneratorImpl* impl() const { return inner.unsafeGetGeneratorImpl(); }
  Generator* clone_impl() const override { return new Generator(device().index(), inner.clone()); }
};

}  // namespace

const at::Generator& default_generator(int device) {
  static auto* made = [] {
    bool host = settings().randomness == Randomness::kHostGenerator;
    auto* generators = new std::vector<at::Generator>;
    for (int device = 0; device < device_count(); ++device)
      generators->push_back(
          at::make_generator<Generator>(device, host ? at::detail::getDefaultCPUGenerator() : at::detail::createCPUGenerator()));
    return generators;
  }();
  return made->at(device < 0 ? current_device() : device);
}

at::Generator new_generator(int device) {
  return at::make_generator<Generator>(device < 0 ? current_device() : device, at::detail::createCPUGenerator());
}

at::Generator inner_generator(const at::Generator& generator) {
  if (generator.device().type() != kRig) return generator;
  return static_cast<const Generator*>(generator.unsafeGetGeneratorImpl())->inner;
}

}  // namespace rig
