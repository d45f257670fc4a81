"""Specs from files and from Python."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from typing import Any

import pydantic
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.spec import EnsembleSpec, Job, Named, SpecError, Stop, load, loads
from fleet.spec.optimizer import Optimizer


def test_a_whole_spec(text: str, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "ensemble.yaml"
    file.write_text(text)
    spec = load(file)
    assert [job.name for job in spec.jobs] == ["mlp-1", "cnn-8", "cnn-16", "net-0", "net-1", "net-2"]
    assert spec.folder == tmp_path and spec.seed == 3
    assert spec.jobs[0].model == Named(name="trainers.zoo:MLP", arguments={"widths": [128]})
    assert all(job.seed == 3 and job.data == "digits" and job.stop.epochs == 8 for job in spec.jobs)
    assert spec.data["digits"].transforms[0].step == {"random_crop": {"size": 28, "padding": 2}}
    assert spec.data["digits"].transforms[1].step == {"flip": {}}
    assert spec.policy.parameters == {"alpha": 0.8, "delta": "12%"}
    assert spec.rehearse is not None and spec.rehearse.rates == {"mlp-1": {1: 100.0, 2: 190.0}}
    assert spec.job("cnn-16").model == Named(name="trainers.zoo:CNN", arguments={"width": 16})
    with pytest.raises(KeyError, match="no job is called 'x'"):
        spec.job("x")


def test_defaults_of_every_section(small: dict[str, Any]) -> None:
    spec = EnsembleSpec.from_mapping(small)
    assert spec.seed == 0 and spec.rehearse is None and spec.policy.name == "flotilla" and spec.policy.parameters == {}
    assert spec.resources.model_dump() == {
        "trainers": None,
        "preprocessors": 1,
        "preparing_trainers": 0,
        "threads": 1,
        "ring_samples": 1024,
        "slot_samples": 32,
        "device": "auto",
        "members_per_device": 1,
        "kinds": {},
        "prices": {},
        "store": {"memory": None, "disk": 0.0, "path": None},
        "energy": {"read": True, "powercap": "/sys/class/powercap", "hwmon": "/sys/class/hwmon"},
        "memory_gib": None,
        "timeout": 300.0,
        "lock_wait": 180.0,
    }
    assert (spec.policy.restart, spec.policy.margin) == (1.0, 1.0)
    assert spec.checkpoints.model_dump() == {"every": 1, "seconds": 2.0, "keep": 2, "best": None, "margin": 30.0}
    assert spec.profile.model_dump() == {"when": "training", "batches": 48, "timed": 20, "file": None}
    job = spec.jobs[0]
    assert (job.virtual_workers, job.batch_size, job.global_batch, job.seed) == (1, 32, 32, 0)
    assert (job.deadline, job.priority, job.batch_range, job.arrival) == (None, 0, None, 0.0)
    assert job.stop == Stop(epochs=2) and job.stop.monitored == "test_loss"


def test_optional_keys_for_schedulers_are_kept(small: dict[str, Any]) -> None:
    small["jobs"][0].update(deadline=3600, priority=-2, batch_range=[32, 512], arrival=60)
    job = EnsembleSpec.from_mapping(small).jobs[0]
    assert (job.deadline, job.priority, job.batch_range, job.arrival) == (3600.0, -2, (32, 512), 60.0)


def test_fewer_profiled_batches_are_all_timed(small: dict[str, Any]) -> None:
    small["profile"] = {"batches": 4}
    assert EnsembleSpec.from_mapping(small).profile.timed == 4


@pytest.mark.parametrize(
    ("stop", "monitored"),
    [
        ({"epochs": 1}, "test_loss"),
        ({"epochs": 1, "target": {"accuracy": 0.9, "top5": 1}}, "accuracy"),
        ({"epochs": 1, "target": {"accuracy": 0.9}, "monitor": "loss"}, "loss"),
    ],
)
def test_what_patience_watches(stop: dict[str, Any], monitored: str) -> None:
    assert Stop.model_validate(stop).monitored == monitored


def test_round_trip_of_a_whole_spec(text: str) -> None:
    spec = loads(text)
    mapping = spec.to_mapping()
    assert EnsembleSpec.from_mapping(mapping) == spec
    assert loads(yaml.safe_dump(mapping)) == spec


def test_lines_for_other_processes(text: str) -> None:
    spec = loads(text)
    read = EnsembleSpec.from_lines(*spec.to_lines(), pathlib.Path("elsewhere"))
    assert tuple(read.jobs) == spec.jobs and read.with_jobs(spec.jobs) == spec and read.folder.name == "elsewhere"
    assert read.found.readers == spec.found.readers and read.found.folded == spec.found.folded
    last, first = spec.jobs[-1], spec.jobs[0]
    more = read.with_job(last.model_copy(update={"name": "more"})).with_changed_job(first.with_batch_size(77))
    assert [job.name for job in more.jobs] == [*(job.name for job in spec.jobs), "more"]
    assert more.job(first.name).batch_size == 77 and more.job("more").data == last.data
    assert read.job(first.name).batch_size == first.batch_size, "the spec that it was made of has not changed"
    with pytest.raises(KeyError):
        read.job("none")


def test_a_spec_is_frozen_and_apart_from_what_it_was_made_of(small: dict[str, Any]) -> None:
    spec = EnsembleSpec.from_mapping(small)
    small["jobs"][0]["model"]["arguments"]["width"] = 99
    assert spec.jobs[0].model is not None and spec.jobs[0].model.arguments == {"width": 4}
    with pytest.raises(pydantic.ValidationError):
        spec.jobs[0].seed = 5


def test_built_from_objects(small: dict[str, Any]) -> None:
    spec = EnsembleSpec.from_mapping(small)
    job = Job(
        name="one",
        model=Named(name="toys:Net", arguments={"width": 4}),
        data="toy",
        optimizer=Optimizer(name="SGD", arguments={"lr": 0.1}),
        metrics=("accuracy",),
        stop=Stop(epochs=2),
    )
    assert EnsembleSpec(name="small", data=spec.data, jobs=(job,)) == spec
    with pytest.raises(pydantic.ValidationError, match="both called one"):
        EnsembleSpec(name="small", data=spec.data, jobs=(job, job))
    with pytest.raises(pydantic.ValidationError, match="needs a model or a task"):
        Job(name="one", stop=Stop(epochs=2))


def test_tuples_are_lists(small: dict[str, Any]) -> None:
    small["jobs"] = tuple(small["jobs"])
    small["jobs"][0]["model"]["arguments"]["widths"] = (1, 2)
    model = EnsembleSpec.from_mapping(small).jobs[0].model
    assert model is not None and model.arguments["widths"] == [1, 2]


def test_own_things_in_a_mapping_are_refused(small: dict[str, Any]) -> None:
    small["jobs"][0]["model"]["arguments"]["thing"] = object()
    loop: list[Any] = []
    loop.append(loop)
    small["seed"] = object()
    with pytest.raises(SpecError) as caught:
        EnsembleSpec.from_mapping(small)
    assert {problem.path for problem in caught.value.problems} == {"seed", "jobs[0].model.arguments.thing"}
    small["jobs"] = loop
    with pytest.raises(SpecError, match="nested too deeply"):
        EnsembleSpec.from_mapping(small)


def _file_problem(path: pathlib.Path) -> Any:
    with pytest.raises(SpecError) as caught:
        load(path)
    (problem,) = caught.value.problems
    assert caught.value.file == str(path) and str(path) in str(caught.value)
    return problem


def test_missing_file_with_the_nearest(tmp_path: pathlib.Path) -> None:
    (tmp_path / "ensemble.yaml").write_text("name: x")
    problem = _file_problem(tmp_path / "ensmble.yaml")
    assert problem.rule == "there is no such file" and problem.suggestion == str(tmp_path / "ensemble.yaml")
    assert "the folder" in _file_problem(tmp_path / "nowhere" / "x.yaml").rule


def test_directory(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.yaml").write_text("name: x")
    problem = _file_problem(tmp_path)
    assert "this is a directory" in problem.rule and problem.suggestion == str(tmp_path / "a.yaml")


def test_other_files_that_are_no_specs(tmp_path: pathlib.Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert "not a regular file" in _file_problem(pipe).rule
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"name: x\nseed: \xe9\n")
    problem = _file_problem(latin)
    assert "not UTF-8" in problem.rule and problem.line == 2
    large = tmp_path / "large.yaml"
    with large.open("wb") as file:
        file.truncate(2**24 + 1)
    assert "16,777,217 bytes" in _file_problem(large).rule
    assert "null byte" in _file_problem(pathlib.Path("a\0b")).rule


def test_a_byte_order_mark_is_passed_over(text: str, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "bom.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert load(file).name == "digits"


def test_files_of_a_spec_are_looked_for_beside_it(
    text: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub" / "ensemble.yaml").write_text(text)
    (tmp_path / "sub" / "rates.json").write_text("{}")
    spec = load("sub/ensemble.yaml")
    assert spec.file("rates.json") == tmp_path / "sub" / "rates.json"
    assert spec.file("other.json") == pathlib.Path("other.json")


def test_reading_a_spec_does_not_load_torch(text: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "ensemble.yaml").write_text(text)
    code = "import sys; from fleet.spec import load; load(sys.argv[1]); sys.exit('torch' in sys.modules)"
    root = pathlib.Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "ensemble.yaml")], cwd=root, timeout=120)
    assert done.returncode == 0


NAMES = st.from_regex(r"[a-z][a-z0-9.=+_-]{0,8}", fullmatch=True)
SCALARS = st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False)
PLAIN = st.recursive(
    SCALARS | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(min_size=1, max_size=5), inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(st.text(min_size=1, max_size=6), PLAIN, max_size=3)
NAMED = st.fixed_dictionaries({"name": st.text(min_size=1, max_size=8)}, optional={"arguments": ARGUMENTS})
POSITIVE = st.floats(min_value=1e-6, max_value=1e9)
JOBS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "name": NAMES,
        "model": NAMED,
        "data": st.just("d"),
        "optimizer": NAMED,
        "stop": st.fixed_dictionaries(
            {"epochs": st.integers(1, 999)}, optional={"target": st.dictionaries(NAMES, POSITIVE, max_size=2)}
        ),
    },
    optional={
        "loss": NAMED,
        "schedule": NAMED | st.none(),
        "seed": st.integers(0, 2**31 - 1),
        "virtual_workers": st.integers(1, 64),
        "deadline": st.none() | POSITIVE,
        "metrics": st.lists(st.text(min_size=1, max_size=4), max_size=2, unique=True),
    },
)
ENSEMBLES: st.SearchStrategy[list[dict[str, Any]]] = st.lists(
    JOBS, min_size=1, max_size=3, unique_by=lambda job: str(job["name"])
)
SPECS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"name": NAMES, "jobs": ENSEMBLES},
    optional={
        "seed": st.integers(0, 2**31 - 1),
        "data": st.dictionaries(
            NAMES, st.fixed_dictionaries({"train": NAMED.map(lambda x: {"source": x["name"]})}), max_size=2
        ),
        "policy": st.fixed_dictionaries({"name": NAMES, "parameters": ARGUMENTS}),
        "rehearse": st.fixed_dictionaries(
            {
                "rates": st.none()
                | st.dictionaries(NAMES, st.dictionaries(st.integers(1, 64), POSITIVE, max_size=3), max_size=2)
            }
        ),
    },
)


@settings(max_examples=60, deadline=None)
@given(SPECS)
def test_round_trip_through_mappings_and_yaml(mapping: dict[str, Any]) -> None:
    spec = EnsembleSpec.from_mapping(mapping)
    assert EnsembleSpec.from_mapping(spec.to_mapping()) == spec
    assert EnsembleSpec.from_mapping(spec.to_mapping()).to_mapping() == spec.to_mapping()


@settings(max_examples=40, deadline=None)
@given(SPECS)
def test_json_text_is_a_spec_too(mapping: dict[str, Any]) -> None:
    import json

    spec = EnsembleSpec.from_mapping(mapping)
    assert EnsembleSpec.from_mapping(json.loads(json.dumps(spec.to_mapping()))) == spec


def test_keys_that_are_no_text_are_refused(small: dict[str, Any]) -> None:
    small["data"][None] = {}
    with pytest.raises(SpecError, match="data\n.*a key must be text, but None is not"):
        EnsembleSpec.from_mapping(small)
