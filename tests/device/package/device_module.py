"""`torch.rig`: what torch and its users expect of a device's module."""

from __future__ import annotations

import os
from contextlib import nullcontext
from types import SimpleNamespace, TracebackType
from typing import Any

import torch

from . import _C

Place = torch.device | str | int | None


def _index(place: Place = None) -> int:
    if isinstance(place, int):
        return place
    index = None if place is None else torch.device(place).index
    return int(_C.current_device()) if index is None else index


def _told_index(place: Place = None) -> int:
    """As torch.cuda does where it wants to be told which of its devices is meant. ValueError."""
    if place is not None and not isinstance(place, int) and torch.device(place).index is None:
        raise ValueError(f"Expected a torch.device with a specified index or an integer, but got:{place}")
    return _index(place)


def _device(place: Place = None) -> torch.device:
    return torch.device("rig", _index(place))


def is_available() -> bool:
    return True


def is_initialized() -> bool:
    return True


def init() -> None: ...


def _lazy_init() -> None: ...


def _is_in_bad_fork() -> bool:
    return False


def device_count() -> int:
    return int(_C.device_count())


def current_device() -> int:
    return int(_C.current_device())


def set_device(place: Place) -> None:
    _C.select_device(_told_index(place))


class device:
    """The context in which a device is the thread's."""

    def __init__(self, place: Place) -> None:
        self._place = _index(place)

    def __enter__(self) -> None:
        self._before = _C.select_device(self._place)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        _C.select_device(self._before)


def get_device_name(place: Place = None) -> str:
    return "Rig"


def get_device_properties(place: Place = None) -> SimpleNamespace:
    processors = int(os.environ.get("RIG_MULTIPROCESSORS", "108"))
    return SimpleNamespace(name="Rig", total_memory=_C.total_bytes(), multi_processor_count=processors)


def synchronize(place: Place = None) -> None:
    _C.synchronize(_index(place))


class Stream(torch.Stream):
    """A side stream of a device, the current one if none is named."""

    def __new__(cls, device: Place = None, priority: int = 0, **told: Any) -> Stream:
        if told:
            return super().__new__(cls, **told)  # type: ignore[return-value]
        return super().__new__(cls, device=_device(device), priority=priority)  # type: ignore[return-value]


class Event(torch.Event):
    """An event on a device."""

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> Event:
        return super().__new__(cls, "rig", enable_timing=enable_timing, blocking=blocking)  # type: ignore[return-value]


def current_stream(place: Place = None) -> torch.Stream:
    return torch.accelerator.current_stream(_device(place))


def default_stream(place: Place = None) -> torch.Stream:
    return torch.Stream(stream_id=0, device_index=_index(place), device_type=_PRIVATE_USE)


def set_stream(stream: torch.Stream) -> None:
    torch.accelerator.set_stream(stream)


def stream(chosen: torch.Stream | None) -> Any:
    return nullcontext() if chosen is None else chosen


_PRIVATE_USE = 20  # c10::DeviceType::PrivateUse1


def manual_seed(seed: int) -> None:
    _C.generator(_index()).manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    for index in range(device_count()):
        _C.generator(index).manual_seed(seed)


def initial_seed() -> int:
    return int(_C.generator(_index()).initial_seed())


def get_rng_state(place: Place = None) -> torch.Tensor:
    state: torch.Tensor = _C.generator(_index(place)).get_state()
    return state


def set_rng_state(state: torch.Tensor, place: Place = None) -> None:
    _C.generator(_index(place)).set_state(state.cpu())


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.bfloat16, torch.float16]


def is_bf16_supported() -> bool:
    return True


def empty_cache() -> None:
    _C.empty_cache()


def mem_get_info(place: Place = None) -> tuple[int, int]:
    return _C.total_bytes() - memory_reserved(place), _C.total_bytes()


def memory_allocated(place: Place = None) -> int:
    return int(_C.memory(_index(place))["used"])


def max_memory_allocated(place: Place = None) -> int:
    return int(_C.memory(_index(place))["peak"])


def memory_reserved(place: Place = None) -> int:
    return int(_C.memory(_index(place))["reserved"])


_fractions: dict[int, float] = {}


def set_per_process_memory_fraction(fraction: float, place: Place = None) -> None:
    _fractions[_told_index(place)] = fraction


def get_per_process_memory_fraction(place: Place = None) -> float:
    return _fractions.get(_told_index(place), 1.0)


def reset_peak_memory_stats(place: Place = None) -> None:
    _C.reset_peak(_index(place))
