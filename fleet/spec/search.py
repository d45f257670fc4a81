"""The section of a spec that searches for good networks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, JsonValue, Strict, field_validator, model_validator
from pydantic_core import PydanticCustomError

from fleet.spec.changeable_keys import OPTIMIZER, can_change
from fleet.spec.conditions import Enumerated, checked, combinations
from fleet.spec.corners import conditional
from fleet.spec.declared import declared_of
from fleet.spec.distributions import Distribution
from fleet.spec.problem import Problem, SpecError
from fleet.spec.search_metrics import Metrics, Modes, check_several, several
from fleet.spec.share_ahead import Share
from fleet.spec.stopping import Stopping, known_name
from fleet.spec.values import MOST_JOBS, Count, Jobs, Named, Positive, Section, Seed, Text

SAMPLERS = ("random", "grid", "qmc", "tpe", "cmaes", "gp", "nsga2")
"""The samplers that have a name; others are `module:Name`."""
OPERATIONS = "operations"


def _cost(value: Any) -> Any:
    named = isinstance(value, str) and (value == OPERATIONS or all(value.partition(":")))
    if not named and (type(value) is not int or value < 1):
        raise PydanticCustomError(
            "no_cost",
            "is `operations`, a whole number of 1 or more, or `module:Name` of a function of a trial's values",
            {"suggestion": OPERATIONS, "mend": "write one of these"},
        )
    return value


Width = Annotated[int, Strict(), Field(ge=1, le=65_536)]
Ahead = Annotated[int, Strict(), Field(ge=0, le=65_536)]
Cost = Annotated[int | str, BeforeValidator(_cost)]


class Budget(Section):
    """What a search may use in all: at least one of these."""

    epochs: Count | None = Field(
        default=None,
        description="Epochs of all trials together; the search ends where the next part of a trial would take more; "
        "null: any number.",
        examples=[300],
    )
    hours: Positive | None = Field(
        default=None,
        description="Hours of the run, all its starts together. When they are over the search ends where it is in "
        "virtual time, and trials that train are saved; more hours let it go on from there; null: any number.",
        examples=[4.0],
    )

    @model_validator(mode="after")
    def _of_something(self) -> Budget:
        if self.epochs is None and self.hours is None:
            raise PydanticCustomError(
                "empty_budget", "a budget of nothing", {"mend": "add `epochs: 300` or `hours: 4`, or take budget away"}
            )
        return self


class SearchSpec(Section):
    """A search for good networks: which trials there are, and how far each trains.

    A pure function of these keys and the seed: the same on any number of devices.
    """

    name: Text = Field(
        description="Template of the trials' names. It holds `{trial}`, a trial's number from 0 (`{trial:03d}`: with "
        "three digits), and may hold the last parts of paths in `over`.",
        examples=["cnn-{trial}"],
    )
    job: Mapping[Text, JsonValue] = Field(
        description="What the trials share: keys of a job, laid over `defaults`.",
        examples=[{"model": "trainers.zoo:CNN"}],
    )
    over: Mapping[Text, Distribution] = Field(
        min_length=1,
        description="Dotted path of a job's key -> the distribution of its values.",
        examples=[{"optimizer.arguments.lr": {"log_uniform": [0.0001, 0.1]}}],
    )
    metric: Metrics = Field(
        description="The metric by which trials are compared, or a list: by the first trials train on and win, and the "
        "sampler `nsga2` learns from all.",
        examples=["accuracy"],
    )
    mode: Modes = Field(
        default=None,
        description="Whether less or more of the metric is better, a list for several; null: as the metrics declare, "
        "which it may not contradict.",
        examples=["max"],
    )
    sampler: Annotated[Named, BeforeValidator(lambda value: _sampler(value))] = Field(
        default=Named(name="random"),
        description="What suggests values: `random`, `grid` (every combination of choices and whole numbers), `qmc` "
        "(Sobol's sequence), Optuna's `tpe`, `cmaes`, `gp` or `nsga2`, with Optuna's arguments, or `module:Name` of a "
        "class. "
        "All but the first two need the extra `search`. Not given: `random`.",
        examples=["tpe"],
    )
    stopping: Stopping = Field(
        default=Stopping(name="none"),
        description="Which trials train on. Not given: `none`.",
        examples=[{"name": "halving", "eta": 3, "rungs": [1, 3, 9]}],
    )
    width: Width = Field(
        description="Trials under way at a time, in virtual time. Best as many as there are devices, and half as many "
        "again with a sampler that learns.",
        examples=[8],
    )
    trials: Jobs | None = Field(
        default=None,
        description="How many trials there are; null: as many as `budget` allows, or all of a grid. More may be added "
        "later: the first ones stay.",
        examples=[60],
    )
    budget: Budget | None = Field(
        default=None, description="What the search may use; null: what its trials take.", examples=[{"epochs": 300}]
    )
    prefetch: Ahead = Field(
        default=4,
        description="How many trials ahead a sampler that learns suggests: for a trial it knows what was known when "
        "the one so many before it began. Devices then seldom wait for a suggestion.",
        examples=[4],
    )
    ahead: Share = Field(
        default=True,
        description="Whether trials of halving that very likely go on train before new ones, and devices that nobody "
        "needs what the search may need next: trials that would go on by what is known so far, then new ones. It "
        "changes no decision; epochs that nobody wants are taken back. A number is how many epochs may be for nothing, "
        "as a part of those that the search wants; true: 0.03.",
        examples=[False, 0.1],
    )
    seed: Seed | None = Field(
        default=None, description="Seed of the suggestions; null: the ensemble's `seed`.", examples=[1]
    )
    costs: Cost = Field(
        default=OPERATIONS,
        description="The virtual cost of an epoch, by which trials are put in order: `operations` (those of a trial's "
        "network, counted, times its samples), one number for all trials, or `module:Name` of a function of a trial's "
        "values, which gives a whole number.",
        examples=["operations"],
    )

    @field_validator("over")
    @classmethod
    def _same_epochs(cls, over: Mapping[str, Distribution]) -> Mapping[str, Distribution]:
        varied = next((path for path in over if path in ("stop", "stop.epochs")), None)
        if varied is not None:
            raise PydanticCustomError(
                "varied_epochs",
                "{path} cannot vary: all trials have the same epochs, and the stopping rule says which train fewer",
                {"path": varied, "mend": f"set {varied} in `job`"},
            )
        return checked(over)

    @model_validator(mode="after")
    def _bounded(self) -> SearchSpec:
        check_several(self.metric, self.mode, self.sampler.name)
        if self.sampler.name == "grid":
            self._check_grid()
        elif self.trials is None and self.budget is None:
            mend = "add `trials: 60`, `budget: {epochs: 300}` or `budget: {hours: 4}`"
            raise PydanticCustomError("unbounded_search", "a search without an end", {"mend": mend})
        if self.stopping.name == "population":
            self.check_population()
        if self.stopping.synchronous and self.most_trials is None:
            raise PydanticCustomError(
                "synchronous_without_trials",
                "synchronous halving compares all trials, and nobody says how many there are",
                {"mend": "add `trials: 60`, or take synchronous away"},
            )
        return self

    def check_population(self) -> None:
        """A population has a size, and its members differ in what can change while they train.

        Raises:
            PydanticCustomError: the trials could be no members of one.
        """
        if self.most_trials is None:
            raise PydanticCustomError(
                "population_without_trials", "a population has a size", {"mend": "add `trials: 16`"}
            )
        stop: Any = self.job.get("stop") or {}
        early = next((key for key in ("target", "patience") if stop.get(key)), None)
        fixed = next((path for path in self.over if not can_change(path)), None)
        bound = next((path for path, what in self.over.items() if conditional(what)), None)
        if bound is not None:
            raise PydanticCustomError(
                "condition_in_population",
                "{path} has a condition, and a population changes values while its members train",
                {"path": bound, "mend": "take `when` and `cases` away, or take another stopping rule"},
            )
        if early is not None or self.job.get("task"):
            what, mend = ("a task", "name a model and an optimizer") if early is None else (early, f"take {early} away")
            raise PydanticCustomError(
                "not_of_populations",
                "members of a population train all epochs with an optimizer that fleet makes, and their job has {what}",
                {"what": what, "mend": mend},
            )
        if fixed is not None:
            raise PydanticCustomError(
                "fixed_in_training",
                "{path} cannot change while a trial trains; members of a population differ in what can: the numbers of "
                "their optimizer, such as {example}",
                {"path": fixed, "example": f"{OPTIMIZER}lr", "mend": "vary that, or take another stopping rule"},
            )
        if f"{OPTIMIZER}lr" in self.over and self.job.get("schedule"):
            raise PydanticCustomError(
                "scheduled_rate",
                "the schedule sets the learning rate at each step, and the population would change it",
                {"mend": "take the schedule away, or vary other arguments of the optimizer"},
            )

    def _check_grid(self) -> None:
        endless = next((path for path, what in self.over.items() if combinations(what) is None), None)
        if endless is not None:
            raise PydanticCustomError(
                "endless_grid",
                "a grid has choices and whole numbers only, and {path} has any number of values",
                {"path": endless, "mend": f"give {endless} a `choice`, or take the sampler qmc"},
            )
        there = self.combinations or 0
        if there > MOST_JOBS if self.trials is None else self.trials > there:
            mend = f"set trials to at most {min(there, MOST_JOBS)}" + (", or leave it out" if self.trials else "")
            raise PydanticCustomError(
                "trials_of_grid",
                "trials is {trials}, and the grid has {there} combinations",
                {"trials": "null" if self.trials is None else self.trials, "there": f"{there:.7g}", "mend": mend},
            )

    @property
    def combinations(self) -> int | None:
        """How many combinations of values there are; None: any number."""
        return Enumerated(self.over).count()

    @property
    def most_trials(self) -> int | None:
        """How many trials there are; None: as many as the budget allows."""
        return self.combinations if self.trials is None and self.sampler.name == "grid" else self.trials

    @property
    def most_epochs(self) -> int | None:
        """How many epochs all trials together may train; None: nobody says."""
        return None if self.budget is None else self.budget.epochs

    @property
    def epochs(self) -> int:
        """How many epochs a whole trial trains."""
        stop: Any = self.job.get("stop")
        return int(stop["epochs"])

    @property
    def rungs(self) -> tuple[int, ...]:
        """The epochs after which trials are compared, where the stopping rule has rungs."""
        return self.stopping.levels(self.epochs)

    @property
    def metrics(self) -> tuple[str, ...]:
        """By which trials are compared; the first decides which train on, and which wins."""
        return several(self.metric)

    @property
    def maximises(self) -> tuple[bool, ...]:
        """Whether more of a metric is better, for each metric.

        Raises:
            SpecError: nobody declares it of one.
        """
        if self.mode is not None:
            return tuple(mode == "max" for mode in ([self.mode] if isinstance(self.mode, str) else self.mode))
        known = declared_of(self.job)
        lacking = next((metric for metric in self.metrics if metric not in known), None)
        if lacking is not None:
            rule, mend = f"nobody declares whether more or less of {lacking!r} is better", "add mode: max, or mode: min"
            mend += f", or write {{name: {lacking}, better: higher}} into metrics"
            raise SpecError([Problem("search.metric", lacking, rule, mend=mend)])
        return tuple(known[metric] == "higher" for metric in self.metrics)

    @property
    def maximise(self) -> bool:
        """Whether more of the first metric is better."""
        return self.maximises[0]


def _sampler(value: Any) -> Any:
    """The value, once its name is known to be one of a sampler."""
    name = value.get("name") if isinstance(value, Mapping) else value.name if isinstance(value, Named) else value
    known_name(name, SAMPLERS, "sampler")
    return value
