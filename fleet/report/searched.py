"""The search of a run as its report tells it."""

from __future__ import annotations

from pathlib import Path

from fleet.journal.journal import read_journal
from fleet.report import wording
from fleet.search.journalled import Searched, journalled, section_of
from preprocess.files.reading import read_json


def read_searched(run_dir: Path) -> Searched | None:
    """The search of a run; None: it has none, it has not begun, or the spec that began it cannot be read.

    Args:
        run_dir: the run's directory.
    """
    try:
        kept = read_json(run_dir / "spec.json")
        if not kept.get("search"):
            return None
        told = journalled(read_journal(run_dir / "journal.jsonl"))
        section = section_of(kept, told)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return None if section is None else Searched(section, told)


def asked(searched: Searched) -> str:
    """What was asked for, in a sentence for people."""
    section, told, begun = searched.section, searched.told, len(searched.rows)
    rule, sampler = section.stopping.name, section.sampler.name
    most = section.most_trials
    trials = f"{begun} of {most:,} trials" if most is not None else wording.plural(begun, "trial")
    budget = section.budget
    most_epochs = None if budget is None else budget.epochs
    epochs = f"{told.epochs:,} of {most_epochs:,} epochs" if most_epochs else f"{told.epochs:,} epochs"
    hours = f" within {told.hours:g} hours" if told.hours is not None else ""
    return f"{trials} and {epochs} have begun{hours}; sampler {sampler}, stopping {rule}, width {section.width}"
