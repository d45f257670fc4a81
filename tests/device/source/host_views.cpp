#include "host_views.h"

#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/from_blob.h>

#include "memory.h"
#include "place.h"

namespace rig {

bool is_ours(const at::Tensor& tensor) { return tensor.defined() && tensor.device().type() == kRig; }

at::Tensor host_view(const at::Tensor& ours) {
  auto options = ours.options().device(c10::kCPU).requires_grad(false);
  const void* block = ours.storage().data();
  if (!block || !ours.numel()) return at::detail::empty_strided_cpu(ours.sizes(), ours.strides(), options);
  char* data = opened(ours.device().index(), block) + ours.storage_offset() * int64_t(ours.element_size());
  at::Tensor view = at::from_blob(data, ours.sizes(), ours.strides(), options);
  view._set_conj(ours.is_conj());
  view._set_neg(ours.is_neg());
  return view;
}

at::Tensor empty_on(int device, c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::ScalarType type) {
  struct Selected {  // the allocator asks the thread
    int before;
    explicit Selected(int device) : before(select_device(device)) {}
    ~Selected() { select_unchecked(before); }
  };
  c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);
  if (device == current_device()) return at::detail::empty_strided_generic(sizes, strides, device_allocator(), keys, type);
  Selected selected(device);
  return at::detail::empty_strided_generic(sizes, strides, device_allocator(), keys, type);
}

at::Tensor alias_of(const at::Tensor& tensor, c10::IntArrayRef sizes, c10::IntArrayRef strides, int64_t offset) {
  return at::native::as_strided_tensorimpl(tensor, sizes, strides, offset);
}

void resize(const at::Tensor& ours, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  int64_t elements = c10::multiply_integers(sizes) ? 1 : 0;
  for (size_t i = 0; elements && i < sizes.size(); ++i) elements += (sizes[i] - 1) * strides[i];
  size_t bytes = elements ? size_t(elements + ours.storage_offset()) * ours.element_size() : 0;
  if (bytes > ours.storage().nbytes()) at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(ours.storage(), bytes);
  ours.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
}

}  // namespace rig
