"""The events of a run: one frozen class for each kind of line in its journal.

A field is called as its key in the line. A field without a default stands in every line ever written; one with a
default is missing from lines of older versions, and `omitted` fields also from new lines where they have the default.
`parse` reads the JSON of a line, `Event.told` makes it. Keys that a class does not have are passed over, and kinds
that are not known become `Other`: later versions may write more.

Times are seconds: `t` of the run, over all its sessions; `unix` since 1970. Devices are numbers over all trainers, node
by node. Rates are samples per second. Epochs are numbers of finished epochs.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Union, get_args, get_origin, get_type_hints

Read = Callable[[Any], Any]
"""Takes what JSON holds and returns it as its type; ValueError: it cannot be that."""

_MOST = 2**53  # whole numbers up to here are exact as floats, too
_MOST_DEVICES = 1_000_000  # of a run, as of a spec: readers have lists of so many
_MOST_WORKERS = 65_536
_MOST_DIGITS = 15


def omitted(*, default: Any) -> Any:
    """A field that is left out of a line where it has this value."""
    told = {"omitted": True}
    return field(default_factory=dict, metadata=told) if default == {} else field(default=default, metadata=told)


# Types of fields: what JSON may hold there.


def _whole(least: int, most: int) -> Read:
    def read(value: Any) -> int:
        if type(value) is int and least <= value <= most:
            return value
        raise ValueError(f"no whole number from {least} to {most}")

    return read


def _number(value: Any) -> float:
    if type(value) is float:
        return value
    if type(value) is int and -_MOST <= value <= _MOST:
        return float(value)
    raise ValueError("no number")


def _anything(value: Any) -> Any:
    if type(value) is not int or -_MOST <= value <= _MOST:
        return value
    raise ValueError("a number that is too large")


def _finite(value: Any) -> float:
    if math.isfinite(number := _number(value)):
        return number
    raise ValueError("no finite number")


def _rate(value: Any) -> float:
    if 0 < (number := _number(value)) < math.inf:
        return number
    raise ValueError("no number above 0")


def _prices(value: Any) -> tuple[tuple[float, float], ...]:
    """Pairs of a second and a price from then on, by second, from 0 on."""
    pairs: tuple[tuple[float, ...], ...] = _list_of(_list_of(_finite))(value)
    if not pairs or any(len(pair) != 2 or min(pair) < 0 for pair in pairs):
        raise ValueError("no pairs of a second and a price")
    seconds = [pair[0] for pair in pairs]
    if seconds[0] != 0 or any(a >= b for a, b in zip(seconds, seconds[1:])):
        raise ValueError("prices are not in order of time, from second 0 on")
    return pairs  # type: ignore[return-value]


def _devices_per_node(value: Any) -> tuple[int, ...]:
    counts = tuple(map(_whole(0, _MOST), value)) if isinstance(value, list) else (-1,)
    if min(counts, default=0) < 0 or sum(counts) > _MOST_DEVICES:
        raise ValueError("no numbers of devices")
    return counts


def _some(values: Any) -> Any:
    if values:
        return values
    raise ValueError("there is none")


Count = Annotated[int, _whole(0, _MOST)]
Positive = Annotated[int, _whole(1, _MOST)]
Device = Annotated[int, _whole(0, _MOST_DEVICES - 1)]
DeviceCount = Annotated[int, _whole(1, _MOST_DEVICES)]
Workers = Annotated[int, _whole(1, _MOST_WORKERS)]
Whole = Annotated[int, _whole(-_MOST, _MOST)]
Finite = Annotated[float, _finite]
Rate = Annotated[float, _rate]
Prices = Annotated[tuple[tuple[float, float], ...], _prices]
DevicesPerNode = Annotated[tuple[int, ...], _devices_per_node]
Devices = tuple[Device, ...]
SomeDevices = Annotated[Devices, lambda value: _some(_reader(Devices)(value))]
Measured = Annotated[Mapping[int, float], lambda value: _some(_reader(Mapping[DeviceCount, Rate])(value))]
"""Count of devices -> rate."""
Metrics = Mapping[str, float]

_OF_TYPE: Mapping[Any, Read] = {int: _whole(0, _MOST), float: _number, Any: _anything}


@cache
def _reader(hint: Any) -> Read:
    """Return the function that reads values of a type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return arguments[1]  # type: ignore[no-any-return]
    if origin in (Union, types.UnionType):
        inner = _reader(next(each for each in arguments if each is not types.NoneType))
        return lambda value: None if value is None else inner(value)
    if origin is tuple:
        return _list_of(_reader(arguments[0]))
    if origin is not None:
        return _mapping_of(get_origin(arguments[0]) is Annotated or arguments[0] is int, *map(_reader, arguments))
    if is_dataclass(hint):
        return _record_of(hint)  # type: ignore[arg-type]
    return _OF_TYPE.get(hint) or _instance_of(hint)


def _instance_of(kind: type) -> Read:
    def read(value: Any) -> Any:
        if isinstance(value, kind):
            return value
        raise ValueError(f"no {kind.__name__}")

    return read


def _list_of(inner: Read) -> Read:
    def read(value: Any) -> tuple[Any, ...]:
        if isinstance(value, list):
            return tuple(map(inner, value))
        raise ValueError("no list")

    return read


def _mapping_of(numbered: bool, key: Read, inner: Read) -> Read:
    def read(value: Any) -> Mapping[Any, Any]:
        if not isinstance(value, dict):
            raise ValueError("no object")
        if numbered:  # the keys of JSON are text
            return {key(_integer(name)): inner(item) for name, item in value.items()}
        return {name: inner(item) for name, item in value.items()}

    return read


def _integer(text: str) -> int:
    if text.isdecimal() and len(text) <= _MOST_DIGITS:
        return int(text)
    raise ValueError("no number as a key")


def _record_of(kind: type) -> Read:
    form = _form(kind)

    def read(value: Any) -> Any:
        if isinstance(value, dict):
            return form.made(value)
        raise ValueError("no object")

    return read


@dataclass(frozen=True)
class _Form:
    """How a class is read and written."""

    kind: type
    readers: Mapping[str, Read]
    required: frozenset[str]
    defaults: Mapping[str, Any]
    omitted: frozenset[str]

    def made(self, told: Mapping[str, Any]) -> Any:
        """An instance of what JSON says. ValueError: it says what cannot be."""
        if not self.required <= told.keys():
            raise ValueError(f"{', '.join(sorted(self.required - told.keys()))} is missing")
        readers, values = self.readers, dict(self.defaults)
        for key, value in told.items():
            if key in readers:
                values[key] = readers[key](value)
        instance: Any = object.__new__(self.kind)
        vars(instance).update(values)  # what __init__ does, without a call for each field
        return instance


@cache
def _form(kind: Any) -> _Form:
    hints, defaults = get_type_hints(kind, include_extras=True), dict[str, Any]()
    for each in fields(kind):
        if each.default is not MISSING:
            defaults[each.name] = each.default
        elif each.default_factory is not MISSING:
            defaults[each.name] = each.default_factory()
    readers = {each.name: _reader(hints[each.name]) for each in fields(kind)}
    left_out = frozenset(each.name for each in fields(kind) if each.metadata.get("omitted"))
    return _Form(kind, readers, frozenset(readers.keys() - defaults.keys()), defaults, left_out)


KINDS: dict[str, Any] = {}
"""Each kind of event that is written, by its name in the journal."""


if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Callable[[type], type]:
        """Of Python 3.11 on, and of type checkers alone."""
        return lambda kind: kind


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field, omitted))
class _Frozen:
    """Each class that is derived from it is a frozen dataclass, whose fields are given by name."""

    event: ClassVar[str] = ""
    durable: ClassVar[bool] = False
    handler: ClassVar[str] = ""

    def __init_subclass__(cls, kind: str = "", durable: bool = False, written: bool = True) -> None:
        cls.event, cls.durable, cls.handler = kind, durable, f"on_{kind}"
        dataclass(frozen=True, kw_only=True, eq=False, repr=False)(cls)  # more methods take half of the import's time
        if kind and written:
            KINDS[kind] = cls


class Event(_Frozen):
    """Something that happened in a run, at a second `t` of it.

    Attributes:
        event: its kind, as the journal has it.
        durable: a line is on the disk before anything follows from it; others survive any kill, but not a power cut.
        handler: the method of observers that takes it.
    """

    t: Finite = 0.0
    unix: Finite = 0.0

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    def __hash__(self) -> int:
        return hash((self.event, self.t, self.unix))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in vars(self).items())})"

    def told(self) -> dict[str, Any]:
        """Return the event as JSON holds it, but for records in it, which are objects of their fields."""
        kind: Any = type(self)
        form = _form(kind)
        told = {"t": self.t, "unix": self.unix, "event": self.event, **vars(self)}
        for key in form.omitted:
            if told[key] == form.defaults[key]:
                del told[key]
        return told

    def at(self, t: float, unix: float) -> Any:
        """Return the event with these times."""
        instance = object.__new__(type(self))
        vars(instance).update(vars(self), t=t, unix=unix)
        return instance


class JobEvent(Event):
    """Something that happened to a job."""

    job: str


class Other(Event):
    """An event of a kind that this version does not know; `keys`: all of its line."""

    keys: Mapping[str, Any]

    @staticmethod
    def unknown(kind: str, told: Mapping[str, Any]) -> Other:
        """Return the event of a kind that is not known. ValueError: its time is none."""
        times = {key: _finite(told[key]) for key in ("t", "unix") if key in told}
        event = Other(keys=told, **times)
        vars(event)["event"] = kind
        return event

    def told(self) -> dict[str, Any]:
        return {**self.keys, "t": self.t, "unix": self.unix}


def parse(told: Any) -> Event:
    """Return the event of a line's JSON. ValueError: it is none, or holds what no event of its kind can."""
    kind = told.get("event") if isinstance(told, dict) else None
    if not isinstance(kind, str):
        raise ValueError("no event")
    known = KINDS.get(kind)
    event: Event = _form(known).made(told) if known is not None else Other.unknown(kind, told)
    return event


class Observer:
    """Takes events, each in a method `on_KIND`, where it has one."""

    def take(self, event: Event) -> None:
        """Take one event."""
        method = getattr(self, event.handler, None)
        if method is not None:
            method(event)


# Parts of events.


def _two_words(value: Any) -> tuple[str, str]:
    if isinstance(value, list) and len(value) == 2 and all(isinstance(each, str) for each in value):
        return value[0], value[1]
    raise ValueError("no two words")


@dataclass(frozen=True)
class Rank:
    """One MPI rank and what it does.

    Attributes:
        role: coordinator+preprocessor, preprocessor or trainer.
        device: its number; None: it has none.
        device_model: as its maker calls it.
        kind: of the device; None: all are alike.
        node_bytes, shared_bytes: memory of the node that the run may use, and free shared memory.
        device_bytes: memory of the device; None: it is a CPU.
    """

    rank: Count | None = None
    node: Count | None = None
    host: str = ""
    role: str = ""
    device: Count | None = None
    device_name: str | None = None
    cores: tuple[Count, ...] | None = ()
    node_bytes: Any = None
    shared_bytes: Any = None
    device_bytes: Any = None
    device_model: str | None = None
    pci: Any = None
    kind: str | None = None


@dataclass(frozen=True)
class Waited:
    """Seconds that one device waited in one epoch: for samples (or the pace), and for the peers of its group."""

    data: float = 0.0
    peers: float = 0.0


@dataclass(frozen=True)
class Best:
    """A job's best epoch so far, counted from 1, and the value that a metric had then."""

    metric: str
    value: float
    epoch: Positive


@dataclass(frozen=True)
class SearchedMetric:
    """A metric of a search; `mode` is `max` where more of it is better, else `min`."""

    metric: str
    mode: str


@dataclass(frozen=True)
class Copied:
    """From whom a trial goes on: another one's number, the epochs that it had then, and the trial's values from now."""

    donor: Count
    epoch: Count
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Accepted:
    """A change of data or code that somebody accepted, and the networks trained before -> their epochs then."""

    what: str
    jobs: Mapping[str, Count]


@dataclass(frozen=True)
class Rehearsal:
    """Devices are played: `time_scale` seconds for one second of a real run."""

    time_scale: float | None = None


@dataclass(frozen=True)
class ServiceLevel:
    """So many devices in the mean of each window of so many seconds."""

    devices: Rate
    window: Rate


# The run.


class Session(Event, kind="session", durable=True):
    """The run starts, or goes on.

    Attributes:
        session: its number, from 0.
        versions: of torch, numpy, mpi4py, h5py.
        rehearsal: what plays the devices; None: they train.
        compared_by: a metric, and `higher` or `lower`; None: nobody says.
    """

    session: Count = 0
    fleet: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    host: str = ""
    spec_hash: str = ""
    policy: str = ""
    policy_parameters: Mapping[str, Any] = field(default_factory=dict)
    rehearsal: Rehearsal | None = None
    name: str = ""
    reduce: str | None = ""
    search_seed: Count | None = None
    compared_by: Annotated[tuple[str, str], _two_words] | None = None


class Cluster(Event, kind="cluster"):
    """The machine of a session."""

    ranks: tuple[Rank, ...]
    devices_per_node: DevicesPerNode
    members_per_device: Count = 1

    @property
    def size(self) -> int:
        """Number of devices."""
        return sum(self.devices_per_node)

    @property
    def node_starts(self) -> tuple[int, ...]:
        """First device of each node."""
        return tuple(sum(self.devices_per_node[:node]) for node in range(len(self.devices_per_node)))


class Allocation(Event, kind="allocation"):
    """What a batch scheduler gave the session; `left`: seconds until it ends, None: not known."""

    scheduler: str = ""
    id: Any = ""
    left: Finite | None = None


class PricesTold(Event, kind="prices"):
    """Kind of device -> its price of a device-hour over time; `worth`: None: prices decide nothing."""

    courses: Mapping[str, Prices]
    worth: float | None = None


class Job(JobEvent, kind="job"):
    """What a network is, as its spec asks for it; each session tells it.

    Attributes:
        model: or its task, with its arguments.
        batch_size: samples of one virtual worker in a step.
        samples: of one epoch.
        arrival: second of the run.
        deadline: as the spec has it: seconds, or a time as text.
        due: the deadline as `t` counts in this session.
        better: metric -> `higher` or `lower`.
    """

    model: str = ""
    parameters: Count | None = None
    parameter_bytes: Count | None = None
    virtual_workers: Workers | None = None
    batch_size: Positive | None = None
    seed: Count | None = None
    order_seed: Count | None = None
    data: str | None = ""
    samples: Count | None = None
    part: str | None = None
    max_epochs: Count | None = None
    arrival: float | None = 0.0
    deadline: Any = None
    due: float | None = None
    priority: Whole | None = 0
    guaranteed: Any = False
    minimum_devices: Count | None = 1
    service_level: ServiceLevel | None = None
    better: Mapping[str, str] | None = None


class Warned(Event, kind="warning"):
    """Something that people should know, of a job or of the run; `damaged_line`: it stands for a line that is damaged,
    and this is its number, from 1.
    """

    text: str = ""
    job: str | None = None
    damaged_line: Count | None = omitted(default=None)


class Stopping(Event, kind="stopping"):
    """The session was asked to stop; these jobs train, and are saved."""

    jobs: tuple[str, ...] = ()


class RanksLost(Event, kind="lost"):
    """Ranks are gone, and their devices with them; the others go on."""

    devices: Devices
    ranks: tuple[Device, ...] = ()
    hosts: tuple[str, ...] = ()


class Samples(Event, kind="samples"):
    """By data set, what a session handed to networks, laid into lanes, and prepared for that."""

    read: Mapping[str, Count]
    laid: Mapping[str, Count]
    made: Mapping[str, Count]


class Energy(Event, kind="energy"):
    """Joules since the last such line: by job, and of hosts whose devices idled; what told it."""

    jobs: Mapping[str, Finite]
    idle: Finite
    sources: tuple[str, ...]


class Skipped(Event, kind="skipped", durable=True):
    """A sample could not be made, and another was taken in its place.

    Attributes:
        kind: train or held_out.
        epoch: in which it was met first, from 0.
        stage: where the error was raised: source or transform.
        rank: whose preprocessor met it.
    """

    data: str
    kind: str
    sample: Count
    substitute: Count
    epoch: Count
    stage: str
    reason: str
    rank: Count = 0


class Fingerprints(Event, kind="fingerprints"):
    """What data and code are, where they were not noted before or are others now."""

    data: Mapping[str, Mapping[str, Any]]
    code: Mapping[str, Mapping[str, Any]]
    accepted: tuple[Accepted, ...] = ()


class Ended(Event, kind="ended", durable=True):
    """The session ends in good order.

    Attributes:
        overhead_seconds: spent on something else than training, by what it was, over all sessions.
        ensemble: figures of all networks together.
    """

    overhead_seconds: Metrics
    status: str = "done"
    wall_seconds: Finite | None = None
    ensemble: Metrics | None = None


# Rates.


class Profile(JobEvent, kind="profile"):
    """A measurement of a job; `seconds`: what it took, `forming`: until the group and its job were there."""

    count: DeviceCount
    rate: Rate
    devices: Devices = ()
    batches: Count = 0
    seconds: Finite = 0.0
    forming: Finite = 0.0
    kind: str = omitted(default="")


class Timed(JobEvent, kind="timed"):
    """The first steps of a group told how fast it trains."""

    count: DeviceCount
    rate: Rate
    devices: Devices = ()
    batches: Count = 0
    seconds: Finite = 0.0
    kind: str = omitted(default="")


class BatchProfile(JobEvent, kind="batch_profile"):
    """A measurement of a job on one device with another batch, of all virtual workers."""

    batch: Positive
    rate: Rate
    devices: Devices = ()
    batches: Count = 0
    seconds: Finite = 0.0


class ExecutorProfile(JobEvent, kind="executor_profile"):
    """How fast a job is with so many of its trainers on an accelerator, and nobody else's."""

    executors: Positive
    rate: Rate


class Rates(JobEvent, kind="rates"):
    """A job's rate curve.

    Attributes:
        source: profile, file, alike, guessed or training.
        measured: count of devices -> rate, on the home kind.
        fitted: r(1), r(2), ...
        kinds: the same as `measured` by kind of device; empty: all are alike.
    """

    measured: Measured
    source: str = ""
    fitted: tuple[float, ...] = ()
    kinds: Mapping[str, Measured] = omitted(default={})


class Guesses(Event, kind="guesses"):
    """Networks that nobody has measured are guessed anew: name -> samples/s on one device, on others in proportion.

    A guess of before is a `Rates` of its own for each network, with the source `guessed`.
    """

    rates: Mapping[str, Rate]


class Preprocessors(Event, kind="preprocessors"):
    """How fast preprocessors are.

    Attributes:
        counts: how many -> what they make together.
        of_data: data set -> what all of them make of it; `of_new`: while nothing of it is kept.
        demand: what trainers can eat; None: nobody knows.
        chosen: how many that takes.
    """

    counts: Measured = field(default_factory=dict)
    of_data: Mapping[str, Rate] = field(default_factory=dict)
    of_new: Mapping[str, Rate] = omitted(default={})
    demand: float | None = None
    chosen: Count | None = None


class Preprocessing(Event, kind="preprocessing"):
    """How many preprocessors make samples in a round, and the devices whose trainers help them."""

    round: Count | None
    working: Count
    available: Count
    demand: float | None = None
    trainers: tuple[Count, ...] = omitted(default=())


class Batch(JobEvent, kind="batch", durable=True):
    """The batch of a job, over all virtual workers.

    Attributes:
        epoch: from which on it holds; None: from the first.
        parts: into how many parts a virtual worker cuts its batch.
        limit: of the largest batch, why it is no larger; `fits`: samples of a virtual worker, by kind of device.
    """

    batch: Positive
    epoch: Count | None = omitted(default=None)
    parts: Count | None = omitted(default=None)
    limit: str = omitted(default="")
    fits: Mapping[str, Positive] | None = omitted(default=None)


# Rounds and groups.


class Planned(Event, kind="planned"):
    """A round begins.

    Attributes:
        allocation: of the networks that train in it; with `others_go_on`, of those that start alone.
        paces: the same networks -> the rate that is expected.
        others_go_on: whoever trains besides goes on where it is.
        seconds: that the plan took.
        bound_seconds: before which no schedule ends all jobs; end_seconds: when the policy expects it.
        lent: how many trainers may prepare samples.
    """

    allocation: Mapping[str, Devices]
    round: Count | None = 0
    paces: Metrics = field(default_factory=dict)
    seconds: Finite = 0.0
    bound_seconds: float | None = omitted(default=None)
    end_seconds: float | None = omitted(default=None)
    lent: Count | None = omitted(default=None)
    others_go_on: bool = omitted(default=False)


class RoundEnded(Event, kind="round_end"):
    """A round is over; it lasted from `start` until `end`."""

    round: Count | None = 0
    start: float | None = None
    end: float | None = None


class Started(JobEvent, kind="started"):
    """A group was told to form.

    Attributes:
        epoch, step: where it goes on.
        stream: data, seed and epoch of the lane from which it reads.
        moved: its state comes from ranks that trained it before.
        seconds: that forming took, as older versions told it.
        kind: of its devices; `shares`: virtual workers of each where these are of several kinds.
        kept: all devices that it will have, where it is timed on one first.
        prepared_by: devices whose trainers help to make its samples.
    """

    devices: Devices
    epoch: Count
    step: Count
    round: Count | None = 0
    lane: Count = 0
    stream: str | None = ""
    moved: bool = False
    seconds: Finite = omitted(default=0.0)
    shares: tuple[Count, ...] = omitted(default=())
    kind: str = omitted(default="")
    prepared_by: tuple[Count, ...] = omitted(default=())
    kept: tuple[Count, ...] = omitted(default=())


class Formed(JobEvent, kind="formed"):
    """The group stands, and the job's state is restored."""

    seconds: Finite


class Epoch(JobEvent, kind="epoch"):
    """An epoch is trained and evaluated.

    Attributes:
        step: since the job began.
        seconds: length of the epoch, or of its part since the group took it over.
        rate: while computing and reducing.
        deaf: longest time without hearing whether to stop.
        waited, computed: by device.
    """

    epoch: Count
    devices: SomeDevices
    metrics: Metrics
    round: Count | None = 0
    step: Count = 0
    seconds: Finite = 0.0
    rate: float | None = None
    learning_rate: float | None = None
    deaf: float = 0.0
    waited: Mapping[Count, Waited] = field(default_factory=dict)
    computed: Mapping[Count, float] = field(default_factory=dict)


class Checkpoint(JobEvent, kind="checkpoint", durable=True):
    """A checkpoint is written; `best`: the epoch whose checkpoint is kept as the best one, None: it is not told."""

    path: str
    epoch: Count = 0
    step: Count = 0
    bytes: Count | None = 0
    seconds: Finite = 0.0
    digest: str | None = ""
    best: Best | None = omitted(default=None)


class BestKept(JobEvent, kind="best", durable=True):
    """A job's best checkpoint is another than was told, or none."""

    best: Best | None


class Stopped(JobEvent, kind="stopped", durable=True):
    """A job left its devices and will go on later; `why`: policy, signal, asked, epoch or lost."""

    devices: Devices
    epoch: Count
    step: Count
    why: str
    round: Count | None = 0
    waited: Mapping[Count, Waited] = field(default_factory=dict)
    computed: Mapping[Count, float] = field(default_factory=dict)


class Paused(JobEvent, kind="paused", durable=True):
    """A trial left its devices at the end of its segment; its search has to decide."""

    devices: Devices
    epoch: Count
    step: Count
    why: str
    round: Count | None = 0
    waited: Mapping[Count, Waited] = field(default_factory=dict)
    computed: Mapping[Count, float] = field(default_factory=dict)


class SetBack(JobEvent, kind="set_back"):
    """A job that waited in memory was lost there: it goes on from its last checkpoint."""

    epoch: Count
    step: Count


class Halted(JobEvent, kind="halted"):
    """A job was stopped by name: it trains no more until it is taken up."""

    epoch: Count
    step: Count


class TakenUp(JobEvent, kind="taken_up"):
    """A job that was stopped by name waits to go on."""


class Done(JobEvent, kind="done", durable=True):
    """A job has trained all that it should.

    Attributes:
        round: None: an earlier session ended before it could say so.
        why: epochs, target or patience.
        deadline: when it should have been done, as `t`; None: it has none.
    """

    epoch: Count
    round: Count | None = None
    devices: Devices = ()
    why: str = ""
    metrics: Metrics = field(default_factory=dict)
    checkpoint: str | None = None
    deadline: float | None = None


class Failed(JobEvent, kind="failed", durable=True):
    """A job failed.

    Attributes:
        round: None: while it was measured, or its policy dropped it.
        cost_ranks: its code ends the processes that train it.
    """

    epoch: Count
    error: str
    round: Count | None = None
    devices: Devices = ()
    traceback: str | None = ""
    cost_ranks: bool = False


class RankCost(JobEvent, kind="rank_cost"):
    """An earlier session ended because this rank was killed, which worked at the job."""

    rank: Count = 0


class Extended(JobEvent, kind="extended", durable=True):
    """`fleet extend` lets the job train longer: until so many epochs are over."""

    epochs: Positive


# Promises.


class Admitted(JobEvent, kind="admitted", durable=True):
    """A job's deadline is promised, or can be kept after all; None: it has none."""

    deadline: float | None = None


class Late(JobEvent, kind="late", durable=True):
    """A promised deadline cannot be met; `end`: when the job can be done at the earliest; None: never."""

    deadline: float
    end: float | None


class ServiceWindow(JobEvent, kind="service_window"):
    """A window of a job's service level is over, or cannot bring what is promised; device-seconds."""

    begin: Finite
    end: Finite
    promised: Finite
    had: Finite
    broken: bool


class ServiceReset(JobEvent, kind="pardoned"):
    """The policy forgets the service that a job has had."""


# The search. `time` is virtual, in units of the costs.


class Bounds(Event, kind="bounds", durable=True):
    """How far the search goes from a virtual time on.

    Attributes:
        trials, epochs, hours: None: any number.
        over: the hours are over.
        mode: max: more of the metric is better.
        by: spec, wish or clock.
        wish: its number; None: it is none.
        further: the other metrics.
    """

    time: Count
    width: Positive
    trials: Positive | None = None
    epochs: Positive | None = None
    hours: Rate | None = None
    over: bool | None = False
    metric: str = ""
    mode: str = ""
    by: str = "spec"
    wish: Count | None = None
    further: tuple[SearchedMetric, ...] = omitted(default=())


class Decided(JobEvent, kind="search"):
    """The search has decided something of a segment of a trial.

    Attributes:
        start, end: epochs before and after the segment.
        kind: start, resume, pause, stop, done or fail.
        values, cost: of `start`, the trial's values, and what an epoch takes.
        copy: of `resume`, from whom it goes on; None: from itself.
    """

    trial: Count
    start: Count
    end: Positive
    time: Count
    kind: str
    values: Mapping[str, Any] = omitted(default={})
    cost: Positive | None = omitted(default=None)
    copy: Copied | None = omitted(default=None)


class Result(JobEvent, kind="result", durable=True):
    """The search was told what a trial came to; None: it has failed. `further`: of the other metrics."""

    trial: Count
    epoch: Count
    value: float | None
    further: tuple[Finite, ...] = omitted(default=())


class OwnTrial(Event, kind="own_trial", durable=True):
    """The search was told of a trial that a person trains; `status`: suggested, done or failed."""

    trial: Count
    time: Count
    values: Mapping[str, Any]
    status: str
    value: Finite | None


class Pruned(JobEvent, kind="pruned"):
    """The search wants no more of a trial that is paused."""

    epoch: Count


class Twin(JobEvent, kind="twin"):
    """A trial for which another one answers, `of`, as that had the same values before."""

    trial: Count
    of: str


class Front(Event, kind="front"):
    """The search is over, and this is its Pareto front: names of jobs, by the trials' numbers."""

    time: Count
    jobs: tuple[str, ...]


class Ahead(JobEvent, kind="ahead"):
    """A trial may train what nobody needs yet, until `epoch`; or it waits again.

    Attributes:
        start, end: epochs before and after the segment.
        sure, probable: whether the search will want the segment in any case, or very likely.
        values: of a trial that has not begun.
    """

    trial: Count
    epoch: Count
    start: Count
    end: Positive
    sure: bool = False
    probable: bool = False
    values: Mapping[str, Any] | None = None


class Withdrawn(JobEvent, kind="withdrawn"):
    """What a trial has trained ahead is taken back; `unused`: epochs that were trained for nothing."""

    trial: Count
    epoch: Count
    metrics: Metrics
    checkpoint: str | None
    unused: Count


class Dropped(JobEvent, kind="dropped"):
    """The checkpoints of a trial that its search stopped are gone."""

    trial: Count
    epoch: Count


# What is told to those who watch, and not written.


class Progress(JobEvent, kind="progress", written=False):
    """A job is at a step of an epoch; `rate`: of its last steps."""

    epoch: Count
    step: Count
    steps: Count = 0
    rate: float = 0.0


class Slowed(JobEvent, kind="slowed", written=False):
    """A job trains so fast, which is slower than was thought."""

    rate: float
