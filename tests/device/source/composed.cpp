// Operators that torch fuses for accelerators alone: composed of others here.
#include <ATen/ATen.h>
#include <ATen/native/transformers/attention.h>
#include <torch/library.h>

#include "host_views.h"
#include "outlines.h"

namespace rig {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

Tensor with_bias(const Tensor& gates, const OptionalTensor& bias) {
  return bias && bias->defined() ? gates + *bias : gates;
}

Tensor sum_of_rows(const Tensor& gates, bool wanted) { return wanted ? gates.sum(0, false) : Tensor(); }

std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& cx,
                                             const OptionalTensor& input_bias, const OptionalTensor& hidden_bias) {
  auto gates = (with_bias(input_gates, input_bias) + with_bias(hidden_gates, hidden_bias)).chunk(4, 1);
  auto in = gates[0].sigmoid(), forget = gates[1].sigmoid(), cell = gates[2].tanh(), out = gates[3].sigmoid();
  auto cy = forget * cx + in * cell;
  return {out * cy.tanh(), cy, at::cat({in, forget, cell, out}, 1)};
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(const OptionalTensor& grad_hy, const OptionalTensor& grad_cy, const Tensor& cx,
                                                      const Tensor& cy, const Tensor& workspace, bool has_bias) {
  auto gates = workspace.chunk(4, 1);
  auto &in = gates[0], &forget = gates[1], &cell = gates[2], &out = gates[3];
  auto squashed = cy.tanh();
  auto gh = grad_hy && grad_hy->defined() ? *grad_hy : at::zeros_like(cx);
  auto gc = gh * out * (1 - squashed * squashed);
  if (grad_cy && grad_cy->defined()) gc = gc + *grad_cy;
  auto grad = at::cat({gc * cell * in * (1 - in), gc * cx * forget * (1 - forget), gc * in * (1 - cell * cell),
                       gh * squashed * out * (1 - out)}, 1);
  return {grad, gc * forget, sum_of_rows(grad, has_bias)};
}

std::tuple<Tensor, Tensor> gru_cell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hx,
                                    const OptionalTensor& input_bias, const OptionalTensor& hidden_bias) {
  auto of_input = with_bias(input_gates, input_bias).chunk(3, 1), of_hidden = with_bias(hidden_gates, hidden_bias).chunk(3, 1);
  auto reset = (of_input[0] + of_hidden[0]).sigmoid(), keep = (of_input[1] + of_hidden[1]).sigmoid();
  auto fresh = (of_input[2] + reset * of_hidden[2]).tanh();
  return {fresh + keep * (hx - fresh), at::cat({reset, keep, fresh, hx, of_hidden[2]}, 1)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(const Tensor& grad_hy, const Tensor& workspace, bool has_bias) {
  auto kept = workspace.chunk(5, 1);
  auto &reset = kept[0], &keep = kept[1], &fresh = kept[2], &hx = kept[3], &hidden = kept[4];
  auto of_fresh = grad_hy * (1 - keep) * (1 - fresh * fresh);
  auto of_keep = grad_hy * (hx - fresh) * keep * (1 - keep);
  auto of_reset = of_fresh * hidden * reset * (1 - reset);
  auto of_input = at::cat({of_reset, of_keep, of_fresh}, 1), of_hidden = at::cat({of_reset, of_keep, of_fresh * reset}, 1);
  return {of_input, of_hidden, grad_hy * keep, sum_of_rows(of_input, has_bias), sum_of_rows(of_hidden, has_bias)};
}

// As the CPU's, but with the device's numbers.
std::tuple<Tensor, Tensor> dropout(const Tensor& input, double p, std::optional<bool> train) {
  if (!input.numel()) return {input.clone(), at::empty_like(input, at::kBool)};
  if (!train.value_or(true)) return {input.clone(), at::ones_like(input, at::kBool)};
  auto mask = at::empty_like(input, at::kBool).bernoulli_(1 - p);
  return {input.mul(mask).mul_(p == 1 ? 0 : 1 / (1 - p)), mask};
}

// The way that the CPU would choose.
int64_t attention_choice(const Tensor& query, const Tensor& key, const Tensor& value, const OptionalTensor& mask, double dropout,
                         bool causal, std::optional<double> scale, bool grouped) {
  auto like = [](const Tensor& tensor) {
    return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU)).requires_grad_(tensor.requires_grad());
  };
  auto its_mask = mask && mask->defined() ? OptionalTensor(like(*mask)) : std::nullopt;
  return at::_fused_sdp_choice(like(query), like(key), like(value), its_mask, dropout, causal, scale, grouped);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_thnn_fused_lstm_cell", lstm_cell);
  library.impl("_thnn_fused_lstm_cell_backward_impl", lstm_cell_backward);
  library.impl("_thnn_fused_gru_cell", gru_cell);
  library.impl("_thnn_fused_gru_cell_backward", gru_cell_backward);
  library.impl("native_dropout", dropout);
  library.impl("_fused_sdp_choice", attention_choice);
}

}  // namespace rig

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &rig::attention_choice)
}  // namespace at::native
