"""Measured rates: what stands in the tables, what lies between and beyond, and tables that are none."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.papers.pollux_machine import PolluxRates, StepTime
from fleet.scheduling.model.rates import RateCurve
from fleet.simulator.machines.kinds import FREE, MIXED_KINDS, KindRates
from fleet.simulator.machines.machine import RunRates, UnknownRate
from fleet.simulator.machines.rate_tables import RateTable, read_rate_table, read_rates
from fleet.simulator.traces import TraceError, TraceJob
from tests.simulator.support import trace_files
from tests.simulator.support.trace_files import written


@pytest.fixture
def table(tmp_path: Path) -> RateTable:
    return read_rate_table(written(tmp_path, trace_files.RATES, "bert.csv").parent)


def test_measured_counts_are_as_measured_and_lines_lie_between(table: RateTable) -> None:
    assert table.rates("bert", 64, 8).tolist() == [10, 18, 24, 30, 27.5, 25, 22.5, 20]


def test_beyond_the_last_measured_count_the_rate_stays(table: RateTable) -> None:
    assert table.rates("bert", 128, 6).tolist() == [5, 9, 12.5, 16, 16, 16]
    assert table.rates("bert", 128, 6).tolist() == table.rates("bert", 128, 64)[:6].tolist()


def test_below_the_first_measured_count_the_rate_is_proportional() -> None:
    assert RateTable({("x", 1): {4: 8.0, 6: 9.0}}).rates("x", 1, 6).tolist() == [2, 4, 6, 8, 8.5, 9]


def test_the_peak_is_the_smallest_count_with_the_highest_rate(table: RateTable) -> None:
    assert (table.peak("bert", 64), table.peak("bert", 128)) == (4, 4)
    assert RateTable({("x", 1): {1: 2.0, 2: 3.0, 4: 3.0}}).peak("x", 1) == 2


def test_rates_cannot_be_changed_by_those_who_get_them(table: RateTable) -> None:
    with pytest.raises(ValueError, match="read-only"):
        table.rates("bert", 64, 4)[0] = 1
    with pytest.raises(ValueError, match="read-only"):
        table.rates("bert", 64, 40)[0] = 1


def test_the_rate_curve_of_a_table_has_its_rates_in_samples(table: RateTable) -> None:
    assert table.curve("bert", 64).rates(20) == pytest.approx(64 * table.rates("bert", 64, 20))


def test_unknown_models_and_batch_sizes_name_the_known(table: RateTable) -> None:
    with pytest.raises(UnknownRate, match="model 'bart' was not measured; did you mean 'bert'"):
        table.rates("bart", 64, 1)
    with pytest.raises(UnknownRate, match="batch size of bert 100 was not measured; nearest: 128; known: 64, 128"):
        table.of(TraceJob("a", 0, 1, "bert", 100), 1)
    with pytest.raises(UnknownRate, match="batch size"):
        table.of(TraceJob("a", 0, 1, "bert"), 1)


def test_a_table_holds_its_models_and_batch_sizes_in_order(table: RateTable) -> None:
    assert (table.models, table.batches("bert")) == (("bert",), (64, 128))
    assert table.measured("bert", 128) == {1: 5, 2: 9, 4: 16}


points = st.dictionaries(st.integers(1, 40), st.floats(1e-6, 1e9), min_size=1, max_size=6)


@given(points=points, limit=st.integers(1, 80))
def test_no_rate_exceeds_the_measured_peak(points: dict[int, float], limit: int) -> None:
    rates = RateTable({("x", 8): points}).rates("x", 8, limit)
    assert rates.shape == (limit,)
    assert (rates > 0).all() and (rates <= max(points.values()) * (1 + 1e-12)).all()
    assert all(rates[count - 1] == rate for count, rate in points.items() if count <= limit)


def bad_table(folder: Path, text: str) -> list[tuple[int | None, str | None, str | None]]:
    with pytest.raises(TraceError) as caught:
        read_rates(written(folder, text, "bad.csv").parent)
    return [(problem.line, problem.column, problem.value) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("global_batch_size,1,2,4\n64,10,nan,30\n", [(2, "2", "nan")]),
        ("global_batch_size,1,2\n64,0,-3\n", [(2, "1", "0"), (2, "2", "-3")]),
        ("global_batch_size,1,2\n64,10,inf\n", [(2, "2", "inf")]),
        ("global_batch_size,1,2\n64,nan,nan\n", [(2, "global_batch_size", "64")]),
        ("global_batch_size,1\n64,1\n64,2\n", [(3, "global_batch_size", "64")]),
        ("global_batch_size,1,two\n64,1,2\n", [(1, "two", None)]),
        ("batch,1\n64,1\n", [(1, None, None)]),
        ("global_batch_size,1\nsome,1\n", [(2, "global_batch_size", "some")]),
        ("", [(None, None, None)]),
    ],
)
def test_bad_tables_of_rates_are_reported(tmp_path: Path, text: str, found: list[object]) -> None:
    assert bad_table(tmp_path, text) == found


def test_cells_at_the_end_of_a_row_may_say_nan(tmp_path: Path) -> None:
    table = read_rate_table(written(tmp_path, "global_batch_size,1,2,4\n64,10,12,nan\n", "x.csv").parent)
    assert table.measured("x", 64) == {1: 10, 2: 12}


def test_all_bad_files_of_a_folder_are_in_one_report(tmp_path: Path) -> None:
    written(tmp_path, "global_batch_size,1\n64,-1\n", "a.csv")
    assert bad_table(tmp_path, "") == [(2, "1", "-1"), (None, None, None)]


def test_folders_without_rates_are_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "gone"):
        with pytest.raises(TraceError, match=str(folder)):
            read_rates(folder)


KINDS = f"model,bs,gpu,{FREE},ddp_determinism,{MIXED_KINDS}\nNeuMF,1024,v100,.1,.2,.3\nNeuMF,1024,T4,.1,.4,.6\n"
KIND_FILE = "minibatch_seconds_by_gpu.csv"


@pytest.fixture
def kinds(tmp_path: Path) -> KindRates:
    rates = read_rates(written(tmp_path, KINDS, KIND_FILE).parent)
    assert isinstance(rates, KindRates)
    return rates


def test_seconds_of_a_mini_batch_grow_with_its_size(kinds: KindRates) -> None:
    assert kinds.seconds("ncf", 1024, "t4") == pytest.approx(0.4)
    assert kinds.seconds("ncf", 512, "t4", MIXED_KINDS) == pytest.approx(0.3)


def test_a_step_takes_as_many_mini_batches_as_turns(kinds: KindRates) -> None:
    job = TraceJob("a", 0, 4, "ncf", 4 * 512, workers=4, kind="v100")
    assert kinds.of(job, 5) == pytest.approx(1 / np.array([0.4, 0.2, 0.2, 0.1, 0.1]))


def test_unknown_kinds_and_columns_name_the_known(kinds: KindRates) -> None:
    with pytest.raises(UnknownRate, match="known: v100, t4"):
        kinds.seconds("ncf", 1, "a100")
    with pytest.raises(UnknownRate, match="known: ncf"):
        kinds.seconds("bert", 1, "t4")
    with pytest.raises(UnknownRate, match=MIXED_KINDS):
        kinds.seconds("ncf", 1, "t4", "ddp_homo")


def test_bad_mini_batch_seconds_are_reported(tmp_path: Path) -> None:
    path = written(tmp_path, KINDS.replace(".6", "nan") + "neumf,1024,t4,1,1,1\n", KIND_FILE)
    with pytest.raises(TraceError) as caught:
        read_rates(path)
    assert [(problem.line, problem.column) for problem in caught.value.problems] == [(3, MIXED_KINDS), (4, "model")]


def pollux_folder(folder: Path) -> Path:
    step = "local_bsz,step_time,sync_time\n"
    rows = ["1,8,1.0,0", "1,16,2.0,0", "2,8,1.2,.2", "2,16,2.2,.2", "11,8,1.4,.4", "12,8,1.6,.6", "112,8,2.4,1.4"]
    written(folder, "placement," + step + "\n".join(rows), "net/placements.csv")
    written(folder, "num_nodes,num_replicas," + step + "6,6,8,3,2\n6,12,8,5,4\n", "net/scalability.csv")
    for batch, steps in ((16, (10, 20)), (64, (4, 10))):
        progress = f"10,{steps[0]},.5,{batch},1\n20,{steps[1]},.6,2,3\n"
        written(folder, f"progress,iteration,metric,grad_sqr,grad_var\n{progress}", f"net/validation-{batch}.csv")
    return folder


@pytest.fixture
def pollux(tmp_path: Path) -> PolluxRates:
    rates = read_rates(pollux_folder(tmp_path))
    assert isinstance(rates, PolluxRates)
    return rates


def test_a_measured_placement_counts_in_any_rotation(pollux: PolluxRates) -> None:
    net = pollux.application("net")
    assert net.step((1, 0, 2), 8) == net.step((2, 1), 8) == StepTime(1.6, 0.6)
    assert net.step((2, 1, 1), 8) == net.step((1, 1, 2), 8) == StepTime(2.4, 1.4)


def test_placements_that_were_not_measured_lie_between(pollux: PolluxRates) -> None:
    net = pollux.application("net")
    assert net.step((2,) * 6, 8) == pytest.approx((5, 4))
    assert net.step((1, 2) * 3, 8) == pytest.approx((4, 3))
    # 3 nodes have 4 devices measured, 6 nodes 6 and 12: 4 nodes with 4/3 devices each are a third of the way to 8 of 6.
    assert net.step((1, 1, 1, 1), 8).seconds == pytest.approx(2.4 + (3 - 2.4) / 3)


def test_what_does_not_fit_is_accumulated_and_exchanged_once(pollux: PolluxRates) -> None:
    net = pollux.application("net")
    assert net.iteration((1,), 12) == pytest.approx(1.5)
    assert net.iteration((2,), 64) == pytest.approx(2.2 + 2.0)


def test_rates_of_pollux_are_those_of_filled_nodes(pollux: PolluxRates) -> None:
    assert pollux.rates("net", 16, 2) == pytest.approx([1 / 2.0, 1 / 1.2])
    assert pollux.of(TraceJob("a", 0, 1, "net", 16), 1) == pytest.approx([0.5])


def test_work_progress_and_noise_lie_between_the_batch_sizes(pollux: PolluxRates) -> None:
    net = pollux.application("net")
    assert (net.work(16), net.work(40), net.work(64)) == (20, 15, 10)
    assert (net.progress(0), net.progress(2), net.epochs, net.initial_batch) == (0, 20, 2, 16)
    assert net.noise(40, 0) == (40, 1)
    assert pollux.work(TraceJob("a", 0, 1, "net", 64)) == 10


def test_pollux_names_what_it_knows(pollux: PolluxRates) -> None:
    with pytest.raises(UnknownRate, match="known: net"):
        pollux.rates("bert", 16, 1)
    with pytest.raises(UnknownRate, match="known: 16, 64"):
        pollux.rates("net", 65, 1)


def test_bad_step_times_of_all_applications_are_in_one_report(tmp_path: Path) -> None:
    written(pollux_folder(tmp_path), "placement,local_bsz,step_time,sync_time\n1,8,nan,0\n", "one/placements.csv")
    written(tmp_path, "placement,local_bsz,step_time,sync_time\n1,8,1,2\n", "two/placements.csv")
    with pytest.raises(TraceError) as caught:
        read_rates(tmp_path)
    found = [(Path(problem.file).parent.name, problem.column) for problem in caught.value.problems]
    assert found == [("one", "step_time"), ("two", "sync_time")]


def test_what_a_run_measured_are_rates_too() -> None:
    rates = RunRates({"a": RateCurve({1: 64, 2: 96}, per_node=2)})
    assert rates.of(TraceJob("a", 0, 1, "a", 32), 2).tolist() == [2, 3]
    with pytest.raises(UnknownRate, match="known: a"):
        rates.of(TraceJob("b", 0, 1, "b", 32), 2)
