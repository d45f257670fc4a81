"""report.html: one page with everything in it, computed from the journal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fleet.journal.journal import read_journal
from fleet.report import wording
from fleet.report.analysis import (
    best_network,
    device_times,
    flotillas,
    job_rates,
    job_results,
    mean_waiting,
    metric_names,
    overheads,
    run_costs,
    running_lengths,
)
from fleet.report.rendering import Figure, network_colours, page_environment, plotly, script_json
from fleet.report.run_figures import REASONS, curve_figures, data_path_figure, rates_figure, timeline, waiting_figure
from fleet.report.run_history import RunHistory, read_history
from fleet.report.search_figures import (
    Importance,
    best_figures,
    front_figures,
    importance_figure,
    importance_of,
    kinds_shown,
    parallel_figure,
    population_figures,
    rung_shades,
    rungs_figure,
)
from fleet.report.wording import figures_together, per_read, shown_value
from fleet.search.journalled import Searched, journalled, section_of
from preprocess.files.reading import read_json
from preprocess.files.writing import write_whole


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


JOURNAL, REPORT = "journal.jsonl", "report.html"


def write_report(run_dir: Path, page: Path | None = None) -> Path:
    """Write a page from `run_dir`/journal.jsonl and return its path; needs no network to be read.

    Args:
        run_dir: the run's directory.
        page: where it goes; None: `run_dir`/report.html.

    Raises:
        FileNotFoundError: if the directory holds no journal.
        OSError: if the page cannot be written.
    """
    journal = Path(run_dir) / JOURNAL
    if not journal.is_file():
        raise FileNotFoundError(
            f"{run_dir} holds no {JOURNAL}, so there is nothing to report. "
            "Give the directory of a run (--out of fleet run, or runs/NAME)."
        )
    page = page or Path(run_dir) / REPORT
    searched = read_searched(Path(run_dir))
    write_whole(page, render(read_history(journal), Path(run_dir).resolve().name, searched))
    return page


def render(history: RunHistory, name: str, searched: Searched | None = None) -> str:
    """The page as text; `name` is the run's, unless the journal says another."""
    importance = Importance() if searched is None else importance_of(searched)
    figures = _figures(history) | ({} if searched is None else _search_figures(history, searched, importance))
    page = (
        page_environment()
        .get_template("report.html.j2")
        .render(
            **_facts(history, name),
            **_search_facts(searched, importance),
            figures=figures,
            figures_json=script_json(figures),
            plotly=plotly() if figures else "",
        )
    )
    return str(page).encode(errors="replace").decode()  # what is no character shows as a question mark


def _facts(history: RunHistory, name: str) -> dict[str, Any]:
    results = job_results(history)
    times = device_times(history)
    lengths = tuple(running_lengths(history.spans).values())
    return {
        "name": next((session.told.name for session in reversed(history.sessions) if session.told.name), name),
        "history": history,
        "session": history.session.told if history.sessions else None,
        "colours": network_colours(tuple(history.jobs)),
        "results": results,
        "costs": run_costs(history),
        "best": best_network(history),
        "metrics": metric_names(results),
        "failed": [result for result in results if result.status == "failed"],
        "flotillas": flotillas(history),
        "lengths": lengths,
        "times": times,
        "mean_waiting": mean_waiting(times),
        "reasons": REASONS,
        "rates": job_rates(history),
        "overheads": overheads(history),
        "together": figures_together(history.ensemble),
        "per_read": per_read(history.samples),
        "samples": history.samples.to_json(),
    }


def _search_facts(searched: Searched | None, importance: Importance) -> dict[str, Any]:
    """What the section of the search tells; `search` is None where there is none."""
    if searched is None:
        return {"search": None}
    return {
        "search": searched,
        "asked": asked(searched),
        "shown": shown_value,
        "importance": importance,
        "shades": rung_shades(searched),
        "kinds": kinds_shown(searched),
    }


def _search_figures(history: RunHistory, searched: Searched, importance: Importance) -> dict[str, Figure]:
    figures = {
        "search-parallel": parallel_figure(searched, importance.shares),
        "search-rungs": rungs_figure(searched),
        "search-importance": importance_figure(importance),
        **best_figures(searched, history),
        **front_figures(searched),
        **population_figures(searched),
    }
    return {key: figure for key, figure in figures.items() if figure is not None}


def _figures(history: RunHistory) -> dict[str, Figure]:
    colours = network_colours(tuple(history.jobs))
    figures = {
        "timeline": timeline(history, flotillas(history), colours),
        "waiting": waiting_figure(device_times(history)),
        "rates": rates_figure(job_rates(history), colours),
        **{f"curve-{number}": f for number, f in enumerate(curve_figures(history, colours).values())},
        "data-path": data_path_figure(history.preprocessing),
    }
    return {key: figure for key, figure in figures.items() if figure is not None}
