"""Losses that are the whole batch's, in however many parts they are worked out, against plain torch and plain DDP."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.bars import Bar, at_most, bar
from benchmarks.numbered.runs import ROOT, Folder
from benchmarks.numbered.uneven_tasks import BATCH, KINDS, Uneven, collate, samples
from trainers import Group, Trainer
from trainers.job.single_job import SingleJob, TaskDatasets

PARTS = (2, 8, 32)
RANKS = 2
EPOCHS = 2
SECONDS = 120.0
MODULE = """
import torch
from torch import nn
from benchmarks.numbered.uneven_tasks import Tagger, WEIGHTS, samples
def tags(train=True): return samples("pad", seed=0 if train else 1)
def emptied(train=True): return [(ids, tag if i % 3 else tag * 0 - 100) for i, (ids, tag) in enumerate(tags(train))]
def rare(train=True): return samples("weights", seed=0 if train else 1)
class Infinite(Tagger):
    def __init__(self): super().__init__(False)
    def forward(self, ids): return super().forward(ids) + 0 * (ids.mul(0).sum() * self.out.weight.sum()).sqrt()
class Column(Tagger):
    def __init__(self): super().__init__(False)
    def forward(self, ids): return super().forward(ids)[:, :1]
def weighted(outputs, targets): return nn.functional.cross_entropy(outputs, targets, WEIGHTS)
def told(outputs, targets): return weighted(outputs, targets), WEIGHTS[targets].sum()
def plain(outputs, targets): return nn.functional.cross_entropy(outputs, targets)
"""
HEAD = """
name: losses
data:
  tags: {train: "uneven:tags", held_out: {source: "uneven:tags", arguments: {train: false}}, collate: pad}
  emptied: {train: "uneven:emptied", held_out: {source: "uneven:emptied", arguments: {train: false}}, collate: pad}
  rare: {train: "uneven:rare", held_out: {source: "uneven:rare", arguments: {train: false}}}
defaults:
  model: {name: "benchmarks.numbered.uneven_tasks:Tagger", arguments: {each: false}}
  data: rare
  optimizer: {name: SGD, arguments: {lr: 0.5}}
  batch_size: 16
  virtual_workers: 2
  stop: {epochs: 2}
resources: {trainers: 2, device: cpu}
"""
SPEC = (
    HEAD
    + """jobs:
  - {name: whole, loss: "uneven:told"}
  - {name: parts, loss: "uneven:told", accumulate: 8, evaluation_batch_size: 1}
  - {name: list, loss: {name: cross_entropy, arguments: {weight: [1, 20]}}, accumulate: 8, evaluation_batch_size: 7}
  - {name: class, loss: {name: "torch.nn:CrossEntropyLoss", arguments: {weight: [1, 20]}}, evaluation_batch_size: 96}
  - {name: whole-tags, model: {arguments: {each: true}}, data: tags, evaluation_batch_size: 96}
  - {name: parts-tags, model: {arguments: {each: true}}, data: tags, accumulate: 16, evaluation_batch_size: 1}
  - {name: four-tags, model: {arguments: {each: true}}, data: tags, evaluation_batch_size: 4}
  - {name: parts-emptied, model: {arguments: {each: true}}, data: emptied, accumulate: 16, evaluation_batch_size: 1}
  - {name: whole-emptied, model: {arguments: {each: true}}, data: emptied, evaluation_batch_size: 96}
  - {name: broadcast, model: "uneven:Column", loss: "torch.nn:MSELoss"}
  - {name: infinite, model: "uneven:Infinite", virtual_workers: 1, batch_size: 96, stop: {epochs: 1}}
"""
)
UNWEIGHED = (
    HEAD
    + """jobs:
  - {name: no-weight, loss: "uneven:weighted", accumulate: 8}
  - {name: no-weight-evaluated, loss: "uneven:weighted", evaluation_batch_size: 4}
  - {name: no-weight-tags, model: {arguments: {each: true}}, data: tags, loss: "uneven:plain", accumulate: 8}
  - {name: lengths, model: {arguments: {each: true}}, data: tags, loss: "uneven:plain", evaluation_batch_size: 1}
"""
)
AT_THE_START = ("no-weight", "no-weight-evaluated", "no-weight-tags", "lengths")
FAILED = {"broadcast": "pair every output", "infinite": "NaN or infinite"}


def bars() -> list[Bar]:
    """Measure all."""
    return [*gradient_bars(), *script_bars(), *run_bars()]


def gradient_bars() -> list[Bar]:
    """The gradient of a batch in parts against the whole batch's."""
    found = []
    for kind in KINDS:
        whole = gradient(kind, 1, True)
        for parts in PARTS:
            apart = max(_distance(gradient(kind, parts, known), whole) for known in (True, False))
            found.append(at_most(f"gradient of a batch in {parts} parts ({kind}), relative difference", apart, 1e-5))
    return found


def gradient(kind: str, parts: int, known: bool) -> Tensor:
    """The gradient of one batch."""
    task = Uneven(kind, parts, known)
    trainer = Trainer(task, 1, Group.alone())
    with trainer.reducing():
        trainer.step([collate(samples(kind)[:BATCH])])
    return task.seen[0]


def _distance(one: Tensor, other: Tensor) -> float:
    return float((one - other).norm() / other.norm())


def script_bars() -> list[Bar]:
    """The weights after some epochs against those of a script under DDP, which weighs the parts of a batch alike."""
    cases = [(kind, parts, known) for kind in KINDS for parts in PARTS for known in (True, False)]
    different = dict(zip(cases, differing(cases)))
    found = []
    for kind in KINDS:
        for parts in PARTS:
            count = different[kind, parts, True] + different[kind, parts, False]
            found.append(bar(f"tensors with other bits than DDP's, {parts} parts ({kind})", count, "0", count == 0))
    return found


Case = tuple[str, int, bool]
"""The kind of targets, parts of a batch, and whether weights are known before the passes."""


def differing(cases: Sequence[Case]) -> list[int]:
    """How many parameters of each network differ from the script's in any bit."""
    return [
        sum(mine[name].numpy().tobytes() != script[name].numpy().tobytes() for name in script)
        for mine, script in zip((elastic(*case) for case in cases), scripted(cases))
    ]


def elastic(kind: str, parts: int, known: bool) -> Mapping[str, Tensor]:
    """The weights of two virtual workers."""
    task = Uneven(kind, parts, known)
    trainer, data = Trainer(task, RANKS, Group.alone()), TaskDatasets(task)
    steps = trainer.plan(len(data.train)).steps_per_epoch * EPOCHS
    with trainer.reducing():
        SingleJob(trainer, data, lambda _: None, lambda: False).run(steps)
    return {name: each.detach() for name, each in trainer.model.named_parameters()}


def scripted(cases: Sequence[Case]) -> list[dict[str, Tensor]]:
    """Those of the script. RuntimeError if it fails."""
    words = [word for kind, parts, known in cases for word in (kind, parts, "known" if known else "told", EPOCHS)]
    with tempfile.TemporaryDirectory(prefix="losses-") as folder:
        command = [sys.executable, "-m", "benchmarks.numbered.ddp_script", folder, str(RANKS)]
        processes = [subprocess.Popen([*command, str(rank), *map(str, words)], cwd=ROOT) for rank in range(RANKS)]
        codes = [process.wait(SECONDS) for process in processes]
        if any(codes):
            raise RuntimeError(f"the script under DDP ended with {codes}")
        found: list[dict[str, Tensor]] = torch.load(Path(folder, "0.pt"))
        return found


def run_bars() -> list[Bar]:
    """What a run of networks says, whose losses do and do not tell what they divide by."""
    with Folder({"uneven.py": MODULE, "losses.yaml": SPEC, "unweighed.yaml": UNWEIGHED}) as folder:
        code, said = folder.fleet("run", "unweighed.yaml", "--out", "u")
        jobs = folder.run("losses.yaml", "r")
        equal = {
            name: folder.fleet("replay", "r", name, "--ddp")[0] for name in ("parts", "parts-tags", "parts-emptied")
        }
    found = [_spread(jobs, "validation loss", key, names) for key, names in (
        ("class weights", ("whole", "parts", "list", "class")), ("padded", ("whole-tags", "parts-tags", "four-tags")),
        ("some samples without targets", ("whole-emptied", "parts-emptied")),
    )]  # fmt: skip
    for name in AT_THE_START:
        is_told = code == 2 and f"job {name}: the loss of a batch" in said and "return (mean, weight)" in said
        found.append(bar(f"{name}: refused at the start, with the mend", float(is_told), "1", is_told))
    for name, told in FAILED.items():
        is_told = jobs[name]["status"] == "failed" and told in str(jobs[name]["error"])
        found.append(bar(f"{name}: refused, with the mend", float(is_told), "1", is_told))
    for name, code in equal.items():
        found.append(bar(f"{name}: replayed under DDP, exit code", code, "0", code == 0))
    return found


def _spread(jobs: Mapping[str, Any], what: str, key: str, names: tuple[str, ...]) -> Bar:
    values = [jobs[name]["metrics"].get("test_loss", float("nan")) for name in names]
    return at_most(f"{what} over evaluation batches and parts ({key}), relative", max(values) / min(values) - 1, 1e-6)
