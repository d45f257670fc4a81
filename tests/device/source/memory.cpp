#include "memory.h"

#include <c10/util/Exception.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <set>
#include <unordered_map>
#include <vector>

#include "place.h"
#include "settings.h"

namespace rig {
namespace {

constexpr size_t kSmall = 1 << 20;
constexpr int kPoison = 0xff;  // NaN in floating point, -1 in whole numbers

struct Block {
  size_t size;
  Stream* home;
  std::set<Stream*> users;                          // told by record_stream
  std::vector<std::pair<Stream*, Ticket>> pending;  // what they must have reached before the block is free
};

// One device's memory, mapped twice: tensors have addresses of a mapping that nobody may read or write.
class Memory {
 public:
  explicit Memory(size_t bytes) : bytes_(bytes) {
    int file = memfd_create("rig", 0);
    TORCH_CHECK(file >= 0 && ftruncate(file, off_t(bytes)) == 0, "rig: the system gives no file for a device's memory");
    closed_ = map(file, PROT_NONE);
    open_ = map(file, PROT_READ | PROT_WRITE);
    gaps_[closed_] = bytes;
    close(file);
  }
  bool owns(const void* address) const { return address >= closed_ && address < closed_ + bytes_; }
  char* opened(const void* address) const { return open_ + (static_cast<const char*>(address) - closed_); }

  char* allocate(size_t bytes, Stream& home) {
    std::unique_lock<std::mutex> lock(mutex_);
    free_what_is_reached();
    size_t size = size_class(bytes);
    auto is_none = [&] { return free_[{&home, size}].empty(); };
    if (is_none() && !has_room(size)) wait_for_users(lock);
    if (is_none() && !has_room(size)) release(lock);
    auto& free = free_[{&home, size}];
    char* block;
    if (free.empty()) block = fresh(size);
    else {
      block = free.back();  // the one freed last: whoever still reads it is found out soonest
      free.pop_back();
    }
    live_[block] = {size, &home, {}, {}};
    used_ += int64_t(size);
    peak_ = std::max(peak_, used_);
    return block;
  }

  void give_back(char* address) {
    std::lock_guard<std::mutex> guard(mutex_);
    Block block = std::move(live_.at(address));
    live_.erase(address);
    used_ -= int64_t(block.size);
    for (Stream* user : block.users) block.pending.emplace_back(user, user->last());
    if (block.pending.empty()) free(address, block);
    else deferred_.emplace_back(address, std::move(block));
  }

  void record_use(const void* address, Stream& user) {
    std::lock_guard<std::mutex> guard(mutex_);
    auto found = live_.find(static_cast<char*>(const_cast<void*>(address)));
    if (found != live_.end() && found->second.home != &user) found->second.users.insert(&user);
  }

  void empty_cache() {
    std::unique_lock<std::mutex> lock(mutex_);
    free_what_is_reached();
    release(lock);
  }

  std::map<std::string, int64_t> figures() {
    std::lock_guard<std::mutex> guard(mutex_);
    return {{"used", used_}, {"peak", peak_}, {"reserved", int64_t(bytes_ - unused())}, {"deferred", int64_t(deferred_.size())}};
  }
  void reset_peak() {
    std::lock_guard<std::mutex> guard(mutex_);
    peak_ = used_;
  }

 private:
  char* map(int file, int protection) const {
    void* address = mmap(nullptr, bytes_, protection, MAP_SHARED | MAP_NORESERVE, file, 0);
    TORCH_CHECK(address != MAP_FAILED, "rig: the system gives no addresses for a device's memory");
    return static_cast<char*>(address);
  }
  bool has_room(size_t size) const {
    for (auto& [address, gap] : gaps_)
      if (gap >= size) return true;
    return false;
  }
  // Large blocks lie below, small ones above, so that they part no gaps: CUDA's allocator has a pool for them, too.
  char* taken(size_t size) {
    if (size <= kSmall) {
      for (auto gap = gaps_.rbegin(); gap != gaps_.rend(); ++gap)
        if (gap->second >= size) return cut(gap->first, gap->second, gap->second - size, size);
    }
    for (auto [address, gap] : gaps_)
      if (gap >= size) return cut(address, gap, 0, size);
    return nullptr;
  }
  char* cut(char* gap, size_t whole, size_t at, size_t size) {
    gaps_.erase(gap);
    if (at > 0) gaps_[gap] = at;
    if (at + size < whole) gaps_[gap + at + size] = whole - at - size;
    return gap + at;
  }
  size_t unused() const {
    size_t bytes = 0;
    for (auto& [address, gap] : gaps_) bytes += gap;
    return bytes;
  }
  char* fresh(size_t size) {
    TORCH_CHECK_WITH(OutOfMemoryError, has_room(size), "rig: out of memory: ", size, " bytes wanted, ", unused(),
                     " of ", bytes_, " unused");
    char* block = taken(size);
    std::memset(opened(block), kPoison, size);  // at once: who reads it too early should not find zeros
    return block;
  }
  void poison(char* block, size_t size, Stream& home) {  // as late as a kernel
    home.push([at = opened(block), size] { std::memset(at, kPoison, size); });
  }
  void free(char* address, const Block& block) {
    poison(address, block.size, *block.home);
    free_[{block.home, block.size}].push_back(address);
  }
  void wait_for_users(std::unique_lock<std::mutex>& lock) {  // as CUDA's allocator does before it says that memory is out
    std::vector<std::pair<Stream*, Ticket>> pending;
    for (auto& [address, block] : deferred_) pending.insert(pending.end(), block.pending.begin(), block.pending.end());
    lock.unlock();
    for (auto& [user, ticket] : pending) user->wait(ticket);
    lock.lock();
    free_what_is_reached();
  }
  void release(std::unique_lock<std::mutex>& lock) {  // as cudaFree does: what is free is of no size and no stream any more
    auto released = std::move(free_);
    free_.clear();
    lock.unlock();
    for (auto& [key, blocks] : released)
      if (!blocks.empty()) key.first->wait(key.first->last());  // it is poisoned by then
    lock.lock();
    for (auto& [key, blocks] : released)
      for (char* address : blocks) add_gap(address, key.second);
  }
  void add_gap(char* address, size_t size) {
    auto next = gaps_.lower_bound(address);
    if (next != gaps_.end() && address + size == next->first) {
      size += next->second;
      next = gaps_.erase(next);
    }
    if (next != gaps_.begin()) {
      auto before = std::prev(next);
      if (before->first + before->second == address) {
        address = before->first;
        size += before->second;
        gaps_.erase(before);
      }
    }
    gaps_[address] = size;
  }
  void free_what_is_reached() {
    std::vector<std::pair<char*, Block>> still;
    for (auto& [address, block] : deferred_) {
      bool reached = true;
      for (auto& [user, ticket] : block.pending) reached = reached && user->reached(ticket);
      if (reached) free(address, block);
      else still.emplace_back(address, std::move(block));
    }
    deferred_.swap(still);
  }

  const size_t bytes_;
  char *closed_, *open_;
  std::mutex mutex_;
  std::unordered_map<char*, Block> live_;
  std::map<std::pair<Stream*, size_t>, std::vector<char*>> free_;
  std::map<char*, size_t> gaps_;  // of no size class and no stream
  std::vector<std::pair<char*, Block>> deferred_;
  int64_t used_ = 0, peak_ = 0;
};

Memory& memory(int device) {
  static auto* made = [] {
    auto* memories = new std::vector<std::unique_ptr<Memory>>;
    for (int device = 0; device < device_count(); ++device) memories->push_back(std::make_unique<Memory>(settings().bytes));
    return memories;
  }();
  return *made->at(device);
}

void give_back(void* address) {
  if (address) memory(owner(address)).give_back(static_cast<char*>(address));
}

struct DeviceAllocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t bytes) override { return rig::allocate(bytes, current_device()); }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    int device = owner(to);
    current_stream(device).push([to = opened(device, to), from = opened(owner(from), from), bytes] { std::memcpy(to, from, bytes); });
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override { empty_cache(); }
  void recordStream(const c10::DataPtr& block, c10::Stream user) override { record_use(block.get(), stream(user)); }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    auto figures = memory_figures(device);
    stats.allocated_bytes[0].current = figures["used"];
    stats.allocated_bytes[0].peak = figures["peak"];
    stats.reserved_bytes[0].current = figures["reserved"];
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex device) override { reset_peak(device); }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    size_t bytes = settings().bytes;
    return {bytes - memory_figures(device)["used"], bytes};
  }
};

DeviceAllocator allocator;

}  // namespace

REGISTER_ALLOCATOR(kRig, &allocator);

c10::Allocator* device_allocator() { return &allocator; }

c10::DataPtr allocate(size_t bytes, int device) {
  touch(device, "an allocation");
  void* block = bytes ? memory(device).allocate(bytes, current_stream(device)) : nullptr;
  return {block, block, &give_back, c10::Device(kRig, c10::DeviceIndex(device))};
}

char* opened(int device, const void* address) { return memory(device).opened(address); }

int owner(const void* address) {
  for (int device = 0; device < device_count(); ++device)
    if (memory(device).owns(address)) return device;
  return -1;
}

void record_use(const void* block, Stream& user) {
  if (block) memory(owner(block)).record_use(block, user);
}

size_t size_class(size_t bytes) {  // powers of two, above 1 MiB with seven steps between them
  size_t size = 512;
  while (size < bytes) size *= 2;
  if (size <= (1 << 20)) return size;
  size_t step = size / 16;
  return (bytes + step - 1) / step * step;
}

std::map<std::string, int64_t> memory_figures(int device) { return memory(device).figures(); }
void reset_peak(int device) { memory(device).reset_peak(); }
void empty_cache() {
  for (int device = 0; device < device_count(); ++device) memory(device).empty_cache();
}

}  // namespace rig
