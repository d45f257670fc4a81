"""Syne Tune's ASHA on its local backend. Argument: the folder with the plan.

Started again, it goes on with the tuner that it has saved. With `--trial N` it is what its backend starts: one trial.
"""

from __future__ import annotations

import argparse
import logging
import os
from pathlib import Path
from typing import Any

from benchmarks.searched.peers.plan import Plan

WORKERS = 2
SLEEP = 0.1  # seconds between two looks at the trials; it would be 5


def main(folder: Path) -> None:
    """Search."""
    from syne_tune import Tuner
    from syne_tune.backend import LocalBackend
    from syne_tune.config_space import randint
    from syne_tune.optimizer.baselines import ASHA
    from syne_tune.stopping_criterion import StoppingCriterion

    logging.getLogger().setLevel(logging.ERROR)
    os.environ["SYNETUNE_FOLDER"] = str(folder / "syne")
    plan, saved = Plan.read(folder), folder / "syne" / "search"
    if (saved / "tuner.dill").exists():
        tuner = Tuner.load(str(saved))
    else:
        last = len(plan.trials) - 1
        space: dict[str, Any] = {"trial": randint(0, last), "folder": str(folder)}
        scheduler = ASHA(
            space,
            metric="accuracy",
            time_attr="epoch",
            max_t=plan.epochs,
            do_minimize=False,
            random_seed=plan.seed,
            grace_period=plan.rungs[0],
            reduction_factor=plan.eta,
            points_to_evaluate=[{"trial": number, "folder": str(folder)} for number in range(len(plan.trials))],
        )
        tuner = Tuner(
            trial_backend=LocalBackend(entry_point=__file__, rotate_gpus=False),
            scheduler=scheduler,
            # it stops once more have begun than that
            stop_criterion=StoppingCriterion(max_num_trials_started=len(plan.trials) - 1),
            n_workers=WORKERS,
            sleep_time=SLEEP,
            results_update_interval=SLEEP,
            tuner_name="search",
            suffix_tuner_name=False,
            wait_trial_completion_when_stopping=True,
        )
    tuner.run()


def train(folder: Path, trial: int, checkpoints: str | None) -> None:
    """Train one trial."""
    from syne_tune import Reporter

    from benchmarks.searched.peers.plain_training import PlainTraining

    report, training = Reporter(), PlainTraining(folder, trial)
    state = None if checkpoints is None else Path(checkpoints) / "state.pt"
    if state is not None and state.exists():
        training.load(state)
    for accuracy in training.epochs(training.plan.epochs):
        if state is not None:
            state.parent.mkdir(parents=True, exist_ok=True)
            training.save(state)
        report(epoch=training.epoch, accuracy=accuracy)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("place", nargs="?")
    parser.add_argument("--folder")
    parser.add_argument("--trial", type=int)
    parser.add_argument("--st_checkpoint_dir")
    given, _ = parser.parse_known_args()
    if given.trial is None:
        main(Path(given.place))
    else:
        train(Path(given.folder), given.trial, given.st_checkpoint_dir)
