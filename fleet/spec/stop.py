"""When a job is done."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from fleet.spec.values import Count, NotNegative, Real, Section, Text


class Stop(Section):
    """When a job is done: at the first of these conditions, looked at after each epoch."""

    epochs: Count = Field(description="The largest number of epochs to train, 1 or more.", examples=[8])
    target: Mapping[Text, Real] = Field(
        default_factory=dict,
        description="Metrics and the values that all of them must reach for the job to be done: at least the value "
        "where the metric declares that more is better, at most the value where less is.",
        examples=[{"accuracy": 0.985}],
    )
    patience: Count | None = Field(
        default=None,
        description="The job is done after so many epochs in which `monitor` did not improve; null: no limit.",
        examples=[3],
    )
    minimum_improvement: NotNegative = Field(
        default=0.0,
        description="The least change of `monitor` that counts as improvement, in the metric's unit.",
        examples=[0.001],
    )
    monitor: Text | None = Field(
        default=None,
        description="The metric that `patience` watches; null: the first one of `target`, otherwise `test_loss`.",
        examples=["accuracy"],
    )

    @property
    def monitored(self) -> str:
        """The metric that patience watches."""
        return self.monitor or next(iter(self.target), "test_loss")
