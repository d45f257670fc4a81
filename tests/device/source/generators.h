// A device's random numbers: the host's generator under another name, with states of its own.
#pragma once
#include <ATen/core/Generator.h>

namespace rig {

const at::Generator& default_generator(int device);
at::Generator new_generator(int device);
// The host's generator inside: what the CPU's kernels draw from.
at::Generator inner_generator(const at::Generator& generator);

}  // namespace rig
