"""What a person sees of one job's training: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

from fleet.machine.launch.launched import launched_by_us
from fleet.report.terminal import progress_bar

if TYPE_CHECKING:
    from rich.console import Console

    from trainers.job.single_job import News


class TrainView:
    """Shows news of a job of `steps` steps. A context: the bar goes away at its end.

    unread: called when the terminal, or the reader of a pipe, is gone; nothing is shown from then on.
    """

    def __init__(self, name: str, steps: int, unread: Callable[[], None]) -> None:
        self._console, self._unread = _console(), unread
        self._steps = steps
        self._bar = progress_bar(self._console)
        self._task = self._bar.add_task(name, total=steps, note="")

    def __enter__(self) -> TrainView:
        with self._showing():
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        with self._showing():
            self._bar.stop()

    def __call__(self, news: News) -> None:
        """Show where the job stands, or what an epoch came to."""
        from trainers.job.single_job import EpochDone

        if isinstance(news, EpochDone):
            self._bar.update(self._task, completed=news.steps)
            self.say(f"epoch {news.epoch} done at step {news.steps}: {_metrics(news.metrics)}")
            return
        note = f"epoch {news.epoch + 1}, loss {news.loss:.4g}, {news.rate:.4g} samples/s"
        self._bar.update(self._task, completed=news.steps, note=note)
        if self._bar.disable:
            self.say(f"step {news.steps} of {self._steps}: {note}")

    def say(self, text: str) -> None:
        """Print a line, above the bar if there is one."""
        with self._showing():
            self._console.print(text, soft_wrap=True, markup=False, highlight=False)

    @contextmanager
    def _showing(self) -> Iterator[None]:
        try:
            yield
        except (OSError, SystemExit):  # what rich raises where a pipe has no reader
            self._console.quiet = True
            self._unread()


def _metrics(metrics: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in metrics.items()) or "no metrics"


def _console() -> Console:
    """Standard output. Only the process that started ranks knows whether it is a terminal."""
    from rich.console import Console

    from fleet.session.console import rank_console

    return rank_console() if launched_by_us() else Console()
