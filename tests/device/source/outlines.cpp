#include "outlines.h"

#include <ATen/EmptyTensor.h>

#include <cstring>
#include <map>
#include <mutex>

#include "host_views.h"

namespace rig {
namespace {

// Two hashes of all that shapes may depend on.
class Key {
 public:
  explicit Key(const Call& call) {
    add(reinterpret_cast<uint64_t>(&call.op.schema()));
    bool reads = false;
    for (bool written : call.written) reads = reads || !written;
    for (const auto& value : call.arguments) add(value, !reads);
  }
  bool is_whole() const { return whole_; }
  std::pair<uint64_t, uint64_t> value() const { return {first_, second_}; }

 private:
  void add(uint64_t word) {
    first_ = (first_ ^ word) * 0x9E3779B97F4A7C15ull;
    first_ ^= first_ >> 29;
    second_ = (second_ + word + 0x632BE59BD9B4E019ull) * 0xD6E8FEB86659FD93ull;
    second_ ^= second_ >> 32;
  }
  void add(c10::IntArrayRef words) {
    add(words.size());
    for (int64_t word : words) add(uint64_t(word));
  }
  void add(const at::Tensor& tensor) {
    if (!tensor.defined()) return add(uint64_t(17));
    add(tensor.sizes());
    add(tensor.strides());
    add(uint64_t(tensor.scalar_type()) * 8 + is_ours(tensor) * 4 + tensor.unsafeGetTensorImpl()->is_wrapped_number() * 2 +
        (tensor.is_conj() || tensor.is_neg()));
  }
  void add(const c10::IValue& value, bool numbers) {  // numbers: real ones, too, may give shapes, as in arange
    add(std::hash<std::string>()(value.tagKind()));
    if (value.isTensor()) add(value.toTensor());
    else if (value.isTensorList()) for (const at::Tensor& each : value.toTensorVector()) add(each);
    else if (value.isOptionalTensorList())
      for (const std::optional<at::Tensor>& each : value.toOptionalTensorVector()) add(each ? *each : at::Tensor());
    else if (value.isInt()) add(uint64_t(value.toInt()));
    else if (value.isBool()) add(uint64_t(value.toBool()));
    else if (value.isDouble()) add(numbers ? bits(value.toDouble()) : 0);
    else if (value.isString()) add(std::hash<std::string>()(value.toStringRef()));
    else if (value.isIntList()) add(value.toIntVector());
    else if (value.isBoolList()) for (bool each : value.toBoolList()) add(uint64_t(each) + 2);
    else if (value.isDoubleList()) for (double each : value.toDoubleVector()) add(bits(each));
    else if (!value.isNone() && !value.isDevice() && !value.isGenerator()) whole_ = false;
  }
  static uint64_t bits(double number) {
    uint64_t word;
    std::memcpy(&word, &number, sizeof word);
    return word;
  }
  uint64_t first_ = 1, second_ = 2;
  bool whole_ = true;
};

Result outlined(const at::Tensor& result, const std::vector<at::Tensor>& given) {
  Result told;
  told.defined = result.defined();
  if (!told.defined) return told;
  told.shape = {result.sizes().vec(), result.strides().vec()};
  told.type = result.scalar_type();
  for (size_t i = 0; i < given.size() && told.argument < 0; ++i)
    if (given[i].is_same(result)) {
      told.same = true;
      told.argument = int(i);
    }
  for (size_t i = 0; i < given.size() && told.argument < 0; ++i)
    if (result.numel() && given[i].numel() && result.storage().data() == given[i].storage().data()) {
      told.argument = int(i);
      told.offset = result.storage_offset() - given[i].storage_offset();
    }
  return told;
}

}  // namespace

Outline outlined(const Call& call, const std::vector<at::Tensor>& given, const torch::jit::Stack& results) {
  Outline outline;
  for (const auto& value : results) {
    outline.lengths.push_back(value.isTensorList() ? int64_t(value.toTensorVector().size()) : value.isTensor() ? -1 : -2);
    if (value.isTensor()) outline.results.push_back(outlined(value.toTensor(), given));
    if (value.isTensorList())
      for (const at::Tensor& each : value.toTensorVector()) outline.results.push_back(outlined(each, given));
  }
  for (size_t i = 0; i < given.size(); ++i)
    if (call.written[i] && !given[i].sizes().equals(call.tensors[i].sizes()))
      outline.resized.emplace_back(i, Shape{given[i].sizes().vec(), given[i].strides().vec()});
  return outline;
}

torch::jit::Stack run_on_zeros(const Call& call, const std::optional<at::Generator>& generator, std::vector<at::Tensor>& zeros) {
  KernelScope scope;
  for (const auto& tensor : call.tensors) {
    auto zero = at::detail::empty_strided_cpu(tensor.sizes(), tensor.strides(), tensor.scalar_type());
    std::memset(zero.mutable_data_ptr(), 0, zero.storage().nbytes());
    zero._set_conj(tensor.is_conj());
    zero._set_neg(tensor.is_neg());
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) zero.unsafeGetTensorImpl()->set_wrapped_number(true);
    zeros.push_back(std::move(zero));
  }
  auto stack = call.with([&](size_t i) { return zeros[i]; }, generator);
  run_on_host(call.op, stack);
  return stack;
}

std::shared_ptr<const Outline> outline_of(const Call& call, const std::optional<at::Generator>& generator) {
  static std::mutex outlines_mutex;
  static auto* known = new std::map<std::pair<uint64_t, uint64_t>, std::shared_ptr<const Outline>>;
  Key key(call);
  const bool remembered = key.is_whole() && !generator;
  if (remembered) {
    std::lock_guard<std::mutex> guard(outlines_mutex);
    auto found = known->find(key.value());
    if (found != known->end()) return found->second;
  }
  std::shared_ptr<const Outline> outline;
  try {
    std::vector<at::Tensor> zeros;
    auto results = run_on_zeros(call, generator, zeros);
    outline = std::make_shared<Outline>(outlined(call, zeros, results));
  } catch (const std::exception&) {
    return nullptr;  // zeros are no input for it, or nothing of these shapes is
  }
  if (remembered) {
    std::lock_guard<std::mutex> guard(outlines_mutex);
    known->emplace(key.value(), outline);
  }
  return outline;
}

}  // namespace rig
