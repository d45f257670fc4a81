// Streams: queues that run late, unless somebody waits for them.
#pragma once
#include <c10/core/Stream.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>

namespace rig {

using Ticket = uint64_t;  // of a piece of work on its stream; they count from 1

// Work runs in order, in a thread of the stream's own. Each piece is due after its delay (see settings.h), or as soon as
// anybody waits for it or for a later one: a program that waits wherever it must loses no time.
class Stream {
 public:
  Stream(int device, int64_t id) : device(device), id(id) {}
  const int device;
  const int64_t id;  // 0: the device's default stream

  Ticket push(std::function<void()> work);
  void push_wait(Stream& other, Ticket ticket);  // later work on this stream waits, and fails as the other has
  void wait(Ticket ticket);                      // the host waits; raises what failed on this stream before
  void wait_for_all() { wait(last()); }
  Ticket last();
  bool reached(Ticket ticket);  // asked again and again, work on the way there is late no longer
  void end();  // drop what has not begun, and let the work under way end

 private:
  struct Work {
    std::function<void()> run;
    std::chrono::steady_clock::time_point due;
    Ticket ticket;
    bool kernel;
  };
  Ticket enqueue(std::function<void()> work, std::chrono::microseconds delay, bool kernel);
  void await(Ticket ticket, std::unique_lock<std::mutex>& lock);
  void serve();
  void run(Work work, std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable changed_, done_something_;
  std::deque<Work> waiting_;
  Ticket last_ = 0, done_ = 0, wanted_ = 0, polled_ = 0;
  int polls_ = 0;
  bool serving_ = false, running_ = false, ended_ = false;
  std::string failure_;
};

Stream& stream(int device, int64_t id);
Stream& stream(const c10::Stream& stream);
Stream& current_stream(int device);
Stream& next_side_stream(int device);       // of a pool, round about
Stream& communication_stream(int device);   // one, on which all messages of a device follow each other
void check_unbroken(int device);            // refuses all use of a device once a kernel there has failed
int64_t select_stream(Stream& stream);      // returns the id of the one before
c10::Stream as_torch(const Stream& stream);
void synchronize(int device);
void end_all_streams();

}  // namespace rig
