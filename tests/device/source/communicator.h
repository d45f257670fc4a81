// A stand-in for NCCL: gloo between the devices' memories, in stream order, with NCCL's rules.
#pragma once
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace rig {

// The members meet in `store`; `gloo` is their group on the host.
c10::intrusive_ptr<c10d::Backend> communicator(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                               const c10::intrusive_ptr<c10d::Backend>& gloo);

}  // namespace rig
