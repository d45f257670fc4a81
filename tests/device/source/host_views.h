// Device tensors as the CPU's kernels see them.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <ATen/autocast_mode.h>

namespace rig {

// Below autograd and autocast, where kernels run.
struct KernelScope {
  at::AutoDispatchBelowADInplaceOrView below;
  c10::impl::ExcludeDispatchKeyGuard no_cast{c10::autocast_dispatch_keyset};
  at::NoGradGuard no_grad;
};

bool is_ours(const at::Tensor& tensor);
at::Tensor host_view(const at::Tensor& ours);  // a CPU tensor over the opened memory; it does not hold it
at::Tensor empty_on(int device, c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::ScalarType type);
at::Tensor alias_of(const at::Tensor& tensor, c10::IntArrayRef sizes, c10::IntArrayRef strides, int64_t offset);
void resize(const at::Tensor& ours, c10::IntArrayRef sizes, c10::IntArrayRef strides);

}  // namespace rig
