#include "calls.h"

#include <mutex>
#include <set>
#include <unordered_map>

#include "host_views.h"
#include "place.h"

namespace rig {
namespace {

using Names = std::set<std::string>;

const Names kValueShaped = {
    "aten::equal", "aten::nonzero", "aten::masked_select", "aten::_unique", "aten::_unique2", "aten::unique_dim",
    "aten::unique_consecutive", "aten::unique_dim_consecutive", "aten::repeat_interleave", "aten::bincount", "aten::histc",
    "aten::multinomial", "aten::nonzero_static"};
const Names kIndexing = {"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_", "aten::_unsafe_index",
                         "aten::_unsafe_index_put"};
const Names kCountedDraws = {"aten::bernoulli", "aten::bernoulli_", "aten::normal", "aten::normal_", "aten::uniform_",
                             "aten::random_", "aten::exponential_", "aten::cauchy_", "aten::log_normal_",
                             "aten::geometric_", "aten::randperm"};

bool is_tensors(const c10::TypePtr& type) {
  return type->isSubtypeOf(*c10::TensorType::get()) || type->isSubtypeOf(*c10::ListType::ofTensors());
}

Traits read_traits(const c10::OperatorHandle& op) {
  const auto& schema = op.schema();
  Traits traits{schema.name()};
  traits.waits = kValueShaped.count(traits.name);
  for (const auto& result : schema.returns()) traits.waits = traits.waits || !is_tensors(result.type());
  traits.host_indices = kIndexing.count(traits.name);
  traits.counted_draws = kCountedDraws.count(traits.name);
  for (size_t i = 0; i < schema.arguments().size(); ++i)
    if (schema.arguments()[i].type()->str().find("Generator") != std::string::npos) traits.generator = int(i);
  return traits;
}

}  // namespace

const Traits& traits_of(const c10::OperatorHandle& op) {
  static std::mutex traits_mutex;
  static auto* known = new std::unordered_map<c10::OperatorHandle, Traits>;
  std::lock_guard<std::mutex> guard(traits_mutex);
  auto found = known->find(op);
  return found != known->end() ? found->second : known->emplace(op, read_traits(op)).first->second;
}

Call::Call(const c10::OperatorHandle& op, const torch::jit::Stack& stack) : op(op), traits(traits_of(op)) {
  const auto& declared = op.schema().arguments();
  arguments.assign(stack.end() - declared.size(), stack.end());
  for (size_t i = 0; i < declared.size(); ++i) {
    const auto* alias = declared[i].alias_info();
    take(arguments[i], alias && alias->isWrite());
  }
  if (device < 0) device = current_device();
  for (const auto& tensor : tensors)
    TORCH_CHECK(is_ours(tensor) || tensor.dim() == 0 || traits.host_indices, traits.name,
                ": expected all tensors to be on the same device, but a tensor of shape ", tensor.sizes(), " is on ",
                tensor.device(), " and others are on rig:", device);
}

void Call::take(const c10::IValue& value, bool writes) {
  if (value.isTensor()) take(value.toTensor(), writes);
  else if (value.isTensorList()) for (const at::Tensor& each : value.toTensorVector()) take(each, writes);
  else if (value.isOptionalTensorList()) {
    for (const std::optional<at::Tensor>& each : value.toOptionalTensorVector()) {
      if (!each) continue;
      take(*each, writes);
      masks = masks || each->scalar_type() == at::kBool || each->scalar_type() == at::kByte;
    }
  } else if (value.isDevice() && value.toDevice().type() == kRig && value.toDevice().has_index() && device < 0) {
    device = value.toDevice().index();
  }
}

void Call::take(const at::Tensor& tensor, bool writes) {
  if (!tensor.defined()) return;
  tensors.push_back(tensor);
  written.push_back(writes);
  if (!is_ours(tensor)) return;
  int its = tensor.device().index();
  TORCH_CHECK(device < 0 || device == its, traits.name, ": expected all tensors to be on the same device, but found rig:", device,
              " and rig:", its);
  device = its;
}

torch::jit::Stack Call::with(const Change& change, const std::optional<at::Generator>& generator) const {
  torch::jit::Stack changed;
  size_t next = 0;
  auto replaced = [&](const at::Tensor& tensor) { return tensor.defined() ? change(next++) : tensor; };
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto& value = arguments[i];
    if (int(i) == traits.generator) changed.emplace_back(generator);
    else if (value.isTensor()) changed.emplace_back(replaced(value.toTensor()));
    else if (value.isTensorList()) {
      std::vector<at::Tensor> list;
      for (const at::Tensor& each : value.toTensorVector()) list.push_back(replaced(each));
      changed.emplace_back(std::move(list));
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& each : value.toOptionalTensorVector())
        list.push_back(each ? std::optional<at::Tensor>(replaced(*each)) : std::nullopt);
      changed.emplace_back(std::move(list));
    } else if (value.isDevice()) changed.emplace_back(c10::Device(c10::kCPU));
    else changed.push_back(value);
  }
  return changed;
}

void run_on_host(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  KernelScope scope;
  auto named = [](const char* name) { return c10::Dispatcher::singleton().findSchemaOrThrow(name, ""); };
  const auto& name = op.schema().name();
  if (name == "aten::convolution_overrideable") {  // the name under which convolutions come to a device that is not torch's own
    static const auto convolution = named("aten::convolution");
    convolution.callBoxed(&stack);
  } else if (name == "aten::convolution_backward_overrideable") {
    static const auto backward = named("aten::convolution_backward");
    auto weight = stack.at(2).toTensor();  // grad, input, weight, stride, padding, dilation, transposed, ...
    int64_t outputs = stack.at(6).toBool() ? weight.size(1) * stack.at(8).toInt() : weight.size(0);
    stack.insert(stack.begin() + 3, c10::IValue(std::vector<int64_t>{outputs}));
    backward.callBoxed(&stack);
  } else {
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  }
}

}  // namespace rig
