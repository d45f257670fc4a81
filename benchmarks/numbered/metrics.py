"""Metrics of trained networks against plain PyTorch and torchmetrics, which work them out from the checkpoints.

On 1, 2 and 3 trainers, in evaluation batches of 1, 4 and 96, for targets of all forms; and what is refused.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

import fleet
from benchmarks.bars import Bar, at_most, bar
from benchmarks.numbered import measured_networks as own
from benchmarks.started_ranks import environment
from benchmarks.written_spec import write_spec
from fleet.models.members import read_members
from fleet.models.results import read_results
from fleet.spec import EnsembleSpec, SpecError, check
from trainers import newest_file, read

MODULE = own.__name__
ROOT = Path(__file__).resolve().parents[2]
TRAINERS = (1, 2, 3)
EVALUATED = (1, 4, 96)
NEAR = 1e-6
LIMIT_SECONDS = 300.0
_FORMS: Mapping[str, Mapping[str, Any]] = {
    "index": {},
    "column": {"loss": f"{MODULE}:column_loss"},
    "float": {"loss": "binary_cross_entropy_with_logits", "outputs": 1, "flat": True},
    "float column": {"loss": "binary_cross_entropy_with_logits", "outputs": 1},
    "one hot": {"loss": "cross_entropy"},
    "int32": {},
    "bool": {},
    "byte": {},
}  # fmt: skip


def bars() -> list[Bar]:
    """Train the networks, and hold their numbers against plain PyTorch's."""
    with tempfile.TemporaryDirectory(prefix="fleet-metrics-") as name:
        folder = Path(name)
        found = [*_on_trainers(folder), *_in_batches(folder), *_forms(folder), *_of_tasks(folder), *_searched(folder)]
        return [*found, *_nothing(folder), *_refused(folder)]


def _spec(name: str, jobs: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """A spec of jobs over the networks' data."""
    data = {
        key: {
            part: {"source": f"{MODULE}:{source}", "arguments": {"train": part == "train", **arguments}}
            for part in ("train", "held_out")
        }
        for key, source, arguments in (
            ("tags", "Tags", {}), ("masks", "Masks", {}),
            *((form.replace(" ", "-"), "Rows", {"form": form}) for form in _FORMS),
        )
    }  # fmt: skip
    data["tags"]["collate"] = "pad"  # type: ignore[assignment]
    used = {job.get("data") for job in [*jobs, more.get("search", {}).get("job", {})]}
    sgd = {"name": "SGD", "arguments": {"lr": 0.3}}
    jobs = [{"stop": {"epochs": 3}, **({} if "task" in job else {"optimizer": sgd}), **job} for job in jobs]
    known = {key: section for key, section in data.items() if key in used}
    return {"name": name, "data": known, "jobs": jobs, "resources": {"device": "cpu", "trainers": 1}, **more}


def _run(folder: Path, spec: dict[str, Any], trainers: int = 1) -> Path:
    """Run a spec on trainers of which each brings as much as the first; return its directory."""
    out, rates = folder / spec["name"], {count: 100.0 * count for count in TRAINERS}
    path = write_spec(folder, spec, {job["name"]: rates for job in spec["jobs"]} or None)
    command = [sys.executable, "-m", "fleet", "run", str(path), "--out", str(out), "--trainers", str(trainers)]
    done = subprocess.run(
        command, capture_output=True, text=True, env=_environment(), timeout=LIMIT_SECONDS, check=False
    )
    if done.returncode:
        raise RuntimeError(f"a run of {spec['name']} ends with {done.returncode}: {done.stdout}{done.stderr}")
    return out


def _metrics(out: Path) -> dict[str, dict[str, float]]:
    """Job -> its metrics, as run.json tells them."""
    told = json.loads((out / "run.json").read_text())
    return {name: job["metrics"] for name, job in told["jobs"].items()}


def _trained(out: Path, job: str, network: nn.Module) -> nn.Module:
    """The network with the weights of its newest checkpoint."""
    newest = newest_file(out / "checkpoints" / job)
    assert newest is not None, f"{job} has no checkpoint"
    network.load_state_dict(read(newest).parameters)
    return network.eval()


def _whole_set(out: Path, job: str) -> dict[str, float]:
    """Metric -> what torchmetrics gives for the whole set."""
    from torchmetrics.classification import BinaryAUROC, BinaryF1Score, MulticlassJaccardIndex
    from torchmetrics.text import WordErrorRate

    network = _trained(out, job, {"rows": own.Net, "masks": own.Segmenter, "tags": own.Tagger}[job]())
    rows, masks, tags = own.Rows(False), own.Masks(False), own.Tags(False)
    with torch.no_grad():
        if job == "rows":
            chances = network(rows.inputs).softmax(1)[:, 1]
            return {
                "auroc": float(BinaryAUROC()(chances, rows.classes)),
                "f1": float(BinaryF1Score()(chances, rows.classes)),
            }
        if job == "masks":
            return {"mean_iou": float(MulticlassJaccardIndex(own.LABELS)(network(masks.inputs), masks.classes))}
        said = [network(ids[None]).argmax(1)[0].tolist() for ids, _ in tags.samples]
    texts = [[" ".join(map(str, words)) for words in each] for each in (said, [t.tolist() for _, t in tags.samples])]
    return {"word_error_rate": float(WordErrorRate()(*texts))}


def _on_trainers(folder: Path) -> list[Bar]:
    common = {"virtual_workers": 3, "batch_size": 8, "evaluation_batch_size": 7}
    jobs: list[dict[str, Any]] = [
        {"name": "rows", "data": "index", "model": f"{MODULE}:Net", "metrics": ["auroc", "f1"], **common},
        {"name": "masks", "data": "masks", "model": f"{MODULE}:Segmenter", "metrics": ["mean_iou"], **common},
        {"name": "tags", "data": "tags", "model": f"{MODULE}:Tagger", "metrics": ["word_error_rate"], **common},
    ]
    found: list[dict[str, Any]] = []
    alone, apart = 0, 0.0
    for trainers in TRAINERS:
        found.append({})
        for job in jobs:
            out = _run(folder, _spec(f"{job['name']}-{trainers}", [job]), trainers)
            rounds = json.loads((out / "run.json").read_text())["rounds"]
            alone += max(len(one["allocation"][job["name"]]) for one in rounds) != trainers
            found[-1][job["name"]] = told = _metrics(out)[job["name"]]
            apart = max(apart, *(abs(told[name] - value) for name, value in _whole_set(out, str(job["name"])).items()))
    unlike = sum(each != found[0] for each in found)
    return [
        at_most("AUROC, F1, mIoU, WER on 1, 2, 3 trainers: furthest from torchmetrics on the whole set", apart, NEAR),
        bar("trainer counts with other bits of metrics and losses", unlike, "0", unlike == 0),
        bar("networks that had fewer trainers than there were", alone, "0", alone == 0),
    ]


def _in_batches(folder: Path) -> list[Bar]:
    metrics = ["accuracy", "word_error_rate", "perplexity", "f1"]
    common = {"data": "tags", "model": f"{MODULE}:Tagger", "metrics": metrics, "batch_size": 32}
    told = _metrics(_run(folder, _spec("batches", [
        {"name": f"by-{size}", "evaluation_batch_size": size, **common} for size in EVALUATED
    ])))  # fmt: skip
    values = [[each[name] for name in metrics] for each in told.values()]
    apart = max(abs(a - b) / abs(b) for row in values for a, b in zip(row, values[0]))
    return [at_most("padded batches of 1, 4, 96: furthest metric from another's, relative", apart, NEAR)]


def _forms(folder: Path) -> list[Bar]:
    jobs, networks = [], {}
    for form, keys in _FORMS.items():
        name, arguments = form.replace(" ", "-"), {"outputs": keys.get("outputs", 2), "flat": keys.get("flat", False)}
        networks[name] = own.Net(**arguments)
        model = {"name": f"{MODULE}:Net", "arguments": arguments}
        loss = {"loss": keys["loss"]} if "loss" in keys else {}
        jobs.append({"name": name, "data": name, "model": model, "metrics": ["accuracy"], "batch_size": 30, **loss})
    out, rows, apart = _run(folder, _spec("forms", jobs)), own.Rows(False), 0.0
    for name, told in _metrics(out).items():
        with torch.no_grad():
            scores = _trained(out, name, networks[name])(rows.inputs)
        one = scores.dim() == 1 or scores.shape[1] == 1
        said = (scores.reshape(-1) > 0).long() if one else scores.argmax(1)
        apart = max(apart, abs(told["accuracy"] - float((said == rows.classes).double().mean())))
    return [at_most(f"accuracy of targets in {len(jobs)} forms: furthest from plain PyTorch", apart, NEAR)]


def _of_tasks(folder: Path) -> list[Bar]:
    out = _run(folder, _spec("tasks", [{"name": "tokens", "task": f"{MODULE}:Tokens", "evaluation_batch_size": 32}]))
    data = own.Tokens().dataset(False)
    ids, wanted = (torch.stack(each) for each in zip(*data))
    with torch.no_grad():
        right = float((_trained(out, "tokens", own.Tagger())(ids).argmax(1) == wanted).double().mean())
    apart = abs(_metrics(out)["tokens"]["accuracy"] - right)
    steps, file = str(3 * math.ceil(len(own.Tokens().dataset(True)) / 32)), folder / "alone.h5"
    command = [sys.executable, "-m", "fleet", "train", f"{MODULE}:Tokens", "--virtual-workers", "1", "--steps", steps]
    subprocess.run([*command, "--checkpoint", str(file)], env=_environment(), check=True, capture_output=True)
    apart = max(apart, abs(read(file).history[-1]["accuracy"] - right))
    return [at_most("accuracy of a task that names none, in fleet run and fleet train: off by", apart, NEAR)]


def _searched(folder: Path) -> list[Bar]:
    search = {
        "name": "t-{trial}", "metric": "found", "sampler": "grid", "width": 1,
        "job": {
            "data": "index", "model": f"{MODULE}:Net", "metrics": ["accuracy", f"{MODULE}:found"],
            "stop": {"epochs": 3}, "batch_size": 30, "optimizer": {"name": "SGD", "arguments": {"lr": 0.3}},
        },
        "over": {"loss": {"choice": ["cross_entropy", f"{MODULE}:rare_loss"]}},
    }  # fmt: skip
    out = _run(folder, _spec("searched", [], search=search))
    members, best = read_members(out), json.loads((out / "run.json").read_text())["search"]["best"]
    by_accuracy = members.ranked(members.order("accuracy"))[0][0].name
    winners = [
        members.ranked()[0][0].name, members.chosen("best:1")[0].name, read_results(out).best()["name"],
        fleet.load(out, "best:1").names[0],
    ]  # fmt: skip
    others = sum(winner != best for winner in winners)
    return [
        bar("places where another network than the search's wins", others, "0", others == 0),
        bar("the search's winner is not the most accurate, so that this tells something", 1, "1", by_accuracy != best),
    ]


def _nothing(folder: Path) -> list[Bar]:
    said = {"name": "nobody", "of": f"{MODULE}:nobody", "better": "higher"}
    stop = {"epochs": 4, "target": {"nobody": 0.5}, "patience": 1}
    job = {"name": "n", "data": "index", "model": f"{MODULE}:Net", "metrics": [said], "stop": stop, "batch_size": 30}
    out = _run(folder, _spec("nothing", [job]))
    told = json.loads((out / "run.json").read_text())["jobs"]["n"]
    is_told = told["metrics"]["nobody"] is None and told["epochs"] == 4
    return [bar("a metric of 0 of 0 is null, and ends nobody", int(is_told), "1", is_told)]


def _refused(folder: Path) -> list[Bar]:
    """What is wrong with specs that nobody should be able to train."""
    base = {"data": "index", "model": f"{MODULE}:Net", "batch_size": 30, "evaluation_batch_size": 4}
    wrong = {**base, "metrics": [f"{MODULE}:wrong", "accuracy"]}
    searched = {
        "name": "t-{trial}", "sampler": "grid", "width": 1, "over": {"seed": {"choice": [0, 1]}}, "metric": "wrong",
        "job": {**wrong, "stop": {"epochs": 1}, "optimizer": {"name": "SGD", "arguments": {"lr": 0.3}}},
    }  # fmt: skip
    directions: list[dict[str, Any]] = [
        _spec("a", [{"name": "j", **wrong, "stop": {"epochs": 2, "target": {"wrong": 0.1}}}]),
        _spec("b", [{"name": "j", **wrong, "stop": {"epochs": 2, "patience": 1, "monitor": "wrong"}}]),
        _spec("c", [{"name": "j", **wrong}], checkpoints={"best": "wrong"}),
        _spec("d", [], search=searched),
        _spec("e", [], search={**searched, "metric": "accuracy", "mode": "min"}),
    ]
    names = [
        _spec("f", [{"name": "j", **base, "metrics": metrics}])
        for metrics in (
            ["accuracy", {"name": "accuracy", "of": f"{MODULE}:wrong"}], [{"name": "loss", "of": f"{MODULE}:wrong"}],
            [{"name": "test_loss", "of": f"{MODULE}:wrong"}], [{"name": "epoch", "of": f"{MODULE}:wrong"}],
        )
    ]  # fmt: skip
    told = [("better" in text or "mode" in text) for text in map(_problems, directions)]
    twice = [bool(_problems(spec)) for spec in names]
    cut = [
        _is_refused_to_plan(folder, _spec(f"g{number}", [{"name": "j", **base, "metrics": [metric]}]))
        for number, metric in enumerate((f"{MODULE}:area", f"{MODULE}:Gathering"))
    ]
    return [
        bar(what, sum(held), f"{len(held)}", all(held))
        for what, held in (
            ("directions that nobody declares, or two contradict: refused", told),
            ("names of metrics that are taken: refused", twice),
            ("functions of a batch that are no sums, and objects that keep all: refused", cut),
        )
    ]


def _problems(spec: dict[str, Any]) -> str:
    try:
        return " ".join(map(str, check(EnsembleSpec.from_mapping(spec))))
    except SpecError as error:
        return str(error)


def _is_refused_to_plan(folder: Path, spec: dict[str, Any]) -> bool:
    command = [sys.executable, "-m", "fleet", "plan", str(write_spec(folder, spec))]
    done = subprocess.run(command, capture_output=True, text=True, env=_environment(), check=False)
    return done.returncode == 2 and "of the same samples" in done.stdout + done.stderr


def _environment() -> dict[str, str]:
    """That of a run, which finds the modules of the networks."""
    return {**environment(), "PYTHONPATH": str(ROOT)}
