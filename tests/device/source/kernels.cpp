#include "kernels.h"

#include <torch/library.h>

#include "counts.h"
#include "generators.h"
#include "host_views.h"
#include "outlines.h"
#include "place.h"
#include "streams.h"

namespace rig {
namespace {

using at::Tensor;
using torch::jit::Stack;

// Of an operator that draws: where its numbers come from.
std::optional<at::Generator> drawn_from(const Call& call) {
  if (call.traits.generator < 0) return std::nullopt;
  const auto& given = call.arguments[call.traits.generator];
  return inner_generator(given.isNone() ? default_generator(call.device) : given.toGenerator());
}

at::Generator copied(at::Generator generator) {
  std::lock_guard<std::mutex> guard(generator.mutex());
  return generator.clone();
}

// What a kernel is given that lies on the host: numbers by value, as they are at the launch; indices by a copy.
Tensor launched_value(const Tensor& host, const std::string& name) {
  if (host.dim()) {
    count_sync(name + " with indices on the host");
    count("h2d");
    count("h2d bytes", int64_t(host.nbytes()));
  }
  Tensor copy = host.detach().clone();
  copy.unsafeGetTensorImpl()->set_wrapped_number(host.unsafeGetTensorImpl()->is_wrapped_number());
  return copy;
}

// The results on the device. `fresh` gets those that the kernel is to fill; a value that is no tensor is taken from `values`.
Stack made_results(const Call& call, const Outline& outline, const Stack& values, std::vector<Tensor>& fresh) {
  auto made = [&](const Result& result) -> Tensor {
    Tensor tensor;
    if (result.defined && result.argument >= 0) {
      const Tensor& argument = call.tensors[result.argument];
      if (result.same) tensor = argument;
      else tensor = alias_of(argument, result.shape.sizes, result.shape.strides, argument.storage_offset() + result.offset);
    } else if (result.defined) {
      tensor = empty_on(call.device, result.shape.sizes, result.shape.strides, result.type);
    }
    fresh.push_back(result.defined && result.argument < 0 ? tensor : Tensor());
    return tensor;
  };
  Stack results;
  size_t next = 0;
  for (size_t i = 0; i < outline.lengths.size(); ++i) {
    int64_t length = outline.lengths[i];
    if (length == -2) results.push_back(values.at(i));
    if (length == -1) results.emplace_back(made(outline.results[next++]));
    if (length < 0) continue;
    std::vector<Tensor> list;
    while (int64_t(list.size()) < length) list.push_back(made(outline.results[next++]));
    results.emplace_back(std::move(list));
  }
  return results;
}

std::vector<Tensor> flattened(const Stack& values) {
  std::vector<Tensor> flat;
  for (const auto& value : values) {
    if (value.isTensor()) flat.push_back(value.toTensor());
    if (value.isTensorList()) for (const Tensor& each : value.toTensorVector()) flat.push_back(each);
  }
  return flat;
}

void resize_written(const Call& call, const Outline& outline) {
  for (const auto& [i, shape] : outline.resized) resize(call.tensors[i], shape.sizes, shape.strides);
}

void write(const Tensor& from, const Tensor& to) {
  KernelScope scope;
  to.copy_(from);
}

// All of it waits in the stream.
Stack launch(const Call& call, const Outline& outline, const std::optional<at::Generator>& generator) {
  count("queued kernels");
  resize_written(call, outline);
  std::vector<Tensor> fresh;
  Stack results = made_results(call, outline, {}, fresh);
  KernelScope scope;
  for (auto& tensor : fresh) tensor = tensor.defined() && tensor.numel() ? host_view(tensor) : Tensor();
  auto host = call.with([&](size_t i) {
    const Tensor& tensor = call.tensors[i];
    return is_ours(tensor) ? host_view(tensor) : launched_value(tensor, call.traits.name);
  }, generator);
  current_stream(call.device).push([op = call.op, host = std::move(host), fresh = std::move(fresh)]() mutable {
    run_on_host(op, host);
    auto values = flattened(host);
    for (size_t i = 0; i < values.size(); ++i)
      if (fresh[i].defined()) write(values[i], fresh[i]);
  });
  return results;
}

// At once, after all that its stream has to do before; what it writes and returns is given out by the stream, late.
Stack run_now(const Call& call, const std::optional<at::Generator>& generator) {
  Stream& stream = current_stream(call.device);
  if (call.traits.waits || call.masks) count_sync(call.traits.name);
  stream.wait_for_all();
  KernelScope scope;
  std::vector<Tensor> given;
  for (size_t i = 0; i < call.tensors.size(); ++i) {
    const Tensor& tensor = call.tensors[i];
    given.push_back(!is_ours(tensor) ? launched_value(tensor, call.traits.name) : call.written[i] ? host_view(tensor).clone() : host_view(tensor));
  }
  Stack values = call.with([&](size_t i) { return given[i]; }, generator);
  run_on_host(call.op, values);
  Outline outline = outlined(call, given, values);
  resize_written(call, outline);
  std::vector<Tensor> fresh, flat = flattened(values);
  Stack results = made_results(call, outline, values, fresh);
  auto publish = [&](const Tensor& value, const Tensor& to) {
    if (to.defined() && to.numel()) stream.push([value, there = host_view(to)] { write(value, there); });
  };
  for (size_t i = 0; i < given.size(); ++i)
    if (call.written[i]) publish(given[i], call.tensors[i]);
  for (size_t i = 0; i < flat.size(); ++i) publish(flat[i], fresh[i]);
  return results;
}

}  // namespace

void kernel(const c10::OperatorHandle& op, Stack* stack) {
  Call call(op, *stack);
  touch_for_work(call.device, call.traits.name.c_str());
  count("kernels");
  auto generator = drawn_from(call);
  Stack results;
  if (call.traits.waits || call.masks || (generator && !call.traits.counted_draws)) {
    results = run_now(call, generator);
  } else {
    // The numbers are drawn now, in the host's order, and drawn again by the kernel, from where the generator stood.
    auto before = generator ? std::optional<at::Generator>(copied(*generator)) : std::nullopt;
    auto outline = outline_of(call, generator);
    results = outline ? launch(call, *outline, before) : run_now(call, generator);
  }
  torch::jit::drop(*stack, call.arguments.size());
  for (auto& result : results) stack->push_back(std::move(result));
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) { library.fallback(torch::CppFunction::makeFromBoxedFunction<&kernel>()); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  for (const char* name : {
           "convolution_overrideable", "convolution_backward_overrideable",  // their own kernels only raise
           // Composed of others for devices of no known kind, with other bits than the CPU's.
           "native_layer_norm", "native_group_norm", "silu_backward", "mish_backward", "addr",
           // One kernel for all tensors, as GPUs have them.
           "_foreach_mul.Scalar", "_foreach_mul_.Scalar", "_foreach_add_.List"})
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&kernel>());
}

}  // namespace rig
