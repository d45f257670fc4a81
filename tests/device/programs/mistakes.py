"""Mistakes with devices, planted: each of these is right if it is `careful`, and says whether its result is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
import torch_rig
from torch import Tensor
from torch.nn.functional import batch_norm, conv2d

FIRST, SECOND = torch.device("rig", 0), torch.device("rig", 1)


def attempt(name: str, careful: bool, schedule: str, forbidden: list[int]) -> dict[str, Any]:
    """Return whether the result was right, and what was refused."""
    torch_rig.schedule(schedule)
    torch_rig.rules(forbidden=tuple(forbidden))
    try:
        return {"right": bool(globals()[name](careful)), "refused": ""}
    except RuntimeError as error:
        return {"right": False, "refused": str(error).splitlines()[0]}


def in_schedules(name: str, schedules: list[str], forbidden: list[int]) -> list[dict[str, Any]]:
    """Return what the careful program gives in each schedule."""
    return [attempt(name, True, schedule, forbidden) for schedule in schedules]


def _stream(device: torch.device = FIRST) -> Any:
    return torch.Stream(device)


def _main(device: torch.device = FIRST) -> Any:
    return torch.accelerator.current_stream(device)


def _all(tensor: Tensor, value: float) -> bool:
    return bool((tensor.cpu() == value).all())


def use_of_a_batch_before_its_copy(careful: bool) -> bool:
    side = _stream()
    with side:
        batch = torch.full((1000,), 3.0).pin_memory().to(FIRST, non_blocking=True)
    if careful:
        _main().wait_stream(side)
        batch.record_stream(_main())
    return _all(batch * 1, 3)


def copy_of_a_result_before_its_kernel(careful: bool) -> bool:
    zeros, landing, side = torch.zeros(1000, device=FIRST), torch.zeros(1000).pin_memory(), _stream()
    torch.accelerator.synchronize()
    result = zeros + 5
    return _copied_beside(result, landing, side, careful)


def copy_of_what_a_kernel_changes_before_it_has(careful: bool) -> bool:
    result, landing, side = torch.zeros(1000, device=FIRST), torch.zeros(1000).pin_memory(), _stream()
    torch.accelerator.synchronize()
    result.add_(5)
    return _copied_beside(result, landing, side, careful)


def _copied_beside(result: Tensor, landing: Tensor, side: Any, careful: bool) -> bool:
    if careful:
        side.wait_stream(_main())
    with side:
        landing.copy_(result, non_blocking=True)
    result.record_stream(side)
    side.synchronize()
    return _all(landing, 5)


def memory_given_back_while_a_copy_reads_it(careful: bool) -> bool:
    side, landing, result = _stream(), torch.zeros(1000).pin_memory(), torch.full((1000,), 7.0, device=FIRST)
    side.wait_stream(_main())
    with side:
        landing.copy_(result, non_blocking=True)
    if careful:
        result.record_stream(side)
    del result
    other = torch.full((1000,), -1.0, device=FIRST)
    torch.accelerator.synchronize()
    return _all(landing, 7) and _all(other, -1)


def pinned_memory_changed_while_a_copy_reads_it(careful: bool) -> bool:
    source = torch.full((1000,), 1.0).pin_memory()
    there = source.to(FIRST, non_blocking=True)
    if careful:
        _main().synchronize()
    source.fill_(2)
    return _all(there, 1)


def landing_read_before_its_copy(careful: bool) -> bool:
    landing = torch.zeros(1000).pin_memory()
    landing.copy_(torch.full((1000,), 4.0, device=FIRST), non_blocking=True)
    if careful:
        torch.accelerator.synchronize()
    return _all(landing.clone(), 4)


def pinned_memory_read_after_its_end(careful: bool) -> bool:
    kept = torch.full((1000,), 4.0).pin_memory()
    seen = kept.numpy()
    if not careful:
        seen = _without_owner(kept)
        del kept
    torch.zeros(2, device=FIRST)
    return bool((seen == 4).all())


def _without_owner(tensor: Tensor) -> Any:
    import ctypes

    import numpy as np

    return np.ctypeslib.as_array((ctypes.c_float * tensor.numel()).from_address(tensor.data_ptr()))


def _changed_beside(reading: Callable[[Tensor], Tensor], careful: bool) -> bool:
    """A side stream writes what a kernel of the main one has yet to read."""
    image, source, side = torch.ones(1, 2, 8, 8, device=FIRST), torch.full((1, 2, 8, 8), 2.0).pin_memory(), _stream()
    wanted = reading(torch.ones(1, 2, 8, 8))
    torch.accelerator.synchronize()
    result = reading(image)
    if careful:
        side.wait_stream(_main())
    with side:
        image.copy_(source, non_blocking=True)
    side.synchronize()
    return torch.equal(result.cpu(), wanted)


def input_of_a_sum_overwritten(careful: bool) -> bool:
    return _changed_beside(lambda image: image + image, careful)


def input_of_a_convolution_overwritten(careful: bool) -> bool:
    return _changed_beside(lambda image: conv2d(image, torch.ones(3, 2, 3, 3).to(image.device)), careful)


def statistics_of_batch_norm_read_early(careful: bool) -> bool:
    mean, variance, landing = torch.zeros(2, device=FIRST), torch.ones(2, device=FIRST), torch.zeros(2).pin_memory()
    torch.accelerator.synchronize()
    batch_norm(torch.ones(4, 2, device=FIRST), mean, variance, training=True, momentum=1.0)
    side = _stream()
    if careful:
        side.wait_stream(_main())
    with side:
        landing.copy_(mean, non_blocking=True)
    side.synchronize()
    return _all(landing, 1)


def mask_of_dropout_read_early(careful: bool) -> bool:
    landing, side = torch.zeros(1000).pin_memory(), _stream()
    noise = torch.zeros(1000, device=FIRST)
    torch.accelerator.synchronize()
    noise.bernoulli_(0.5)
    if careful:
        side.wait_stream(_main())
    with side:
        landing.copy_(noise, non_blocking=True)
    side.synchronize()
    return bool(torch.equal(landing, noise.cpu()))


def memory_used_before_it_is_filled(careful: bool) -> bool:
    total = (torch.zeros if careful else torch.empty)(1000, device=FIRST)
    return _all(total + 0, 0)


def event_on_the_wrong_stream(careful: bool) -> bool:
    side, landing, ready = _stream(), torch.zeros(1000).pin_memory(), torch.Event(FIRST)
    result = torch.full((1000,), 4.0, device=FIRST)
    side.wait_stream(_main())
    with side:
        landing.copy_(result, non_blocking=True)
    ready.record(side if careful else _main())
    ready.synchronize()
    return _all(landing, 4)


def _in_thread(work: Callable[[], Any], careful: bool) -> Any:
    """Do the work on the second device, in a thread that has selected it if it is careful."""
    results: list[Any] = []

    def run() -> None:
        try:
            if careful:
                torch.accelerator.set_device_index(1)
            results.append(work())
        except RuntimeError as error:
            results.append(error)

    torch.accelerator.set_device_index(1)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if isinstance(results[0], RuntimeError):
        raise results[0]
    return results[0]


def kernel_in_a_thread_that_selected_no_device(careful: bool) -> bool:
    return _in_thread(lambda: _all(torch.ones(10, device=SECOND) + 1, 2), careful)


def device_without_index_in_a_new_thread(careful: bool) -> bool:
    return _in_thread(lambda: torch.ones(3, device="rig").device == SECOND, careful)


def current_stream_of_a_new_thread(careful: bool) -> bool:
    return _in_thread(lambda: torch.accelerator.current_stream().device == SECOND, careful)


def wait_for_an_event_in_a_new_thread(careful: bool) -> bool:
    torch.accelerator.set_device_index(1)
    event = torch.Event(SECOND)
    event.record(_main(SECOND))

    def waits() -> bool:
        event.synchronize()
        return True

    return _in_thread(waits, careful)


def tensors_of_two_devices(careful: bool) -> bool:
    one = torch.ones(3, device=FIRST)
    torch.accelerator.set_device_index(1)
    other = torch.ones(3, device=SECOND)
    if careful:
        torch.accelerator.set_device_index(0)
        other = other.to(FIRST)
    return _all(one + other, 2)


def tensor_on_another_device(careful: bool) -> bool:
    return torch.empty(3, device=SECOND if careful else FIRST).device == SECOND


def host_tensor_in_a_kernel(careful: bool) -> bool:
    other = torch.ones(3)
    return _all(torch.ones(3, device=FIRST) + (other.to(FIRST) if careful else other), 2)
