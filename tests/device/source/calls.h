// A call of an operator, as the device's one kernel gets it.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace rig {

// What an operator's schema and name tell.
struct Traits {
  std::string name;
  bool waits = false;         // the shapes or values that it returns depend on its inputs' values
  bool host_indices = false;  // takes indices that lie on the host
  int generator = -1;         // which argument is a generator
  bool counted_draws = false; // how many numbers it draws depends on shapes alone
};
const Traits& traits_of(const c10::OperatorHandle& op);

struct Call {
  Call(const c10::OperatorHandle& op, const torch::jit::Stack& stack);

  const c10::OperatorHandle& op;
  const Traits& traits;
  std::vector<c10::IValue> arguments;
  std::vector<at::Tensor> tensors;  // all in the arguments, in their order
  std::vector<bool> written;        // for each tensor
  int device = -1;
  bool masks = false;               // indices among the tensors are masks

  using Change = std::function<at::Tensor(size_t)>;  // the tensor to take the place of the i-th
  torch::jit::Stack with(const Change& change, const std::optional<at::Generator>& generator) const;

 private:
  void take(const c10::IValue& value, bool writes);
  void take(const at::Tensor& tensor, bool writes);
};

// Runs the CPU's kernel of an operator; its results replace the arguments on the stack.
void run_on_host(const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace rig
