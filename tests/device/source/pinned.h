// Host memory that devices copy from and to beside the host's work.
#pragma once
#include <ATen/core/CachingHostAllocator.h>

namespace rig {

at::HostAllocator* pinned_allocator();
bool is_pinned(const void* address);
int64_t pinned_bytes();  // those that nobody holds, too

}  // namespace rig
