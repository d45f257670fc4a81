"""Optuna's successive halving in two processes, which share a journal. Argument: the folder with the plan.

Started again, it gives the trials up that nobody trains any more, and begins them anew.
"""

from __future__ import annotations

import multiprocessing
import sys
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from benchmarks.searched.peers.plain_training import PlainTraining
from benchmarks.searched.peers.plan import Plan

WORKERS = 2


def main(folder: Path) -> None:
    """Search."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    plan, begun = Plan.read(folder), (folder / "optuna.log").exists()
    study = _study(folder, plan)
    if begun:
        for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            study.tell(trial.number, state=TrialState.FAIL)
            study.enqueue_trial(trial.system_attrs["fixed_params"])
    else:
        for number in range(len(plan.trials)):
            study.enqueue_trial({"trial": number})
    workers = [multiprocessing.get_context("spawn").Process(target=_work, args=(folder,)) for _ in range(WORKERS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    best = study.best_trial
    print("best", best.params["trial"], best.value)


def _study(folder: Path, plan: Plan) -> optuna.Study:
    return optuna.create_study(
        storage=JournalStorage(JournalFileBackend(str(folder / "optuna.log"))),
        sampler=optuna.samplers.RandomSampler(seed=plan.seed),
        pruner=optuna.pruners.SuccessiveHalvingPruner(
            min_resource=plan.rungs[0], reduction_factor=plan.eta, min_early_stopping_rate=0
        ),
        study_name="search",
        direction="maximize",
        load_if_exists=True,
    )


def _work(folder: Path) -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    plan = Plan.read(folder)
    study = _study(folder, plan)

    def objective(trial: Any) -> float:
        number, accuracy = trial.suggest_int("trial", 0, len(plan.trials) - 1), 0.0
        training = PlainTraining(folder, number)
        for accuracy in training.epochs(plan.epochs):
            trial.report(accuracy, training.epoch)
            if trial.should_prune():
                raise optuna.TrialPruned
        return accuracy

    while study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
        study.optimize(objective, n_trials=1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
