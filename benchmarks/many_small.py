"""Many small networks: a sweep of MLPs for which a network's start, ends of epochs and checkpoints weigh most.

The sweep trains with a seed each, and with one order of samples for all; two plain torch loops train the same networks
side by side on the same two cores, in turn with it: `python -m benchmarks.many_small FOLDER FIRST LAST`.
"""

from __future__ import annotations

import importlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.bars import Bar, at_most
from benchmarks.written_spec import write_spec
from fleet.journal.events import Checkpoint, Done, Epoch, Formed, Started
from fleet.journal.journal import read_journal

EPOCHS, STEPS, BATCH = 2, 20, 64
DATA = f'''
from preprocess import DrawnDigits

class Digits:
    """Digits that are drawn once, and lie in memory: what is timed is training."""
    def __init__(self, train):
        drawn = DrawnDigits(train, {STEPS * BATCH})
        self.digits = [drawn[index] for index in range(len(drawn))]
    def __len__(self):
        return len(self.digits)
    def __getitem__(self, index):
        return self.digits[index]
'''
NETWORKS = 200
ROUNDS = 3
TRAINERS = 2
PATIENCE = 600.0
ORDERS = {"a seed each": (1.3, 1.6), "one order": (0.9, 1.3)}
"""Way -> the bars for first step to last and for the whole command, in times of the loops."""


@dataclass(frozen=True)
class Taken:
    """What training all networks took, in seconds.

    Attributes:
        whole: the command, from its start to its end.
        training: from the first network's start to the last one's last epoch.
        idle: of a device between these, the part in neither steps nor evaluation.
        made: samples made for each one read.
        between: kind of pause -> its seconds, one a time.
    """

    whole: float
    training: float
    idle: float = 0.0
    made: float = 0.0
    between: dict[str, list[float]] | None = None


def main(repetitions: int = 0) -> dict[str, Any]:
    """Train the sweep and the loops in turn.

    Args:
        repetitions: rounds, 0: 3 of 200 networks; 10 or more: so many networks, in one round.

    Returns:
        {"bars": [...], "tables": [...]}
    """
    networks, rounds = (repetitions, 1) if repetitions >= 10 else (NETWORKS, repetitions or ROUNDS)
    found: dict[str, list[tuple[Taken, Taken]]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="many-small-") as name:
        folder = Path(name)
        (folder / "small_digits.py").write_text(DATA)
        for number in range(rounds):
            for order in ORDERS:
                loops = plain_loops(folder, networks) if number % 2 else None
                ours = sweep(folder, f"{order.replace(' ', '-')}-{number}", order, networks)
                found[order].append((ours, loops or plain_loops(folder, networks)))
    bars = [bar for order, pairs in found.items() for bar in bars_of(order, pairs)]
    rows = [
        [order, round_, *(round(each, 2) for each in (ours.whole, theirs.whole, ours.training, theirs.training))]
        for order, pairs in found.items()
        for round_, (ours, theirs) in enumerate(pairs)
    ]
    columns = ["order", "round", "command s", "loops' s", "first step to last s", "loops' s"]
    tables = [{"title": f"{networks} small MLPs, {EPOCHS} epochs of {STEPS} steps", "columns": columns, "rows": rows}]
    return {"bars": bars, "tables": [*tables, pauses(found)]}


def bars_of(order: str, pairs: list[tuple[Taken, Taken]]) -> Iterator[Bar]:
    """Medians over the rounds, with the least and the most."""
    training, whole = ORDERS[order]
    figures = {
        "first step to last, in loops'": (training, [ours.training / theirs.training for ours, theirs in pairs]),
        "the whole command, in loops'": (whole, [ours.whole / theirs.whole for ours, theirs in pairs]),
        "samples made for each read": (1.02, [ours.made for ours, _ in pairs]),
        "part of a device's time in neither steps nor evaluation": (0.1, [ours.idle for ours, _ in pairs]),
    }
    for name, (most, values) in figures.items():
        median = round(statistics.median(values), 3)
        yield {**at_most(f"{order}: {name}", median, most), "spread": [min(values), max(values)]}


def pauses(found: dict[str, list[tuple[Taken, Taken]]]) -> dict[str, Any]:
    """A table of what stands between two events of a device, ms."""
    rows = []
    for order, pairs in found.items():
        kinds: dict[str, list[float]] = defaultdict(list)
        for ours, _ in pairs:
            for kind, seconds in (ours.between or {}).items():
                kinds[kind] += seconds
        for kind, seconds in kinds.items():
            low, middle, high = statistics.quantiles([1000 * each for each in seconds], n=4)
            rows.append([order, kind, len(seconds), round(middle, 1), round(low, 1), round(high, 1)])
    columns = ["order", "between", "times", "median ms", "quarter", "three quarters"]
    return {"title": "between two lines of the journal, on one device", "columns": columns, "rows": rows}


def sweep(folder: Path, name: str, order: str, networks: int) -> Taken:
    """Run the command on all networks."""
    source = "small_digits:Digits"
    data = {
        "train": {"source": source, "arguments": {"train": True}},
        "held_out": {"source": source, "arguments": {"train": False}},
    }
    spec = {
        "name": name,
        "data": {"digits": {**data, "normalise": {"mean": [0.25], "std": [0.3]}}},
        "defaults": {
            "data": "digits", "model": {"name": "trainers.zoo:MLP"}, "loss": "cross_entropy", "metrics": ["accuracy"],
            "optimizer": {"name": "SGD", "arguments": {"lr": 0.05}}, "virtual_workers": 1, "batch_size": BATCH,
            "stop": {"epochs": EPOCHS},
        },
        "jobs": [
            {"name": f"mlp-{number}", "seed": number if order == "a seed each" else {"weights": number, "order": 0}}
            for number in range(networks)
        ],
        "resources": {"trainers": TRAINERS, "preprocessors": 1},
    }  # fmt: skip
    out = folder / name
    command = [sys.executable, "-m", "fleet", "run", str(write_spec(folder, spec)), "--out", str(out)]
    begin = time.perf_counter()
    subprocess.run(command, check=True, timeout=PATIENCE, stdout=subprocess.DEVNULL)
    whole = time.perf_counter() - begin
    samples = json.loads((out / "run.json").read_text())["samples"]
    return Taken(whole, *spans(out / "journal.jsonl"), samples["made"] / samples["read"], between(out))


def spans(journal: Path) -> tuple[float, float]:
    """Seconds from the first start to the last epoch's end, and which part of them a device does not train."""
    begin, end, busy = None, 0.0, 0.0
    for event in read_journal(journal):
        if isinstance(event, Started) and begin is None:
            begin = event.t
        elif isinstance(event, Epoch):
            end, busy = event.t, busy + sum(event.computed.values())
    assert begin is not None, journal
    return end - begin, 1 - busy / TRAINERS / (end - begin)


def between(out: Path) -> dict[str, list[float]]:
    """Seconds between each two lines of a device's networks, by the kinds of both."""
    lines: dict[str, list[tuple[float, str]]] = defaultdict(list)
    device_of: dict[str, str] = {}
    for event in read_journal(out / "journal.jsonl"):
        if isinstance(event, (Started, Epoch, Checkpoint, Done, Formed)):
            devices = () if isinstance(event, (Checkpoint, Formed)) else event.devices
            device = device_of[event.job] = str(devices) if devices else device_of[event.job]
            lines[device].append((event.t, event.event))
    found: dict[str, list[float]] = defaultdict(list)
    for events in lines.values():
        for (before, kind), (after, next_kind) in pairwise(events):
            found[f"{kind} - {next_kind}"].append(after - before)
    return {kind: seconds for kind, seconds in found.items() if len(seconds) > 3}


def plain_loops(folder: Path, networks: int) -> Taken:
    """Train the networks in two loops side by side, half of them each."""
    begin, middle = time.perf_counter(), networks // 2
    command = [sys.executable, "-m", "benchmarks.many_small", str(folder)]
    running = [
        subprocess.Popen([*command, str(first), str(last)], stdout=subprocess.PIPE, text=True)
        for first, last in ((0, middle), (middle, networks))
    ]
    told = [process.communicate(timeout=PATIENCE)[0] for process in running]
    stamps = [tuple(map(float, text.split())) for text in told]
    first, last = min(first for first, _ in stamps), max(last for _, last in stamps)
    return Taken(time.perf_counter() - begin, last - first)


def loop(folder: Path, numbers: range) -> None:
    """Train networks one after another, as a person would write it; tell when the first began and the last ended."""
    import torch
    from torch import Tensor
    from torch.nn import functional
    from torch.utils.data import DataLoader, Dataset

    from trainers.zoo import MLP

    sys.path.insert(0, str(folder))
    digits = importlib.import_module("small_digits").Digits

    class Normalised(Dataset[tuple[Tensor, int]]):
        """Digits as the network takes them."""

        def __init__(self, train: bool) -> None:
            self.digits = digits(train)

        def __len__(self) -> int:
            return len(self.digits)

        def __getitem__(self, index: int) -> tuple[Tensor, int]:
            picture, label = self.digits[index]
            return torch.from_numpy(picture)[None].float().div(255).sub(0.25).div(0.3), label

    torch.set_num_threads(1)
    data, held_out = Normalised(True), Normalised(False)
    begin = time.time()
    for number in numbers:
        torch.manual_seed(number)
        model = MLP()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        training = DataLoader(data, BATCH, shuffle=True, generator=torch.Generator().manual_seed(number))
        for _ in range(EPOCHS):
            for inputs, targets in training:
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(inputs), targets)
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
            model.eval()
            with torch.no_grad():
                right = sum(
                    int((model(inputs).argmax(1) == targets).sum()) for inputs, targets in DataLoader(held_out, BATCH)
                )
            model.train()
            assert right >= 0
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, folder / f"loop-{number}.pt")
    print(begin, time.time())


if __name__ == "__main__":
    loop(Path(sys.argv[1]), range(int(sys.argv[2]), int(sys.argv[3])))
