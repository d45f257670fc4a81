"""The report page of a comparison: one file with everything in it."""

from __future__ import annotations

from collections.abc import Sequence

from fleet.commands.simulated.figures import comparison_figures
from fleet.commands.simulated.side_by_side import columns, rows
from fleet.report.colours import network_colours
from fleet.report.rendering import page_environment, plotly, script_json
from fleet.simulator.comparing.comparison import Comparison
from fleet.simulator.comparing.settings import shape_of
from fleet.simulator.outcome import SimulationOutcome


def comparison_page(comparison: Comparison, outcomes: Sequence[SimulationOutcome], notes: Sequence[str] = ()) -> str:
    """The page as text; it needs no network to be read.

    Args:
        outcomes: in the order of the cases.
        notes: what a reader must know of the jobs.
    """
    compared = columns(comparison.cases, outcomes)
    colours = network_colours([column.label for column in compared])
    figures = comparison_figures(compared, colours)
    return (
        page_environment()
        .get_template("simulation.html.j2")
        .render(
            name=comparison.workload.name,
            shape=shape_of(comparison.cluster),
            devices=comparison.cluster.size,
            jobs=len(outcomes[0].names),
            costs=comparison.costs,
            failures=comparison.failures is not None,
            columns=compared,
            seeds=sorted({case.seed for case in comparison.cases}),
            rows=rows(compared),
            notes=notes,
            colours=colours,
            figures=figures,
            figures_json=script_json(figures),
            plotly=plotly() if figures else "",
        )
    )
