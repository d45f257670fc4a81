"""Ray Tune's ASHA. Argument: the folder with the plan. Started again, it goes on from what it has saved."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.searched.peers.plain_training import PlainTraining
from benchmarks.searched.peers.plan import Plan

WORKERS = 2
STATE = "state.pt"


def main(folder: Path) -> None:
    """Search."""
    import ray
    from ray import tune
    from ray.tune.schedulers import AsyncHyperBandScheduler

    plan = Plan.read(folder)
    ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    if tune.Tuner.can_restore(str(folder / "search")):
        tuner = tune.Tuner.restore(str(folder / "search"), _trainable(folder), resume_errored=True)
    else:
        tuner = tune.Tuner(
            tune.with_resources(_trainable(folder), {"cpu": 1}),
            param_space={"trial": tune.grid_search(list(range(len(plan.trials))))},
            tune_config=tune.TuneConfig(
                metric="accuracy",
                mode="max",
                reuse_actors=True,
                scheduler=AsyncHyperBandScheduler(
                    max_t=plan.epochs, grace_period=plan.rungs[0], reduction_factor=plan.eta
                ),
            ),
            run_config=tune.RunConfig(name="search", storage_path=str(folder), verbose=0),
        )
    best = tuner.fit().get_best_result("accuracy", "max", scope="last")
    print("best", best.config["trial"], best.metrics["accuracy"])


def _trainable(folder: Path) -> Any:
    from ray import tune

    def train(config: dict[str, Any]) -> None:
        training = PlainTraining(folder, config["trial"])
        known = tune.get_checkpoint()
        if known is not None:
            with known.as_directory() as path:
                training.load(Path(path) / STATE)
        for accuracy in training.epochs(training.plan.epochs):
            with tempfile.TemporaryDirectory() as path:
                training.save(Path(path) / STATE)
                tune.report({"accuracy": accuracy}, checkpoint=tune.Checkpoint.from_directory(path))

    return train


if __name__ == "__main__":
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    main(Path(sys.argv[1]))
