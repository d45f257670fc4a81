"""The section of a spec on checkpoints."""

from __future__ import annotations

from pydantic import Field

from fleet.spec.values import Count, CountOrNone, NotNegative, Section, Text


class Checkpoints(Section):
    """How often a job is saved."""

    every: Count = Field(default=1, description="Epochs between two checkpoints of a job.", examples=[1])
    seconds: NotNegative = Field(
        default=2.0,
        description="Where epochs are short: no checkpoint is written while at most so many seconds of training "
        "would be lost without it. A job that is done, pauses or stops is saved in any case. 0: `every` alone counts.",
        examples=[10.0],
    )
    keep: CountOrNone = Field(
        default=2,
        description="How many of a job's newest checkpoints are kept. 0: one, as long as the job may go on or is done, "
        "and none of a trial that its search stops, but for the best trial so far.",
        examples=[2],
    )
    best: Text | None = Field(
        default=None,
        description="A metric of every job; the checkpoint of the epoch with its best value is kept, too: the highest "
        "or the lowest, as the metric declares, the earlier epoch of equal ones. null: only the newest checkpoints are "
        "kept.",
        examples=["accuracy"],
    )
    margin: NotNegative = Field(
        default=30.0,
        description="Seconds that remain after the last checkpoint until a scheduler ends the allocation; the measured "
        "time of checkpoints comes on top.",
        examples=[60.0],
    )
