"""What a run may use of the machine, and prices of devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, Strict, StrictBool, field_validator, model_validator

from fleet.spec.values import (
    MOST_RANKS,
    Count,
    Device,
    Name,
    NotNegative,
    Positive,
    Ranks,
    Section,
    Text,
    numbers_of,
    refusal,
)

ANY = "any"
"""Stands for each kind of device that nobody names."""


def _course(value: Any) -> Any:
    """A number stands for a price that never changes."""
    return [[0.0, value]] if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def _ascending(course: tuple[tuple[float, float], ...]) -> tuple[tuple[float, float], ...]:
    seconds = [second for second, _ in course]
    if not seconds or seconds[0] != 0 or any(b <= a for a, b in zip(seconds, seconds[1:])):
        rule = f"tells prices from {seconds} s on; it must begin at 0, and ascend"
        raise refusal(rule, "write [[0, 3.0], [3600, 1.5]], or a number if the price never changes")
    return course


PriceCourse = Annotated[
    tuple[tuple[NotNegative, NotNegative], ...], AfterValidator(_ascending), BeforeValidator(_course)
]


class Store(Section):
    """Where prepared samples are kept for all seeds and epochs, and finished ones for epochs that come again, on each
    node. Which are kept changes no result.
    """

    memory: NotNegative | None = Field(
        default=None,
        description="GiB of a node's memory; null: at most half of what is free once the rings are there, and no more "
        "than the samples take; 0: none are kept in memory. Finished samples have what prepared ones leave; with null, "
        "an eighth of what is free at most.",
        examples=[64],
    )
    disk: NotNegative = Field(
        default=0.0, description="GiB of a node's disk, for prepared ones that memory cannot hold.", examples=[500]
    )
    path: Text | None = Field(
        default=None,
        description="The folder on each node's own disk; null: the system's folder for temporary files. The file there "
        "has no name, and goes with the run however it ends.",
        examples=["/local/scratch"],
    )


class Energy(Section):
    """Where hosts tell how much energy they use. NVIDIA's GPUs tell it by the package nvidia-ml-py, if it is there."""

    read: StrictBool = Field(
        default=True, description="Share the energy of hosts that tell it out to the jobs.", examples=[False]
    )
    powercap: Text = Field(
        default="/sys/class/powercap",
        description="The folder of RAPL's counters: of processors and memory, whoever uses them.",
        examples=["/host/sys/class/powercap"],
    )
    hwmon: Text = Field(
        default="/sys/class/hwmon",
        description="The folder of drivers' sensors: of AMD's and Intel's GPUs.",
        examples=["/host/sys/class/hwmon"],
    )


class Resources(Section):
    """What a run may use of the machine. Nothing here changes a result."""

    trainers: Ranks | None = Field(
        default=None,
        description="Trainer ranks, one for each device; null: as many as there are devices, times members_per_device.",
        examples=[3],
    )
    preprocessors: Ranks = Field(default=1, description="Preprocessor ranks.", examples=[1])
    preparing_trainers: Annotated[int, Strict(), Field(ge=0, le=MOST_RANKS)] = Field(
        default=0,
        description="Most trainers that prepare samples at the same time, as further preprocessors: of those that have "
        "no network, where the networks train faster than samples come. They train again as soon as a network gets "
        "them. On one host.",
        examples=[2],
    )
    threads: Count = Field(default=1, description="Threads of one trainer's CPU work.", examples=[1])
    ring_samples: Count = Field(
        default=1024,
        description="Samples of each stream that a node's ring holds. Its readers may drift as far apart. Fewer where "
        "all streams together would take more than a quarter of the node's free shared memory, but two steps of "
        "the largest batch at least.",
        examples=[1024],
    )
    slot_samples: Count = Field(
        default=32, description="Samples that preprocessors hand over together; at most ring_samples.", examples=[32]
    )
    device: Annotated[str, Strict(), Field(pattern=r"^[a-z]+$")] = Field(
        default="auto",
        description="`auto` (an accelerator if there is one), `cpu`, or a torch device type such as `cuda`.",
        examples=["cpu"],
    )
    members_per_device: Ranks = Field(
        default=1,
        description="Trainers that may share an accelerator, each with its part of the memory; CPUs are never shared.",
        examples=[4],
    )
    kinds: Mapping[Name, tuple[Device, ...]] = Field(
        default_factory=dict,
        description="The kinds of device, by name, with the devices of each, as numbers and ranges: for devices that "
        "differ in what fleet does not see, such as a share of a core. Those that nobody names are of the kind that "
        "fleet finds: the model of an accelerator, or of a processor.",
        examples=[{"fast": "0-3", "slow": "4-7"}],
    )
    prices: Mapping[Text, PriceCourse] = Field(
        default_factory=dict,
        description="What an hour of a device costs, by kind, in any unit: a number, or pairs of a second of the run "
        "and the price from then on. Kinds are those of `kinds` or the models that fleet finds; `any` is each that "
        "nobody names. The report tells the costs; `policy.worth` lets the policy go by them.",
        examples=[{"fast": 3.0, "slow": [[0, 0.5], [3600, 1.2]]}],
    )
    store: Store = Field(
        default_factory=Store, description="How many prepared samples are kept.", examples=[{"memory": 64, "disk": 500}]
    )
    energy: Energy = Field(
        default_factory=Energy, description="Where hosts tell how much energy they use.", examples=[{"read": False}]
    )
    memory_gib: Positive | None = Field(
        default=None,
        description="Memory of a node that the run may use, GiB; null: all of it, or what its control group allows.",
        examples=[16],
    )
    timeout: Positive = Field(
        default=300.0,
        description="Seconds that one rank waits for another before the run ends with an error that names it; must be "
        "longer than the longest step.",
        examples=[300],
    )
    lock_wait: NotNegative = Field(
        default=180.0,
        description="Seconds that a start waits for another run to leave the run directory before it ends with exit "
        "code 70. File systems keep the locks of a node that crashed for minutes.",
        examples=[600],
    )

    @field_validator("kinds", mode="before")
    @classmethod
    def _numbers(cls, value: Any) -> Any:
        return {kind: numbers_of(devices) for kind, devices in value.items()} if isinstance(value, Mapping) else value

    @model_validator(mode="after")
    def _of_one_kind(self) -> Resources:
        held: dict[int, str] = {}
        for kind, devices in self.kinds.items():
            for device in devices:
                if device in held:
                    rule = f"kinds has device {device} twice, as {held[device]} and as {kind}"
                    raise refusal(rule, "name each device once")
                held[device] = kind
        return self

    @model_validator(mode="after")
    def _slots_fit(self) -> Resources:
        if self.slot_samples > self.ring_samples:
            rule = f"slot_samples is {self.slot_samples}, more than the {self.ring_samples} of ring_samples"
            raise refusal(rule, f"set slot_samples to at most {self.ring_samples}")
        return self
