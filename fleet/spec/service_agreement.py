"""The devices that a job is promised in the mean of each window of time."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, Strict
from pydantic_core import PydanticCustomError

from fleet.spec.values import Positive, Section


class ServiceAgreement(Section):
    """A promise of devices. Windows follow each other from when the job is there and its rates are known."""

    devices: Positive = Field(
        description="Devices that the job has in the mean of a window: 0.5 is one for half of the time, or two for a "
        "quarter of it. At most `virtual_workers`.",
        examples=[0.5],
    )
    window: Annotated[float, Strict(), Field(ge=1, allow_inf_nan=False)] = Field(
        default=600.0, description="The length of a window, seconds.", examples=[600]
    )

    def check(self, workers: int, guaranteed: bool) -> None:
        """Raises PydanticCustomError where a job of so many virtual workers cannot be promised that, or need not be."""
        if self.devices > workers:
            raise PydanticCustomError(
                "service_above_workers",
                "service_level promises {devices} devices, more than the {most} of virtual_workers, each of which has "
                "one at most",
                {
                    "devices": f"{self.devices:g}",
                    "most": workers,
                    "mend": f"set service_level.devices to at most {workers}",
                },
            )
        if guaranteed:
            raise PydanticCustomError(
                "two_promises",
                "a guaranteed job has all its devices at once, so a service_level promises it nothing more",
                {"mend": "take one of the two away"},
            )
