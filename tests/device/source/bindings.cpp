// What Python may ask.
#include <torch/csrc/Generator.h>
#include <torch/csrc/utils/pybind.h>

#include "communicator.h"
#include "counts.h"
#include "generators.h"
#include "memory.h"
#include "pinned.h"
#include "place.h"
#include "settings.h"
#include "streams.h"

namespace rig {
namespace {

namespace py = pybind11;

py::object generator_of(int device) {
  return py::reinterpret_steal<py::object>(THPGenerator_initDefaultGenerator(default_generator(device)));
}

void set_rules(bool strict, bool one_device, const std::vector<int>& forbidden) {
  settings().strict = strict;
  settings().one_device = one_device;
  settings().forbidden = 0;
  for (int device : forbidden) settings().forbidden |= uint64_t(1) << device;
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  using release = py::call_guard<py::gil_scoped_release>;
  module.def("device_count", &device_count);
  module.def("current_device", &current_device);
  module.def("select_device", &select_device);
  module.def("generator", &generator_of);
  module.def("schedule", &set_schedule);
  module.def("rules", &set_rules);
  module.def("counts", &taken_counts);
  module.def("memory", &memory_figures);
  module.def("total_bytes", [] { return settings().bytes; });
  module.def("reset_peak", &reset_peak);
  module.def("empty_cache", &empty_cache, release());
  module.def("pinned_bytes", &pinned_bytes);
  module.def("synchronize", &synchronize, release());
  module.def("end_all_streams", &end_all_streams, release());
  module.def("communicator", &communicator, release());
}

}  // namespace rig
