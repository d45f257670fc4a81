// What a kernel will return, known before it has run: so that all of it can wait in its stream.
#pragma once
#include <memory>
#include <vector>

#include "calls.h"

namespace rig {

struct Shape {
  std::vector<int64_t> sizes, strides;
};

// A tensor among the results. argument: the place among the call's tensors of the one whose memory it has, or -1.
struct Result {
  bool defined = true, same = false;  // same: it is that argument
  int argument = -1;
  int64_t offset = 0;
  Shape shape;
  c10::ScalarType type = c10::ScalarType::Undefined;
};

struct Outline {
  std::vector<Result> results;                      // lists flattened
  std::vector<int64_t> lengths;                     // of the lists; -1: a tensor, -2: no tensor
  std::vector<std::pair<size_t, Shape>> resized;    // arguments that get other shapes
};

// From a run of the operator on tensors of the host: `given` in the arguments' places.
Outline outlined(const Call& call, const std::vector<at::Tensor>& given, const torch::jit::Stack& results);

// From a run on zeros, remembered by shapes; nothing if that run fails. A run that draws is made each time.
std::shared_ptr<const Outline> outline_of(const Call& call, const std::optional<at::Generator>& generator);

torch::jit::Stack run_on_zeros(const Call& call, const std::optional<at::Generator>& generator, std::vector<at::Tensor>& zeros);

}  // namespace rig
