"""What more virtual workers would bring, and which a job gets that leaves their number open."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleet.commands.plan import plan_tables
from fleet.journal.whole_files import RateProfile
from fleet.session.dry_run import DryRun, make_plan
from fleet.spec import Job, SpecError, load
from tests.live.support.arriving import Arriving, write_spec

DEVICES = 8
EPOCHS = {"long": 40, "short": 2, "third": 2}


def planned(folder: Path, workers: Mapping[str, int | str], devices: int = DEVICES, **keys: Any) -> DryRun:
    """The plan of a long job and two short ones, which are measured on one device."""
    jobs = [Arriving(name, 1, epochs, 0.0, 1e6, 0, {1: 100.0}) for name, epochs in EPOCHS.items()]
    path = write_spec(folder, jobs)
    values = yaml.safe_load(path.read_text())
    values["jobs"] = [{**job, **keys, "virtual_workers": workers[job["name"]]} for job in values["jobs"]]
    values["resources"] = {"ring_samples": 100_000}
    path.write_text(yaml.safe_dump(values))
    return make_plan(load(path), (devices,))


def same(count: int | str) -> dict[str, int | str]:
    return dict.fromkeys(EPOCHS, count)


def test_a_plan_says_which_more_would_do(tmp_path: Path) -> None:
    plan = planned(tmp_path, same(1))
    assert plan.more_workers is not None
    wanted = dict(plan.more_workers.workers)
    assert wanted["long"] > 2, "it trains when the others are done"
    with_them = planned(tmp_path, {**same(1), **wanted})
    assert with_them.seconds == pytest.approx(plan.more_workers.seconds)
    assert with_them.seconds < 0.5 * plan.seconds
    assert with_them.more_workers is None, "no more would make it shorter"
    told = [part for part in plan_tables(plan) if isinstance(part, str)]
    assert any(part.startswith("virtual_workers hold this plan back") and "long: " in part for part in told)
    assert plan.to_json()["more_workers"]["virtual_workers"] == wanted


def test_nothing_is_told_of_what_brings_nothing(tmp_path: Path) -> None:
    assert planned(tmp_path, same(1), devices=1).more_workers is None
    assert planned(tmp_path, same(DEVICES)).more_workers is None
    assert planned(tmp_path, same(DEVICES)).to_json()["more_workers"] is None


def test_a_policy_that_chooses_batches_is_told_nothing(tmp_path: Path) -> None:
    assert planned(tmp_path, same(1), batch_range=[1, 480]).more_workers is None


def test_a_job_that_leaves_it_open_gets_the_useful_number(tmp_path: Path) -> None:
    plan = planned(tmp_path, {**same(1), "long": "auto"})
    chosen = plan.chosen_workers["long"]
    assert list(plan.chosen_workers) == ["long"] and 2 < chosen <= DEVICES
    written = planned(tmp_path, {**same(1), "long": chosen})
    assert written.seconds == plan.seconds and written.chosen_workers == {}
    assert written.seconds <= 1.02 * planned(tmp_path, {**same(1), "long": DEVICES}).seconds
    assert plan.to_json()["jobs"]["long"]["virtual_workers"] == chosen
    assert f"virtual_workers: auto stands for long: {chosen}" in plan_tables(plan)


def test_as_few_as_make_the_run_no_longer(tmp_path: Path) -> None:
    """Beside a long job that cannot be sped up, the short ones need one device each."""
    plan = planned(tmp_path, {"long": 1, "short": "auto", "third": "auto"}, devices=3)
    assert plan.chosen_workers == {"short": 1, "third": 1}


def test_every_device_can_be_used_by_somebody(tmp_path: Path) -> None:
    plan = planned(tmp_path, {"long": 1, "short": "auto", "third": "auto"})
    assert sum(plan.chosen_workers.values()) + 1 >= DEVICES


def test_a_step_takes_no_more_samples_than_there_are(tmp_path: Path) -> None:
    plan = planned(tmp_path, same("auto"), batch_size=240)
    assert max(plan.chosen_workers.values()) == 2, "of 480 samples"


def test_a_run_that_has_begun_keeps_its_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    directory = tmp_path / "runs" / "arriving"
    directory.mkdir(parents=True)
    (directory / "spec.json").write_text(json.dumps({"jobs": {"long": {"virtual_workers": 5}}}))
    assert planned(tmp_path, {**same(1), "long": "auto"}).chosen_workers["long"] != 5, "none has begun"
    (directory / "journal.jsonl").write_text("")
    assert planned(tmp_path, {**same(1), "long": "auto"}).chosen_workers == {"long": 5}


def test_measured_rates_count_whatever_they_were_measured_with(tmp_path: Path) -> None:
    """They say that more devices make the job slower, where guesses say that they help."""
    planned(tmp_path, {**same(1), "long": "auto"})
    path = tmp_path / "arriving.yaml"
    values = {**yaml.safe_load(path.read_text()), "rehearse": None}
    values["jobs"][0]["stop"] = {"epochs": 1_000_000}  # a tiny network is guessed to be fast
    path.write_text(yaml.safe_dump(values))
    assert make_plan(load(path), (2,)).chosen_workers == {"long": 2}
    RateProfile(rates={"of 2": {1: 100.0, 2: 60.0}}, names={"of 2": "long"}).write(tmp_path / "rates.json")
    path.write_text(yaml.safe_dump({**values, "profile": {"file": str(tmp_path / "rates.json")}}))
    assert make_plan(load(path), (2,)).chosen_workers == {"long": 1}


def test_it_is_written_as_it_was_until_it_is_chosen() -> None:
    job = Job.model_validate({"name": "a", "task": "t:T", "stop": {"epochs": 1}, "virtual_workers": "auto"})
    assert job.auto_workers and job.model_dump(mode="json")["virtual_workers"] == "auto"
    assert Job.model_validate(job.model_dump(mode="json")) == job
    chosen = job.with_workers(3)
    assert not chosen.auto_workers and chosen.model_dump(mode="json")["virtual_workers"] == 3 and job.auto_workers


@pytest.mark.parametrize("key", ["batch", "batch_range"])
def test_it_is_refused_where_a_policy_chooses_the_batch(tmp_path: Path, key: str) -> None:
    keys: dict[str, Any] = {"batch": {"range": [5, 50], "learning_rate": "linear"}, "batch_range": [5, 50]}
    with pytest.raises(SpecError) as refused:
        planned(tmp_path, same("auto"), **{key: keys[key]})
    assert "exclude each other" in str(refused.value) and "give virtual_workers a number" in str(refused.value)


def test_another_word_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as refused:
        planned(tmp_path, same("many"))
    assert "virtual_workers" in str(refused.value) and "Traceback" not in str(refused.value)
