# ruff: noqa: E501  (tables of cases, one a line)
"""Whatever the text: a spec or a SpecError, never another error."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from fleet.spec import EnsembleSpec, SpecError, loads

SPEC = """\
name: x
seed: 1
data: {d: {train: {source: "m:D", arguments: {a: 1}}, transforms: [flip, {crop: {size: 3}}], normalise: {mean: [0.5], std: [1]}}}
defaults: {data: d, optimizer: {name: SGD, arguments: {lr: 1e-2}}, stop: {epochs: 2, target: {accuracy: 0.9}}}
jobs:
  - {name: a, model: {name: "m:N", arguments: {w: [1, 2]}}, metrics: [accuracy], batch_range: [1, 64]}
  - grid: {name: "g-{w}", model: "m:N", over: {model.arguments.w: [1, 2]}}
  - sample: {name: "s-{index}", count: 2, model: "m:N", over: {seed: {integer: [1, 5]}, model.arguments.b: {blocks: {count: [1, 2], each: {choice: [1]}}}}}
resources: {trainers: 3, device: cpu}
policy: {name: flotilla, parameters: {alpha: 0.8}}
profile: {batches: 4}
rehearse: {rates: {a: {1: 2.0}}, time_scale: 1}
"""
PIECES = ["{", "}", "[", "]", ":", "- ", "\n", "  ", "&a ", "*a", "<<: *a", "!!int ", "!x ", "null", "~", "'", '"', "|", "#", "%", "---", "1e999", ".nan", "{index}", "0", "-1", "true", "jobs", "name", "grid:", "over:", "\x00", "\ud800", "é", "\u2028", "99999999999999999999"]  # fmt: skip


def outcome(text: str) -> EnsembleSpec | SpecError:
    try:
        spec = loads(text)
    except SpecError as error:
        assert error.problems and all(problem.rule and str(problem) for problem in error.problems)
        assert str(error).count("\n") >= 1
        return error
    assert spec.jobs
    return spec


def test_the_spec_that_is_mutated_is_valid() -> None:
    assert isinstance(outcome(SPEC), EnsembleSpec)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60))
def test_any_text(text: str) -> None:
    outcome(text)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
def test_texts_of_yaml_pieces(text: str) -> None:
    outcome(text)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, len(SPEC)), st.integers(0, 12), st.sampled_from(PIECES) | st.text(max_size=4))
@example(0, 0, "<<: {a: 1}\n")
def test_mutated_specs(start: int, length: int, piece: str) -> None:
    outcome(SPEC[:start] + piece + SPEC[start + length :])


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "jobs", "grid", "sample", "over", "model", "task", "seed", "data", "stop", "defaults", "count", "arguments", "rehearse", "rates", "train"]) | st.integers() | st.none(), inner, max_size=5),
    max_leaves=25,
)  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["name", "seed", "data", "jobs", "defaults", "resources", "rehearse", "policy", "profile"]),
        TREES,
        max_size=6,
    )
)
def test_any_tree(tree: dict[str, object]) -> None:
    try:
        spec = EnsembleSpec.from_mapping(tree)
    except SpecError as error:
        assert error.problems and str(error)
    else:
        assert spec.jobs
