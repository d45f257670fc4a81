"""Keys that people know from other tools, or write in another section: where a spec says the same."""

from __future__ import annotations

from collections.abc import Collection, Mapping

_EPOCHS = "write it as stop: {{epochs: {value}}}"
_RATE = "write it among the optimizer's arguments: optimizer: {{name: SGD, arguments: {{lr: {value}}}}}"
_OF_OPTIMIZER = "write it among the optimizer's arguments: optimizer: {{name: SGD, arguments: {{{word}: {value}}}}}"
_MODEL = "write it with the model: model: {{name: ..., arguments: {value}}}"
_OPTIMIZER = "write it with the optimizer: optimizer: {{name: ..., arguments: {value}}}"
_WORKERS = "the workers that divide a step's samples are virtual: write virtual_workers: {value}"
_DEVICES = "the policy says how many devices a job has; it has so many at least with minimum_devices: {value}"
_PRECISION = "write autocast: bfloat16"
_CLIPPED = "write clip_norm: {value}"
_ACCUMULATED = "write accumulate: {value}"
_OF_RUN = "it holds for all jobs: write it beside jobs"
_WORDS: Mapping[str, tuple[str, ...]] = {
    _EPOCHS: ("epochs", "max_epochs", "num_epochs", "n_epochs", "train_epochs"),
    _RATE: ("lr", "learning_rate"),
    _OF_OPTIMIZER: ("momentum", "weight_decay", "betas", "nesterov"),
    _MODEL: ("arguments", "args", "kwargs", "params", "model_arguments", "model_args", "model_kwargs"),
    _OPTIMIZER: ("optimizer_arguments", "optimizer_args", "optimizer_kwargs"),
    "rename it to schedule": ("scheduler", "lr_scheduler", "lr_schedule"),
    _WORKERS: ("workers", "n_workers", "world_size", "num_processes"),
    _DEVICES: ("gpus", "n_gpus", "num_gpus", "devices", "num_devices"),
    "name a section of data: data: NAME": ("dataset", "data_set"),
    _PRECISION: ("amp", "mixed_precision", "precision", "bf16", "fp16"),
    _CLIPPED: ("grad_clip", "gradient_clip_val", "max_grad_norm", "clip_grad_norm"),
    _ACCUMULATED: ("accumulation_steps", "gradient_accumulation_steps", "accumulate_grad_batches"),
}
_IN_JOB = {word: mend for mend, words in _WORDS.items() for word in words}
_RANGES = {"normal": "uniform", "log_normal": "log_uniform", "lognormal": "log_uniform"}
"""Distributions without ends -> the one that a search draws from instead."""
_IN_RUN = ("policy", "resources", "checkpoints", "determinism")
_OF_JOBS = (
    "model", "task", "optimizer", "schedule", "loss", "metrics", "batch_size", "virtual_workers", "stop", "autocast",
)  # fmt: skip
_SHOWN = 40
"""Characters of a value."""


def said_elsewhere(word: object, value: object, known: Collection[str]) -> str | None:
    """Return the mend of a key that is said otherwise here, or in another section; None if it is not known.

    known: the keys that may stand where it stands.
    """
    name = str(word).lower().replace("-", "_")
    told = f"{value}" if len(f"{value}") <= _SHOWN else "..."
    mend = _IN_JOB[name].format(word=name, value=told) if name in _IN_JOB else None
    if "log_uniform" in known and name in _RANGES:
        return f"a search draws from a range: write {_RANGES[name]}: [low, high]"
    if "virtual_workers" in known:
        return _OF_RUN if name in _IN_RUN else mend
    if "jobs" in known and (mend is not None or name in _OF_JOBS):
        return (f"{mend}," if mend else "write it") + " in a job, or below defaults for all of them"
    return None
