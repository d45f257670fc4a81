"""What the arguments that several commands take come to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from fleet.commands.arguments import changes_of, cluster_shape
from fleet.spec import load

DIGITS = Path(__file__).parents[2] / "examples" / "digits.yaml"


@pytest.mark.parametrize(
    ("text", "shape"), [(None, None), ("3x4", (4, 4, 4)), ("1x1", (1,)), ("4,4,2", (4, 4, 2)), ("8", (8,))]
)
def test_a_shape_names_the_devices_of_each_node(text: str | None, shape: tuple[int, ...] | None) -> None:
    assert cluster_shape(text) == shape


@pytest.mark.parametrize("text", ["", "x", "3x", "3x4x5", "0x4", "4,0", "4,,2", "-1", "two"])
def test_other_texts_are_told_what_a_shape_is(text: str) -> None:
    with pytest.raises(ValueError, match=f"--cluster {text}: nodes x devices of each, such as 3x4"):
        cluster_shape(text)


def test_options_change_the_spec_and_settings_win() -> None:
    settings = ["resources.trainers=5", "policy.restart=2.5"]
    spec = load(DIGITS, changes_of(3, 2, "homogeneous", settings))
    assert (spec.resources.trainers, spec.resources.preprocessors) == (5, 2)
    assert (spec.policy.name, dict(spec.policy.parameters), spec.policy.restart) == ("homogeneous", {}, 2.5)


def test_no_options_change_nothing() -> None:
    assert changes_of(None, None, None, None) == ()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("run", DIGITS, "--cluster", "2x2"), "--cluster pretends nodes, which only a rehearsal can: add --rehearse"),
        (("run", DIGITS, "--rehearse", "--cluster", "2xx"), "--cluster 2xx: nodes x devices of each"),
        (("run", DIGITS, "--reduce", "smoke"), "--reduce smoke: choose one of device, mpi, horovod"),
        (("run", "nothing.yaml"), "there is no such file"),
        (("profile", DIGITS, "--out", "rates.json", "--part", "3/2"), "--part 3/2: write I/K"),
        (("profile", DIGITS, "--out", "rates.json", "--part", "half"), "--part half: write I/K"),
        (("plan", DIGITS, "--cluster", "0x4"), "--cluster 0x4: nodes x devices of each"),
        (("plan", DIGITS, "--policy", "flotila"), "nearest: flotilla"),
        (("plan", DIGITS, "--set", "resources.trainer=2"), "resources.trainers"),
    ],
)
def test_what_is_wrong_with_the_words_is_told_before_any_rank_starts(
    words: tuple[object, ...], told: str, call: Callable[..., Result]
) -> None:
    ended = call(*words)
    assert ended.exit_code == 2 and told in ended.stderr and ended.stderr.startswith("fleet: "), ended.output
    assert "Traceback" not in ended.output
