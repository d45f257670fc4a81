// The device's one kernel, for all operators: the CPU's, late.
#pragma once
#include "calls.h"

namespace rig {

void kernel(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace rig
