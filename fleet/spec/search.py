"""The section of a spec that searches for good networks: metrics, sampler, stopping rule and bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    JsonValue,
    Strict,
    StrictBool,
    field_validator,
    model_validator,
)

from fleet.spec.distributions import Distribution, Enumerated, checked, combinations, conditional
from fleet.spec.metrics import declared_of
from fleet.spec.plugins import SAMPLERS, STOPPING_RULES, Door
from fleet.spec.problem import Problem, SpecError, nearest
from fleet.spec.values import (
    MOST_JOBS,
    Arguments,
    Count,
    Jobs,
    Named,
    Positive,
    Section,
    Seed,
    Text,
    refusal,
    written_alone,
)

Direction = Literal["min", "max"]
WEIGHS_ONE = ("tpe", "gp", "cmaes")
"""Samplers that learn from one metric."""
_MODES = ("min", "max")


def _metric(value: Any) -> Any:
    names = value if isinstance(value, (list, tuple)) else [value]
    if not names or not all(isinstance(name, str) and name for name in names):
        raise refusal("is the name of a metric, or a list of such names", "write `accuracy`, for one")
    twice = next((name for name in names if list(names).count(name) > 1), None)
    if twice is not None:
        raise refusal(f"{twice} stands there twice", "name it once")
    return value


def _mode(value: Any) -> Any:
    for one in value if isinstance(value, (list, tuple)) else [value]:
        if one is not None and one not in _MODES:
            meant = nearest(one, _MODES) if isinstance(one, str) else None
            raise refusal("is min or max, or a list of these", "write one of these, or one for each metric", meant)
    return value


Metrics = Annotated[Text | tuple[Text, ...], BeforeValidator(_metric)]
Modes = Annotated[Direction | tuple[Direction, ...] | None, BeforeValidator(_mode)]


USUAL_SHARE = 0.03
Share = StrictBool | Annotated[float, Strict(), Field(ge=0, le=1, allow_inf_nan=False)]


def share_of(ahead: bool | float) -> float:
    """How many epochs may be trained for nothing, as a part of those that the search wants; 0: nothing is ahead."""
    return (USUAL_SHARE if ahead else 0.0) if isinstance(ahead, bool) else ahead


OPTIMIZER = "optimizer.arguments."
"""How their paths begin."""
_FIXED = ("amsgrad", "centered", "foreach", "fused", "capturable", "differentiable", "maximize")


def can_change(path: str) -> bool:
    """Return whether the key at this path can change while its job trains."""
    name = path.removeprefix(OPTIMIZER)
    return path.startswith(OPTIMIZER) and "." not in name and name not in _FIXED


_KEYS_OF_RULES = {
    "none": (),
    "halving": ("eta", "rungs", "confidence", "synchronous"),
    "hyperband": ("eta", "rungs"),
    "median": ("grace", "least"),
    "population": ("interval", "quantile", "resample", "perturb", "synchronous"),
}


def known_name(value: Any, door: Door) -> Any:
    """Let a name pass that a door knows, and a `module:Name`; others are refused, with the nearest one."""
    problem = door.refused(value) if isinstance(value, str) else None
    if problem is not None:
        raise refusal(problem.rule, problem.mend, problem.suggestion)
    return value


def _rising(rungs: tuple[int, ...]) -> tuple[int, ...]:
    if any(second <= first for first, second in zip(rungs, rungs[1:])):
        raise refusal("rungs are numbers of epochs, each more than the one before", suggestion=str(sorted(set(rungs))))
    return rungs


Rule = Annotated[Text, BeforeValidator(lambda value: known_name(value, STOPPING_RULES))]
Eta = Annotated[int, Strict(), Field(ge=2, le=1000)]
Half = Annotated[float, Field(gt=0, le=0.5, allow_inf_nan=False)]
Confidence = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
Probability = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Factors = tuple[Annotated[float, Field(gt=0, lt=1)], Annotated[float, Field(gt=1, lt=1000)]]
Rungs = Annotated[tuple[Count, ...], Field(min_length=1), AfterValidator(_rising)]


class Stopping(Section):
    """Which trials of a search train on, and which do not; ``name`` alone may be written for ``{name: name}``."""

    name: Rule = Field(
        description="`none`: each trial trains all epochs. `halving`: of those that are known at a rung one in `eta` "
        "goes on (ASHA). `hyperband`: the same in several brackets, which begin at higher and higher rungs. `median`: "
        "a trial stops at an epoch where its best value is worse than the median of the others' means until then. "
        "`population`: after each `interval` the worst trials go on from the best ones' weights, with values near "
        "theirs (PBT). Or `module:Name` of a class.",
        examples=["halving"],
    )
    eta: Eta = Field(default=3, description="Of how many trials one goes on from a rung.", examples=[3])
    rungs: Rungs | None = Field(
        default=None,
        description="The epochs after which trials are compared, the last of them the epochs of a whole trial; null: "
        "1, `eta`, `eta` x `eta` and so on, up to the job's `stop.epochs`.",
        examples=[[1, 3, 9]],
    )
    confidence: Confidence = Field(
        default=0.99,
        description="With `halving` of so many `trials`, and while there are new ones, a trial goes on from a rung "
        "only if it is this likely to be among the best 1/`eta` of all that will come there. 0: if it is one of the "
        "best of those that are known, as in ASHA. With `synchronous` all are known.",
        examples=[0.0],
    )
    synchronous: StrictBool = Field(
        default=False,
        description="Whether all trials must be at a rung, or have trained an interval, before any goes on from it.",
        examples=[True],
    )
    grace: Count = Field(default=1, description="With `median`, no trial stops before so many epochs.", examples=[2])
    least: Count = Field(
        default=5,
        description="With `median`, a trial stops only where so many others are known at its epoch.",
        examples=[5],
    )
    interval: Count = Field(
        default=1, description="With `population`, epochs between two comparisons of a trial.", examples=[2]
    )
    quantile: Half = Field(
        default=0.25,
        description="With `population`, which part of the trials counts as the worst, and as the best.",
        examples=[0.25],
    )
    resample: Probability = Field(
        default=0.25,
        description="With `population`, the probability with which a value is drawn anew; else it is perturbed.",
        examples=[0.25],
    )
    perturb: Factors = Field(
        default=(0.8, 1.25),
        description="With `population`, the factors by which a number changes, down and up.",
        examples=[[0.8, 1.25]],
    )

    arguments: Arguments = Field(
        default_factory=dict,
        description="With `module:Name`, the keyword arguments with which the class is called.",
        examples=[{"patience": 2}],
    )

    _name_alone = model_validator(mode="before")(written_alone("name"))

    @property
    def is_confident(self) -> bool:
        """Whether a trial goes on only if it is likely to be among the best of all."""
        return self.name == "halving" and not self.synchronous and self.confidence > 0

    @model_validator(mode="after")
    def _own_keys(self) -> Stopping:
        own = _KEYS_OF_RULES.get(self.name, ("arguments",))
        foreign = sorted(self.model_fields_set - {"name", *own})
        changed = [
            key
            for key in foreign
            if getattr(self, key) != (type(self).model_fields[key].get_default(call_default_factory=True))
        ]
        if changed:
            has = ", ".join(own) or "no keys but its name"
            raise refusal(f"{self.name} has no {changed[0]}; it has {has}", f"take {changed[0]} away")
        return self

    def levels(self, epochs: int) -> tuple[int, ...]:
        """The rungs of trials that train at most so many epochs, the last of them all epochs."""
        if self.rungs is not None:
            return self.rungs
        levels = [1]
        while levels[-1] * self.eta < epochs:
            levels.append(levels[-1] * self.eta)
        return (*(level for level in levels if level < epochs), epochs)


OPERATIONS = "operations"


def _cost(value: Any) -> Any:
    named = isinstance(value, str) and (value == OPERATIONS or all(value.partition(":")))
    if not named and (type(value) is not int or value < 1):
        rule = "is `operations`, a whole number of 1 or more, or `module:Name` of a function of a trial's values"
        raise refusal(rule, "write one of these", OPERATIONS)
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
            raise refusal("a budget of nothing", "add `epochs: 300` or `hours: 4`, or take budget away")
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
            rule = (
                f"{varied} cannot vary: all trials have the same epochs, and the stopping rule says which train fewer"
            )
            raise refusal(rule, f"set {varied} in `job`")
        return checked(over)

    @model_validator(mode="after")
    def _bounded(self) -> SearchSpec:
        self._check_metrics()
        if self.sampler.name == "grid":
            self._check_grid()
        elif self.trials is None and self.budget is None:
            mend = "add `trials: 60`, `budget: {epochs: 300}` or `budget: {hours: 4}`"
            raise refusal("a search without an end", mend)
        if self.stopping.name == "population":
            self.check_population()
        if self.stopping.synchronous and self.most_trials is None:
            rule = "synchronous halving compares all trials, and nobody says how many there are"
            raise refusal(rule, "add `trials: 60`, or take synchronous away")
        return self

    def _check_metrics(self) -> None:
        count, sampler = len(self.metrics), self.sampler.name
        told = 1 if isinstance(self.mode, str) else count if self.mode is None else len(self.mode)
        if told != count:
            rule = f"mode says a direction for {told} of {count} metrics"
            raise refusal(rule, "give each its own, as [max, min], or take mode away")
        if count > 1 and sampler in WEIGHS_ONE:
            rule = f"{sampler} learns from one metric, and the search has {count}"
            raise refusal(rule, "take nsga2, or name one metric", "nsga2")

    def check_population(self) -> None:
        """A population has a size, and its members differ in what can change while they train.

        Raises:
            PydanticCustomError: the trials could be no members of one.
        """
        if self.most_trials is None:
            raise refusal("a population has a size", "add `trials: 16`")
        stop: Any = self.job.get("stop") or {}
        early = next((key for key in ("target", "patience") if stop.get(key)), None)
        fixed = next((path for path in self.over if not can_change(path)), None)
        bound = next((path for path, what in self.over.items() if conditional(what)), None)
        if bound is not None:
            rule = f"{bound} has a condition, and a population changes values while its members train"
            raise refusal(rule, "take `when` and `cases` away, or take another stopping rule")
        if early is not None or self.job.get("task"):
            what, mend = ("a task", "name a model and an optimizer") if early is None else (early, f"take {early} away")
            rule = "members of a population train all epochs with an optimizer that fleet makes, and their job has "
            raise refusal(rule + what, mend)
        if fixed is not None:
            rule = (
                f"{fixed} cannot change while a trial trains; members of a population differ in what can: the numbers "
                f"of their optimizer, such as {OPTIMIZER}lr"
            )
            raise refusal(rule, "vary that, or take another stopping rule")
        if f"{OPTIMIZER}lr" in self.over and self.job.get("schedule"):
            rule = "the schedule sets the learning rate at each step, and the population would change it"
            raise refusal(rule, "take the schedule away, or vary other arguments of the optimizer")

    def _check_grid(self) -> None:
        endless = next((path for path, what in self.over.items() if combinations(what) is None), None)
        if endless is not None:
            rule = f"a grid has choices and whole numbers only, and {endless} has any number of values"
            raise refusal(rule, f"give {endless} a `choice`, or take the sampler qmc")
        there = self.combinations or 0
        if there > MOST_JOBS if self.trials is None else self.trials > there:
            mend = f"set trials to at most {min(there, MOST_JOBS)}" + (", or leave it out" if self.trials else "")
            trials = "null" if self.trials is None else self.trials
            raise refusal(f"trials is {trials}, and the grid has {there:.7g} combinations", mend)

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
        return (self.metric,) if isinstance(self.metric, str) else tuple(self.metric)

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
    known_name(name, SAMPLERS)
    return value
