// Bytes between the host and the devices, and from device to device.
#include <ATen/ops/_local_scalar_dense.h>
#include <torch/library.h>

#include "counts.h"
#include "host_views.h"
#include "memory.h"
#include "pinned.h"
#include "place.h"
#include "streams.h"

namespace rig {
namespace {

using at::Tensor;

std::function<void()> copying(const Tensor& from, const Tensor& to) {
  return [from, to] {
    KernelScope scope;
    to.copy_(from);
  };
}

void count_bytes(const char* direction, const Tensor& tensor) {
  count(direction);
  count(std::string(direction) + " bytes", int64_t(tensor.nbytes()));
}

void copy_on_device(const Tensor& from, const Tensor& to) {
  int device = to.device().index();
  touch_for_work(device, "a copy");
  count("kernels");
  count("queued kernels");
  current_stream(device).push(copying(host_view(from), host_view(to)));
}

// After all that both devices' current streams have to do, and before what they get later.
void copy_between_devices(const Tensor& from, const Tensor& to) {
  int origin = from.device().index(), target = to.device().index();
  touch(origin, "a copy");
  touch(target, "a copy");
  count_bytes("d2d", to);
  Stream &sending = current_stream(origin), &receiving = current_stream(target);
  sending.push_wait(receiving, receiving.last());
  Ticket sent = sending.push(copying(host_view(from), host_view(to)));
  receiving.push_wait(sending, sent);
}

// Bytes of pinned memory are read or written when the copy runs. Of other memory, what goes to the device is staged at
// once, and the host waits for what comes from it, as drivers do.
void copy_over_the_bus(const Tensor& from, const Tensor& to, bool non_blocking) {
  const bool down = is_ours(from);
  const Tensor& host = down ? to : from;
  const int device = (down ? from : to).device().index();
  const char* direction = down ? "d2h" : "h2d";
  touch_for_work(device, "a copy");
  count_bytes(direction, host);
  const bool pinned = is_pinned(host.storage().data());
  if (!pinned) count("pageable copies");
  Tensor held = host.detach();  // without the Python object, so that its last holder may be the stream's thread
  if (!down && !pinned && non_blocking) held = host.clone();
  Stream& stream = current_stream(device);
  Ticket done = stream.push(down ? copying(host_view(from), held) : copying(held, host_view(to)));
  if (non_blocking && (pinned || !down)) return;
  count_sync(std::string(direction) + " copy");
  stream.wait(done);
}

Tensor copy_from(const Tensor& from, const Tensor& to, bool non_blocking) {
  KernelScope scope;
  if (!to.numel()) return to;
  if (!is_ours(from) || !is_ours(to)) copy_over_the_bus(from, to, non_blocking);
  else if (from.device() == to.device()) copy_on_device(from, to);
  else copy_between_devices(from, to);
  return to;
}

// One kernel where all tensors are alike and on one device, as GPUs have it.
void copy_each(at::TensorList to, at::TensorList from, bool non_blocking) {
  bool alike = !to.empty();
  for (size_t i = 0; i < to.size(); ++i)
    alike = alike && is_ours(to[i]) && is_ours(from[i]) && to[i].device() == to[0].device() && from[i].device() == to[0].device() &&
            to[i].scalar_type() == to[0].scalar_type() && from[i].scalar_type() == to[0].scalar_type() && to[i].sizes() == from[i].sizes();
  if (!alike) {
    for (size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i], non_blocking);
    return;
  }
  KernelScope scope;
  touch_for_work(to[0].device().index(), "a copy");
  count("kernels");
  count("queued kernels");
  std::vector<std::function<void()>> copies;
  for (size_t i = 0; i < to.size(); ++i) copies.push_back(copying(host_view(from[i]), host_view(to[i])));
  current_stream(to[0].device().index()).push([copies = std::move(copies)] {
    for (auto& copy : copies) copy();
  });
}

at::Scalar item(const Tensor& self) {
  const int device = self.device().index();
  touch_for_work(device, "item");
  count_sync("item");
  count_bytes("d2h", self);
  current_stream(device).wait_for_all();
  return at::_local_scalar_dense(host_view(self));
}

void record_stream(Tensor& self, c10::Stream user) {
  count("record_streams");
  record_use(self.storage().data(), stream(user));
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_copy_from", copy_from);
  library.impl("_foreach_copy_", copy_each);
  library.impl("_local_scalar_dense", item);
  library.impl("record_stream", record_stream);
}

}  // namespace rig
