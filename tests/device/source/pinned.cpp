#include "pinned.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "memory.h"

namespace rig {
namespace {

// A block that nobody holds is poisoned and used again at once; a copy under way holds its block. As with CUDA, the
// system gets blocks back when the cache is emptied, and not before.
class Pinned final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    std::lock_guard<std::mutex> guard(mutex_);
    size_t size = size_class(bytes);
    auto& free = free_[size];
    char* block;
    if (free.empty()) {
      block = static_cast<char*>(std::aligned_alloc(512, size));
      std::memset(block, 0xff, size);
      bytes_ += int64_t(size);
    } else {
      block = free.back();
      free.pop_back();
    }
    sizes_[block] = size;
    return {block, block, raw_deleter(), c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return [](void* block) { static_cast<Pinned*>(pinned_allocator())->give_back(static_cast<char*>(block)); };
  }
  bool owns(const void* address) {
    std::lock_guard<std::mutex> guard(mutex_);
    auto after = sizes_.upper_bound(static_cast<char*>(const_cast<void*>(address)));
    if (after == sizes_.begin()) return false;
    auto [block, size] = *--after;
    return address < block + size;
  }
  int64_t bytes() {
    std::lock_guard<std::mutex> guard(mutex_);
    return bytes_;
  }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
  bool record_event(void*, void*, c10::Stream) override { return true; }
  void empty_cache() override {
    std::lock_guard<std::mutex> guard(mutex_);
    for (auto& [size, blocks] : free_) {
      bytes_ -= int64_t(size * blocks.size());
      for (char* block : blocks) std::free(block);
    }
    free_.clear();
  }
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}

 private:
  void give_back(char* block) {
    if (!block) return;
    std::lock_guard<std::mutex> guard(mutex_);
    auto found = sizes_.find(block);
    std::memset(block, 0xff, found->second);
    free_[found->second].push_back(block);
    sizes_.erase(found);
  }

  std::mutex mutex_;
  std::map<char*, size_t> sizes_;
  std::map<size_t, std::vector<char*>> free_;
  int64_t bytes_ = 0;
};

}  // namespace

at::HostAllocator* pinned_allocator() {
  static auto* pinned = new Pinned;
  return pinned;
}
bool is_pinned(const void* address) { return static_cast<Pinned*>(pinned_allocator())->owns(address); }
int64_t pinned_bytes() { return static_cast<Pinned*>(pinned_allocator())->bytes(); }

}  // namespace rig
