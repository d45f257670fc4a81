"""Whether a line of the journal says what a line of its kind can say, so that readers take its keys for what they are.

Keys that are not known are passed over, as are kinds of event: later versions may write more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

Check = Callable[[Any], bool]

_MOST = 2**53  # whole numbers up to here are exact as floats, too
_MOST_DEVICES = 1_000_000  # of a run, as of a spec: readers have lists of so many
_MOST_WORKERS = 65_536


def is_understood(event: Mapping[str, Any]) -> bool:
    """Whether all keys that readers rely on are there, and hold what they should."""
    kind = event["event"]
    if not isinstance(kind, str) or not all(_holds(kind, key, value) for key, value in event.items()):
        return False
    return all(key in event for key in _NEEDED.get(kind, "").split())


def _holds(kind: str, key: str, value: Any) -> bool:
    if kind not in _NEEDED and key not in ("t", "unix"):
        return True
    check = _OF_KIND.get(f"{kind}.{key}") or _CHECKS.get(key)
    return check(value) if check is not None else type(value) is not int or abs(value) <= _MOST


def _whole(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _MOST


def _positive(value: Any) -> bool:
    return _whole(value) and value > 0


def _device(value: Any) -> bool:
    return _whole(value) and value < _MOST_DEVICES


def _workers(value: Any) -> bool:
    return _positive(value) and value <= _MOST_WORKERS


def _shape(value: Any) -> bool:
    """Whether it is the devices of each node."""
    return _list(_whole)(value) and sum(value) <= _MOST_DEVICES


def _number(value: Any) -> bool:
    return type(value) is float or (type(value) is int and abs(value) <= _MOST)


def _finite(value: Any) -> bool:
    return _number(value) and math.isfinite(value)


def _rate(value: Any) -> bool:
    return _finite(value) and value > 0


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _mapping(value: Any) -> bool:
    return isinstance(value, dict)


def _or_null(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _list(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _named(check: Check) -> Check:
    return lambda value: isinstance(value, dict) and all(map(check, value.values()))


def _numbered(check: Check) -> Check:
    """A check of mappings whose keys are whole numbers as text."""
    return lambda value: _named(check)(value) and all(key.isdecimal() and len(key) < 16 for key in value)


def _measured(value: Any) -> bool:
    return _numbered(_rate)(value) and bool(value) and all(0 < int(count) <= _MOST_DEVICES for count in value)


def _course(value: Any) -> bool:
    """Whether it is pairs of a second and a price from then on, by second, from 0 on."""
    if not _list(lambda pair: _list(_finite)(pair) and len(pair) == 2 and min(pair) >= 0)(value) or not value:
        return False
    seconds = [second for second, _ in value]
    return seconds[0] == 0 and all(a < b for a, b in zip(seconds, seconds[1:]))


def _best(value: Any) -> bool:
    """Whether it says which epoch of a job was the best, by which metric, and its value."""
    checks = {"metric": _text, "value": _number, "epoch": _positive}
    return isinstance(value, dict) and value.keys() == checks.keys() and all(checks[key](value[key]) for key in checks)


def _courses(value: Any) -> bool:
    return _named(_course)(value)


def _rank(value: Any) -> bool:
    whole, text = _or_null(_whole), _or_null(_text)
    return isinstance(value, dict) and all(
        check(value.get(key))
        for key, check in {
            "rank": whole, "node": whole, "device": whole, "device_name": text, "device_model": text,
            "kind": text, "cores": _or_null(_list(_whole)),
        }.items()
    )  # fmt: skip


_CHECKS: dict[str, Check] = {
    **dict.fromkeys(("t", "unix", "forming", "wall_seconds"), _finite),
    **dict.fromkeys(("epoch", "step", "session", "count", "lane", "sample", "substitute", "rank", "parts"), _whole),
    **dict.fromkeys(("members_per_device", "working", "available", "lent"), _whole),
    **dict.fromkeys(("round", "bytes", "chosen", "samples", "max_epochs", "parameters"), _or_null(_whole)),
    **dict.fromkeys(("parameter_bytes", "search_seed"), _or_null(_whole)),
    "virtual_workers": _or_null(_workers),
    "batch_size": _or_null(_positive),
    **dict.fromkeys(("seconds", "rate", "deaf", "start"), _number),
    **dict.fromkeys(
        ("demand", "arrival", "learning_rate", "bound_seconds", "end", "due", "end_seconds"), _or_null(_number)
    ),
    **dict.fromkeys(
        ("why", "text", "path", "source", "kind", "reason", "stage", "error", "host", "name", "status"), _text
    ),
    **dict.fromkeys(("job", "data", "traceback", "checkpoint", "digest", "stream", "part"), _or_null(_text)),
    **dict.fromkeys(("devices", "ranks"), _list(_device)),
    **dict.fromkeys(("shares", "kept"), _list(_whole)),
    "devices_per_node": _shape,
    **dict.fromkeys(("trainers", "prepared_by"), _list(_whole)),
    **dict.fromkeys(("hosts", "jobs"), _list(_text)),
    **dict.fromkeys(("metrics", "paces", "overhead_seconds", "ensemble"), _named(_number)),
    "of_data": _named(_rate),
    "of_new": _named(_rate),
    **dict.fromkeys(("versions", "policy_parameters"), _mapping),
    "rehearsal": _or_null(_mapping),
    **dict.fromkeys(("batch", "executors", "epochs"), _positive),
    "limit": _text,
    "courses": _courses,
    "fits": _named(_positive),
    "allocation": _named(_list(_device)),
    "measured": _measured,
    "kinds": _named(_measured),
    "fitted": _list(_number),
    **dict.fromkeys(("counts", "computed"), _numbered(_number)),
    "waited": _numbered(_named(_number)),
}
_OF_KIND: dict[str, Check] = {
    "cluster.ranks": _list(_rank),
    **dict.fromkeys(("batch_profile.rate", "executor_profile.rate", "profile.rate", "timed.rate"), _rate),
    "late.deadline": _number,
    **dict.fromkeys((f"service_window.{key}" for key in ("begin", "end", "promised", "had")), _finite),
    "service_window.broken": lambda value: isinstance(value, bool),
    "job.service_level": _or_null(lambda value: _named(_rate)(value) and value.keys() == {"devices", "window"}),
    **dict.fromkeys(("samples.read", "samples.laid", "samples.made"), _named(_whole)),
    **dict.fromkeys(("job.seed", "job.order_seed"), _or_null(_whole)),
    "preprocessors.counts": _measured,
    "energy.jobs": _named(_finite),
    "energy.idle": _finite,
    "energy.sources": _list(_text),
    "epoch.devices": lambda value: _list(_device)(value) and bool(value),
    **dict.fromkeys(("checkpoint.best", "best.best"), _or_null(_best)),
    **dict.fromkeys(("admitted.deadline", "done.deadline"), _or_null(_number)),
    **dict.fromkeys(("search.trial", "search.start", "search.time", "result.trial"), _whole),
    **dict.fromkeys(("ahead.trial", "ahead.start", "withdrawn.trial", "withdrawn.unused"), _whole),
    **dict.fromkeys(("search.end", "ahead.end", "bounds.width"), _positive),
    "bounds.time": _whole,
    **dict.fromkeys(("bounds.trials", "bounds.epochs"), _or_null(_positive)),
    "bounds.hours": _or_null(_rate),
    "bounds.wish": _or_null(_whole),
    **dict.fromkeys(("own_trial.trial", "own_trial.time"), _whole),
    "own_trial.values": _mapping,
    "own_trial.value": _or_null(_finite),
    "search.values": _mapping,
    "ahead.values": _or_null(_mapping),
    **dict.fromkeys(("ahead.sure", "ahead.probable"), lambda value: isinstance(value, bool)),
    "search.copy": _mapping,
    "search.cost": _positive,
    "result.value": _or_null(_number),
    "result.further": _list(_finite),
    "bounds.further": _list(_mapping),
    "front.time": _whole,
}

_NEEDED = {
    "cluster": "ranks devices_per_node",
    "prices": "courses",
    "job": "t job",
    "profile": "job count rate",
    "timed": "job count rate",
    "batch_profile": "job batch rate",
    "executor_profile": "job executors rate",
    "batch": "job batch",
    "rates": "job measured",
    "planned": "t allocation",
    "started": "t job devices epoch step",
    "formed": "job seconds",
    "epoch": "t job epoch metrics devices",
    "checkpoint": "job path",
    "best": "job best",
    **dict.fromkeys(("stopped", "paused"), "t job devices epoch step why"),
    "search": "t job trial start end time kind",
    "bounds": "time width",
    "own_trial": "trial time values status value",
    "result": "t job trial epoch value",
    "pruned": "t job epoch",
    "front": "time jobs",
    "ahead": "t job trial epoch start end",
    "withdrawn": "t job trial epoch metrics checkpoint unused",
    "set_back": "t job epoch step",
    "halted": "t job epoch step",
    "taken_up": "t job",
    "lost": "devices",
    "done": "t job epoch",
    "extended": "t job epochs",
    "admitted": "job",
    "late": "job deadline end",
    "service_window": "t job begin end promised had broken",
    "pardoned": "t job",
    "failed": "t job epoch error",
    "rank_cost": "job",
    "round_end": "t",
    "skipped": "data kind sample substitute epoch reason stage",
    "preprocessing": "t round working available",
    "samples": "read laid made",
    "energy": "jobs idle sources",
    "ended": "t overhead_seconds",
    **dict.fromkeys(("session", "allocation", "preprocessors", "stopping", "warning"), ""),
}
