// Automatic mixed precision, with torch's lists for accelerators.
#include <ATen/autocast_mode.h>
#include <torch/library.h>

namespace rig {

using namespace at::autocast;

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, library) { library.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define SINGLE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define SINGLE_RESULT(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define WIDEST(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_LOWER_PRECISION_FP(LOWER)
  AT_FORALL_FP32(SINGLE)
  AT_FORALL_FP32_SET_OPT_DTYPE(SINGLE_RESULT)
  AT_FORALL_PROMOTE(WIDEST)
#undef LOWER
#undef SINGLE
#undef SINGLE_RESULT
#undef WIDEST
}

}  // namespace rig
