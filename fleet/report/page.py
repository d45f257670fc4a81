"""report.html: one page with everything in it, computed from the journal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fleet.report.colours import network_colours
from fleet.report.costs import run_costs
from fleet.report.figures.best_so_far import best_figures
from fleet.report.figures.curves import curve_figures
from fleet.report.figures.data_path import data_path_figure
from fleet.report.figures.front import front_figures
from fleet.report.figures.importance import importance_figure
from fleet.report.figures.layout import Figure
from fleet.report.figures.parallel import parallel_figure
from fleet.report.figures.population import population_figures
from fleet.report.figures.rates import rates_figure
from fleet.report.figures.rungs import kinds_shown, rung_shades, rungs_figure
from fleet.report.figures.timeline import timeline
from fleet.report.figures.waiting import REASONS, waiting_figure
from fleet.report.flotillas import flotillas, running_lengths
from fleet.report.history import RunHistory, read_history
from fleet.report.importance import Importance, importance_of
from fleet.report.overheads import overheads
from fleet.report.rates import job_rates
from fleet.report.rendering import page_environment, plotly, script_json
from fleet.report.results import best_network, job_results, metric_names
from fleet.report.searched import asked, read_searched
from fleet.report.told_values import shown_value
from fleet.report.waiting import device_times, mean_waiting
from fleet.report.wording import figures_together, per_read
from fleet.search.journalled import Searched
from preprocess.files.writing import write_whole

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
