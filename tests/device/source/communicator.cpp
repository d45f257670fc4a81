#include "communicator.h"

#include <ATen/core/ivalue.h>
#include <ATen/ops/cat.h>
#include <c10/core/StreamGuard.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "counts.h"
#include "host_views.h"
#include "memory.h"
#include "place.h"
#include "settings.h"
#include "streams.h"

namespace rig {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;
using Pending = c10::intrusive_ptr<c10d::Work>;
using Backend = c10d::Backend;
using Gloo = c10::intrusive_ptr<Backend>;

// Under way on a communicator's stream.
class Message final : public c10d::Work {
 public:
  Message(int rank, c10d::OpType kind, Stream& stream, Ticket ticket, Tensors outputs)
      : Work(rank, kind), stream_(stream), ticket_(ticket), outputs_(std::move(outputs)) {
    auto device = c10::Device(kRig, c10::DeviceIndex(stream.device));
    future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()), std::vector<c10::Device>{device});
    c10::StreamGuard guard(as_torch(stream));
    future_->markCompleted(c10::IValue(outputs_));
  }
  bool isCompleted() override { return stream_.reached(ticket_); }
  bool isSuccess() const override { return stream_.reached(ticket_); }
  Tensors result() override { return outputs_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  void synchronize() override { current_stream(stream_.device).push_wait(stream_, ticket_); }
  bool wait(std::chrono::milliseconds most) override {  // the host goes on, but after a barrier, or with a time limit
    synchronize();
    if (opType_ == c10d::OpType::BARRIER || most != kNoTimeout) {
      count_sync(opType_ == c10d::OpType::BARRIER ? "barrier" : "message");
      stream_.wait(ticket_);
    }
    return true;
  }

 private:
  Stream& stream_;
  const Ticket ticket_;
  const Tensors outputs_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// Whether a member has aborted. As with NCCL, its messages end then, without an error, whether their peers have left or
// not, and none begins any more; before, only the time-out ends one whose peer has left.
class End {
 public:
  explicit End(std::chrono::milliseconds timeout) : timeout_(timeout) {}
  void come() {
    std::lock_guard<std::mutex> guard(mutex_);
    came_ = true;
    for (auto& message : under_way_) message->abort();
    changed_.notify_all();
  }
  bool came() {
    std::lock_guard<std::mutex> guard(mutex_);
    return came_;
  }
  void wait(const std::vector<Pending>& messages) {  // gloo's own way to abort does nothing to those under way
    {
      std::lock_guard<std::mutex> guard(mutex_);
      if (came_) for (auto& message : messages) message->abort();
      under_way_ = messages;
    }
    for (auto& message : messages) message->wait();
    std::lock_guard<std::mutex> guard(mutex_);
    under_way_.clear();
  }
  void run(std::function<void()>& work) {
    if (came()) return;
    try {
      work();
    } catch (const std::exception& error) {
      const std::string text = error.what();
      std::unique_lock<std::mutex> lock(mutex_);
      under_way_.clear();
      const bool late = text.find("imed out") != std::string::npos, left = text.find("onnection") != std::string::npos;
      if (!came_ && (late || !left)) throw;
      TORCH_CHECK(changed_.wait_for(lock, timeout_, [&] { return came_; }), "rig: timed out after ", text);
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  const std::chrono::milliseconds timeout_;
  std::vector<Pending> under_way_;
  bool came_ = false;
};

class Communicator final : public Backend {
 public:
  Communicator(c10::intrusive_ptr<c10d::Store> store, int rank, int size, Gloo gloo)
      : Backend(rank, size), store_(std::move(store)), gloo_(std::move(gloo)), end_(std::make_shared<End>(store_->getTimeout())) {}

  const std::string getBackendName() const override { return "rigccl"; }
  bool supportsCoalescing() const override { return true; }
  void abort() override {
    end_->come();
    gloo_->abort();
  }
  void setTimeout(std::chrono::milliseconds timeout) override { gloo_->setTimeout(timeout); }

  Pending broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    return collective(c10d::OpType::BROADCAST, tensors, tensors, [options](Backend& gloo, Tensors& views, Tensors&) {
      return gloo.broadcast(views, options);
    });
  }
  Pending allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return collective(c10d::OpType::ALLREDUCE, tensors, tensors,
                      [options](Backend& gloo, Tensors& views, Tensors&) { return reduced(gloo, views, options); });
  }
  Pending allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    return collective(c10d::OpType::ALLREDUCE_COALESCED, tensors, tensors, [options](Backend& gloo, Tensors& views, Tensors&) {
      Pending last;
      for (auto& view : views) {
        Tensors one{view};
        last = reduced(gloo, one, options);
        last->wait();
      }
      return last;
    });
  }
  Pending allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    return collective(c10d::OpType::ALLGATHER, outputs.at(0), inputs, [options](Backend& gloo, Tensors& into, Tensors& from) {
      std::vector<Tensors> lists{into};
      return gloo.allgather(lists, from, options);
    });
  }
  Pending _allgather_base(Tensor& output, Tensor& input, const c10d::AllgatherOptions& options) override {
    Tensors outputs{output}, inputs{input};
    return collective(c10d::OpType::_ALLGATHER_BASE, outputs, inputs, [options, size = getSize()](Backend& gloo, Tensors& into, Tensors& from) {
      std::vector<Tensors> lists{into[0].view(-1).chunk(size)};
      Tensors flat{from[0].view(-1)};
      return gloo.allgather(lists, flat, options);
    });
  }
  Pending reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ReduceScatterOptions& options) override {
    return collective(c10d::OpType::REDUCE_SCATTER, outputs, inputs.at(0), scattering(options));
  }
  Pending _reduce_scatter_base(Tensor& output, Tensor& input, const c10d::ReduceScatterOptions& options) override {
    Tensors outputs{output}, inputs{input};
    return collective(c10d::OpType::_REDUCE_SCATTER_BASE, outputs, inputs, scattering(options));
  }
  Pending barrier(const c10d::BarrierOptions& options) override {
    int device = options.device && options.device->has_index() ? options.device->index()
               : !options.device_ids.empty()                   ? int(options.device_ids[0])
               : stream_                                       ? stream_->device
                                                               : current_device();
    meet(device);
    return post(c10d::OpType::BARRIER, {}, [gloo = gloo_] { gloo->barrier()->wait(); });
  }
  Pending send(Tensors& tensors, int to, int tag) override {
    return message(c10d::OpType::SEND, tensors, to, [to, tag](Backend& gloo, Tensors& views) { return gloo.send(views, to, tag); });
  }
  Pending recv(Tensors& tensors, int from, int tag) override {
    return message(c10d::OpType::RECV, tensors, from, [from, tag](Backend& gloo, Tensors& views) { return gloo.recv(views, from, tag); });
  }

  // Messages between these two begin together.
  void startCoalescing() override { grouping_ = true; }
  Pending endCoalescing() override {
    grouping_ = false;
    TORCH_CHECK(stream_, "rig: a group of messages without any");
    auto begun = std::make_shared<std::vector<std::function<Pending()>>>(std::move(group_));
    group_.clear();
    return post(c10d::OpType::COALESCED, {}, [begun, end = end_] {
      std::vector<Pending> under_way;
      for (auto& begin : *begun) under_way.push_back(begin());
      end->wait(under_way);
    });
  }

 private:
  using Collective = std::function<Pending(Backend&, Tensors& outputs, Tensors& inputs)>;

  static Pending reduced(Backend& gloo, Tensors& views, c10d::AllreduceOptions options) {
    const bool mean = options.reduceOp == c10d::ReduceOp::AVG;
    if (mean) options.reduceOp = c10d::ReduceOp::SUM;
    auto work = gloo.allreduce(views, options);
    if (mean) {
      work->wait();
      for (auto& view : views) view.div_(gloo.getSize());
    }
    return work;
  }
  Collective scattering(const c10d::ReduceScatterOptions& told) {
    return [told, rank = getRank(), size = getSize()](Backend& gloo, Tensors& outputs, Tensors& inputs) {
      for (auto& input : inputs) input = input.reshape(-1);
      Tensors sums{at::cat(inputs)};
      c10d::AllreduceOptions options;
      options.reduceOp = told.reduceOp;
      auto work = reduced(gloo, sums, options);
      work->wait();
      outputs[0].view(-1).copy_(sums[0].chunk(size)[rank]);
      return work;
    };
  }

  // What each member says before its first collective: no two may have one device.
  void meet(int device) {
    announce(device);
    if (met_) return;
    for (int other = 0; other < getSize(); ++other) check_apart(other);
    met_ = true;
  }
  void announce(int device) {
    touch(device, "a communicator");
    TORCH_CHECK(!stream_ || stream_->device == device, "rig: this member of the communicator has device ", stream_ ? stream_->device : -1,
                " and cannot send from device ", device);
    if (stream_) return;
    stream_ = settings().one_order ? &communication_stream(device) : &next_side_stream(device);
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    place_ = std::string(host) + " device " + std::to_string(device);
    store_->set("place/" + std::to_string(getRank()), place_);
  }
  void check_apart(int other) {
    if (other == getRank()) return;
    const std::string key = "place/" + std::to_string(other);
    const auto until = std::chrono::steady_clock::now() + store_->getTimeout();
    while (!store_->check({key})) {
      TORCH_CHECK(!end_->came(), "rig: the connection to member ", other, " was given up");
      TORCH_CHECK(std::chrono::steady_clock::now() < until, "rig: timed out as member ", other, " has not come");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    auto words = store_->get(key);
    TORCH_CHECK(std::string(words.begin(), words.end()) != place_, "rig: members ", getRank(), " and ", other, " of a communicator are both on ",
                place_, "; each needs a device of its own");
  }
  int device_of(const Tensors& tensors) {
    for (const auto& tensor : tensors) {
      TORCH_CHECK(is_ours(tensor), "rig: a communicator between devices takes no tensor on ", tensor.device());
      TORCH_CHECK(tensor.is_non_overlapping_and_dense(), "rig: a communicator takes dense tensors, not one of strides ", tensor.strides());
    }
    return tensors.at(0).device().index();
  }
  static Tensors views_of(const Tensors& tensors) {
    KernelScope scope;
    Tensors views;
    for (const auto& tensor : tensors) {
      Tensor view = host_view(tensor);
      views.push_back(view.is_contiguous() ? view : view.as_strided({view.numel()}, {1}));
    }
    return views;
  }

  Pending collective(c10d::OpType kind, const Tensors& outputs, const Tensors& inputs, Collective begin) {
    meet(device_of(outputs));
    device_of(inputs);
    use(outputs);
    use(inputs);
    return post(kind, outputs, [gloo = gloo_, begin = std::move(begin), into = views_of(outputs), from = views_of(inputs)]() mutable {
      KernelScope scope;
      begin(*gloo, into, from)->wait();
    });
  }
  Pending message(c10d::OpType kind, const Tensors& tensors, int peer, std::function<Pending(Backend&, Tensors&)> begin) {
    announce(device_of(tensors));
    use(tensors);
    if (kind == c10d::OpType::SEND)
      for (const auto& tensor : tensors) count("bytes sent", int64_t(tensor.nbytes()));
    auto begun = [this, keep = c10::intrusive_ptr<Communicator>::reclaim_copy(this), peer, begin = std::move(begin), views = views_of(tensors)]() mutable {
      check_apart(peer);
      return begin(*gloo_, views);
    };
    if (!grouping_) return post(kind, tensors, [begun, end = end_]() mutable { end->wait({begun()}); });
    group_.push_back(begun);
    return nullptr;
  }
  void use(const Tensors& tensors) {
    for (const auto& tensor : tensors) record_use(tensor.storage().data(), *stream_);
  }
  Pending post(c10d::OpType kind, const Tensors& outputs, std::function<void()> work) {
    count("messages between devices");
    Stream& now = current_stream(stream_->device);
    stream_->push_wait(now, now.last());
    Ticket ticket = stream_->push([end = end_, work = std::move(work)]() mutable { end->run(work); });
    return c10::make_intrusive<Message>(getRank(), kind, *stream_, ticket, outputs);
  }

  const c10::intrusive_ptr<c10d::Store> store_;
  const Gloo gloo_;
  const std::shared_ptr<End> end_;
  Stream* stream_ = nullptr;
  std::string place_;
  bool met_ = false, grouping_ = false;
  std::vector<std::function<Pending()>> group_;
};

}  // namespace

c10::intrusive_ptr<Backend> communicator(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, const Gloo& gloo) {
  return c10::make_intrusive<Communicator>(store, rank, size, gloo);
}

}  // namespace rig
