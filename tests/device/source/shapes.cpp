// Operators that make tensors or give them other shapes: they need no kernel.
#include <ATen/EmptyTensor.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include "host_views.h"
#include "memory.h"
#include "place.h"

namespace rig {
namespace {

using at::Tensor;
using Type = std::optional<c10::ScalarType>;
using Layout = std::optional<c10::Layout>;
using Place = std::optional<c10::Device>;
using Sizes = c10::IntArrayRef;

int index_of(const Place& place) { return place && place->has_index() ? place->index() : current_device(); }

Tensor empty_strided(Sizes sizes, Sizes strides, Type type, Layout, Place place, std::optional<bool>) {
  return empty_on(index_of(place), sizes, strides, c10::dtype_or_default(type));
}

Tensor empty(Sizes sizes, Type type, Layout, Place place, std::optional<bool>, std::optional<c10::MemoryFormat> format) {
  Tensor made = empty_on(index_of(place), sizes, c10::contiguous_strides(sizes), c10::dtype_or_default(type));
  if (format && *format != c10::MemoryFormat::Preserve) made.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  return made;
}

const Tensor& resize_contiguous(const Tensor& self, Sizes sizes, std::optional<c10::MemoryFormat>) {
  resize(self, sizes, c10::contiguous_strides(sizes));
  return self;
}

Tensor& set_storage(Tensor& self, c10::Storage storage, int64_t offset, Sizes sizes, Sizes strides) {
  self.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(storage));
  self.unsafeGetTensorImpl()->set_storage_offset(offset);
  resize(self, sizes, strides);
  return self;
}

Tensor& set_whole_storage(Tensor& self, c10::Storage storage) {
  int64_t elements = int64_t(storage.nbytes() / self.element_size());
  return set_storage(self, std::move(storage), 0, {elements}, {1});
}

Tensor& set_tensor(Tensor& self, const Tensor& source) {
  return set_storage(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

Tensor as_strided(const Tensor& self, Sizes sizes, Sizes strides, std::optional<int64_t> offset) {
  return alias_of(self, sizes, strides, offset.value_or(self.storage_offset()));
}

Tensor reshape_alias(const Tensor& self, Sizes sizes, Sizes strides) {
  return alias_of(self, sizes, strides, self.storage_offset());
}

Tensor view(const Tensor& self, Sizes sizes) { return at::native::view(self, sizes); }

Tensor unfold(const Tensor& self, int64_t dimension, int64_t size, int64_t step) {
  return at::native::unfold(self, dimension, size, step);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", empty);
  library.impl("empty_strided", empty_strided);
  library.impl("resize_", resize_contiguous);
  library.impl("set_.source_Storage_storage_offset", set_storage);
  library.impl("set_.source_Storage", set_whole_storage);
  library.impl("set_.source_Tensor", set_tensor);
  library.impl("as_strided", as_strided);
  library.impl("_reshape_alias", reshape_alias);
  library.impl("view", view);
  library.impl("unfold", unfold);
}

}  // namespace rig
