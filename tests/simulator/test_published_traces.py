"""The traces and measurements of the papers, where they lie beside the checkout."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.papers.pollux_machine import PolluxRates
from fleet.simulator.machines.kinds import MIXED_KINDS, KindRates
from fleet.simulator.machines.machine import Rates, check_rates
from fleet.simulator.machines.rate_tables import RateTable, read_rate_table, read_rates
from fleet.simulator.traces import Trace, TraceJob, read_trace
from tests.simulator.support.published import published


def trace(name: str) -> Trace:
    return read_trace(published(f"traces/{name}.csv"))


def rates(name: str) -> Rates:
    return read_rates(published(f"measurements/{name}"))


@pytest.mark.parametrize(
    ("name", "format", "jobs", "offset"),
    [
        ("elasticflow/195job", "elasticflow", 195, 3715485),
        ("elasticflow/cluster01", "elasticflow", 1595, 1932025),
        ("elasticflow/cluster06", "elasticflow", 2396, 16566),
        ("elasticflow/cluster10", "elasticflow", 260, 2266647),
        ("elasticflow/elasticVpollux_e", "elasticflow", 195, 3715485),
        ("easyscale_67jobs", "easyscale", 68, 115),
        ("pollux/workload-6", "pollux", 160, 53),
    ],
)
def test_published_traces_have_their_jobs(name: str, format: str, jobs: int, offset: float) -> None:
    found = trace(name)
    assert (found.format, len(found), found.offset, found.jobs[0].arrival) == (format, jobs, offset, 0)


def test_the_first_job_of_the_testbed_trace() -> None:
    name = "bdd640fb-0667-1ad1-1c80-317fa3b1799d"
    expected = TraceJob(name, 0, 1, "deepspeech2", 32, 3249, 3249 * 32, deadline=3716178 - 3715485, duration=1075)
    assert trace("elasticflow/195job").jobs[0] == expected


def test_the_artifact_of_easyscale_simulates_62_of_its_68_rows() -> None:
    found = read_trace(published("traces/easyscale_67jobs.csv"), "easyscale-as-simulated")
    assert len(found) == len(set(found.jobs.name)) == 62
    assert [job.epochs for job in found if job.name == "electra-28-2"] == [40]


def test_the_sample_of_philly_has_nameless_jobs() -> None:
    found = read_trace(published("measurements/pollux_osdi21/philly.csv"))
    assert (found.format, len(found), len(set(found.jobs.name))) == ("philly", 82247, 82247)
    assert found.jobs.devices.max() == 128


@pytest.mark.parametrize(
    ("name", "measured"),
    [
        ("elasticflow/195job", "elasticflow_a100"),
        ("elasticflow/cluster01", "elasticflow_a100"),
        ("elasticflow/cluster06", "elasticflow_a100"),
        ("elasticflow/cluster10", "elasticflow_a100"),
        ("elasticflow/elasticVpollux_e", "elasticflow_t4"),
        ("elasticflow/elasticVpollux_e", "pollux_osdi21"),
        ("pollux/workload-6", "pollux_osdi21"),
        ("easyscale_67jobs", "easyscale"),
    ],
)
def test_every_job_has_rates(name: str, measured: str) -> None:
    check_rates(trace(name), rates(measured))


@pytest.mark.parametrize("name", ["195job", "cluster01", "cluster06", "cluster10"])
def test_work_over_the_measured_rate_is_the_duration_of_the_trace(name: str) -> None:
    table: Rates = rates("elasticflow_a100")
    ratios = [job.work / table.of(job, job.devices)[-1] / job.duration for job in trace(f"elasticflow/{name}")]  # type: ignore[operator]
    assert ratios == pytest.approx([1.0] * len(ratios), abs=2e-3)


@pytest.mark.parametrize("folder", ["elasticflow_a100", "elasticflow_t4"])
def test_powers_of_two_are_exactly_those_of_the_table(folder: str) -> None:
    path = published(f"measurements/{folder}")
    table, files = read_rate_table(path), sorted(Path(path).glob("*.csv"))
    assert files
    for file in files:
        header, *rows = [line.split(",") for line in file.read_text().split()]
        for row in rows:
            found = table.rates(file.stem, int(row[0]), 64)
            for count, cell in zip(header[1:], row[1:]):
                assert cell in ("", "nan") or found[int(count) - 1] == float(cell)


def test_the_measured_peaks_are_where_elasticflow_stops() -> None:
    table = rates("elasticflow_a100")
    assert isinstance(table, RateTable)
    stops = {"bert": (8, 16), "deepspeech2": (32, 64), "gpt2": (16, 32), "inception3": (16, 32), "vgg16": (32, 64, 64)}
    assert {model: tuple(table.peak(model, batch) for batch in table.batches(model)) for model in stops} == stops


def test_the_t4_rates_of_elasticflow_are_those_of_pollux_on_filled_nodes() -> None:
    table, pollux = rates("elasticflow_t4"), rates("pollux_osdi21")
    assert isinstance(table, RateTable) and isinstance(pollux, PolluxRates)
    for model, batch, count in [("cifar10", 4096, 16), ("deepspeech2", 320, 8), ("bert", 384, 8), ("ncf", 32768, 1)]:
        assert pollux.rates(model, batch, 16)[count - 1] == pytest.approx(table.rates(model, batch, 16)[count - 1])


def test_pollux_jobs_do_the_iterations_that_elasticflow_took_from_them() -> None:
    pollux = rates("pollux_osdi21")
    assert isinstance(pollux, PolluxRates)
    work = {(job.model, job.batch_size): pollux.work(job) for job in trace("pollux/workload-6")}
    assert (work["cifar10", 4096], work["ncf", 32768]) == (2011, 1548)
    taken = {(job.model, job.batch_size): job.work for job in trace("elasticflow/elasticVpollux_e")}
    assert {key: taken[key] for key in (("cifar10", 4096), ("ncf", 32768))} == {
        ("cifar10", 4096): 2011,
        ("ncf", 32768): 1548,
    }


def test_noise_and_progress_of_pollux_applications() -> None:
    pollux = rates("pollux_osdi21")
    assert isinstance(pollux, PolluxRates)
    epochs = {model: pollux.application(model).epochs for model in pollux.models}
    assert epochs == {"bert": 2, "cifar10": 100, "deepspeech2": 80, "imagenet": 90, "ncf": 10, "yolov3": 50}
    imagenet = pollux.application("imagenet")
    assert imagenet.noise(6400, 0) == (8.62499340758215, 27.511141683624402)
    assert imagenet.progress(1) == pytest.approx(6406, abs=6)


def test_seconds_by_kind_of_device() -> None:
    kinds = rates("easyscale")
    assert isinstance(kinds, KindRates)
    assert kinds.kinds == ("v100", "p100", "t4")
    assert kinds.seconds("vgg19", 32, "p100") == 0.6514
    assert kinds.seconds("resnet50", 128, "t4", MIXED_KINDS) == pytest.approx(2 * 1.223)
    assert np.isclose(kinds.rates("bert", 8, "v100", 16, 16)[15], 1 / 0.4406)
