"""Fuzzed readers of text: specs, `--set`, jobs to add, sites, profiles and traces."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from fleet.cluster.batch_script import SiteError, read_site
from fleet.journal.whole_files import ProfileError, RateProfile
from fleet.simulator.machines.rate_tables import read_rate_table
from fleet.simulator.traces import TraceError, read_trace
from fleet.spec import SpecError, load, load_jobs, loads, spec_hash
from tests.faults.fuzz.targets import Target
from tests.simulator.support import trace_files
from tests.spec.test_fuzz import SPEC

ADDED = "- {name: b, data: d, stop: {epochs: 2}, model: {name: 'm:N', arguments: {w: [1]}}, optimizer: {name: SGD}}\n"
SETS = b"resources.trainers=2\njobs.a.stop.epochs=3\ndefaults.optimizer.arguments={lr: 0.5}\njobs.0.seed=9"
LOG = json.dumps(
    [{
        "jobid": "x", "submitted_time": "2017-10-07 00:00:00", "vc": "v", "status": "Pass",
        "attempts": [{
            "start_time": "2017-10-07 01:00:00", "end_time": "2017-10-07 02:00:00",
            "detail": [{"ip": "m1", "gpus": ["g1", "g2"]}],
        }],
    }]
)  # fmt: skip


def constant(*texts: str | bytes) -> Callable[[Path], Sequence[bytes]]:
    """A corpus of these texts."""
    return lambda folder: [text.encode() if isinstance(text, str) else text for text in texts]


def _written(content: bytes, path: Path) -> Path:
    path.write_bytes(content)
    return path


def _spec(content: bytes, folder: Path) -> Any:
    spec = load(_written(content, folder / "spec.yaml"))
    assert spec.jobs and spec_hash(spec) and json.dumps(spec.to_mapping(), allow_nan=False).encode()
    return spec


def _set(content: bytes, folder: Path) -> Any:
    spec = loads(SPEC, content.decode(errors="surrogateescape").split("\n"))
    assert spec.jobs and spec_hash(spec) and json.dumps(spec.to_mapping(), allow_nan=False).encode()
    return spec


def _added(content: bytes, folder: Path) -> Any:
    spec = load_jobs(_written(content, folder / "jobs.yaml"), loads(SPEC).to_mapping(), folder)
    return [json.dumps(job, allow_nan=False).encode() for job in spec.to_mapping()["jobs"]]


def _sites(folder: Path) -> Sequence[bytes]:
    known = (files("batch_scripts") / "sites.yaml").read_text()
    own = "scheduler: slurm\ngpus: 4\ncores: 8\nlaunch: [--cpu-bind=none]\nsetup: [module load x]\nenvironment: {A: b}"
    return [own.encode(), *(yaml.safe_dump(site).encode() for site in yaml.safe_load(known).values())]


def _site(content: bytes, folder: Path) -> Any:
    return read_site(str(_written(content, folder / "site.yaml")))


def _profile(content: bytes, folder: Path) -> Any:
    profile = RateProfile.read(_written(content, folder / "rates.json"))
    found = [profile.named("a"), profile.named("x"), *map(profile.measured, profile.rates)]
    profile.updated(profile).write(folder / "again.json")
    again = RateProfile.read(folder / "again.json")
    assert (again.rates, again.preprocessors) == (profile.rates, profile.preprocessors)
    return found


PROFILE = '{"where": "vm", "when": "2026", "rates": {"f": {"1": 2.5, "2": 4}, "g": {"1": 1e6}}, "names": {"f": "a"}, '
PROFILE += '"preprocessors": {"1": 900.0}}'


def _trace(name: str) -> Callable[[bytes, Path], Any]:
    def read(content: bytes, folder: Path) -> Any:
        trace = read_trace(_written(content, folder / name))
        assert all(job.devices >= 1 and job.arrival >= 0 for job in trace)
        return trace

    return read


def _rates(content: bytes, folder: Path) -> Any:
    (folder / "rates").mkdir()
    table = read_rate_table(_written(content, folder / "rates" / "bert.csv").parent)
    return [table.measured("bert", batch) for batch in table.batches("bert")]


NATIVE = "name,arrival,devices,model,batch_size,work,deadline,mixed\na,0,1,bert,64,100,900,yes\nb,5,2,bert,64,9,,no\n"
TABLES = (trace_files.ELASTICFLOW, trace_files.SHORT, trace_files.EASYSCALE, trace_files.POLLUX, trace_files.PHILLY, NATIVE)  # fmt: skip  # noqa: E501

TARGETS = (
    Target("spec", constant(SPEC), _spec, (SpecError,)),
    Target("set", constant(SETS), _set, (SpecError,)),
    Target("added jobs", constant(ADDED), _added, (SpecError,)),
    Target("site", _sites, _site, (SiteError,)),
    Target("profile", constant(PROFILE), _profile, (ProfileError,)),
    Target("trace", constant(*TABLES), _trace("trace.csv"), (TraceError,)),
    Target("trace log", constant(LOG), _trace("log.json"), (TraceError,)),
    Target("rate table", constant(trace_files.RATES), _rates, (TraceError,)),
)
