// A device's memory: closed to the host, poisoned, and used again as soon as it is given back.
#pragma once
#include <c10/core/CachingDeviceAllocator.h>

#include <cstdint>
#include <map>
#include <string>

#include "streams.h"

namespace rig {

c10::DataPtr allocate(size_t bytes, int device);
c10::Allocator* device_allocator();
char* opened(int device, const void* address);   // where kernels find what tensors have at `address`, which faults
int owner(const void* address);                  // the device whose memory it is, or -1
void record_use(const void* block, Stream& user);
size_t size_class(size_t bytes);
std::map<std::string, int64_t> memory_figures(int device);
void reset_peak(int device);
void empty_cache();

}  // namespace rig
