"""`fleet convert`: any of the known kinds of data -> one HDF5 file, or the check of such a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleet.commands.entry import end, mendable
from fleet.machine.launch.launched import BAD_INPUT, FAILED, STOPPED

if TYPE_CHECKING:
    from preprocess.conversion.convert import Conversion, ConversionProgress


class _Stopped(Exception):
    """A signal asked for the end."""


def convert(
    source: Annotated[
        str | None,
        typer.Argument(
            help="image folder, IDX folder, .npz, tar shards, Parquet, Arrow, Zarr, NetCDF, LMDB, or module:Name",
            metavar="SRC",
        ),
    ] = None,
    destination: Annotated[Path | None, typer.Argument(help="the HDF5 file to make", metavar="DST")] = None,
    held_out: Annotated[
        str | None, typer.Option(metavar="SRC", help="where the held-out samples are, if not in SRC")
    ] = None,
    images: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="the IDX file of images in SRC, the array in an .npz, or the column of a table"
        ),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="the IDX file of labels in SRC, the array in an .npz, or the column of a table"
        ),
    ] = None,
    arguments: Annotated[
        list[str] | None, typer.Option("--argument", metavar="KEY=VALUE", help="an argument of the source")
    ] = None,
    encoded: Annotated[str | None, typer.Option(metavar="FORMAT", help="store images as png or jpeg")] = None,
    decoded: Annotated[bool, typer.Option("--decoded", help="store arrays, decoded if need be")] = False,
    quality: Annotated[int, typer.Option(help="quality of --encoded jpeg, 1 to 100")] = 90,
    channels: Annotated[int, typer.Option(help="channels of decoded images: 3 or 1")] = 3,
    skip_corrupt: Annotated[
        bool, typer.Option("--skip-corrupt", help="leave out samples that cannot be read, and list them")
    ] = False,
    workers: Annotated[int | None, typer.Option(help="processes; default: one a core")] = None,
    force: Annotated[bool, typer.Option("--force", help="write over DST")] = False,
    verify: Annotated[
        Path | None, typer.Option(metavar="FILE", help="convert nothing; compare a converted file with its checksums")
    ] = None,
) -> None:
    """Convert data into one HDF5 file that is read fast; after a stop or a crash, the same command goes on."""
    if verify is not None:
        if source is not None:
            end(BAD_INPUT, f"--verify looks at one file and converts nothing: leave out {source}")
        _verify(verify)
        return
    if source is None or destination is None:
        end(BAD_INPUT, "convert needs SRC and DST: fleet convert FOLDER data.h5")
    options: dict[str, Any] = {
        "held_out": held_out,
        "arguments": _arguments(arguments, images, labels),
        "encoding": _encoding(encoded, decoded),
        "quality": quality,
        "channels": channels,
        "skip_corrupt": skip_corrupt,
        "workers": workers,
        "force": force,
    }
    _tell(_convert(source, destination, options))


def _convert(source: str, destination: Path, options: dict[str, Any]) -> Conversion:
    from fleet.machine.launch.launched import StopFlag
    from fleet.spec.references import importable
    from preprocess.conversion.convert import convert as convert_data
    from preprocess.conversion.packing import ConversionFailure
    from preprocess.samples.errors import DataSpecError

    stop = StopFlag()
    stop.install()
    try:
        with mendable(DataSpecError), importable([Path.cwd()]), _progress(stop) as progress:
            return convert_data(source, destination, progress=progress, **options)
    except ConversionFailure as error:
        end(FAILED, str(error))
    except _Stopped:
        end(STOPPED, f"stopped; what was done is kept in {destination}.partial: the same command goes on")


def _verify(path: Path) -> None:
    from preprocess.conversion.hdf5_file import verify
    from preprocess.samples.errors import DataSpecError
    from preprocess.sources.checked_files import DamageError

    try:
        with _bar("checking") as show:
            found = verify(path, lambda done, total: show(done, total, ""))
    except DamageError as error:  # a DataSpecError, too
        end(FAILED, str(error))
    except DataSpecError as error:
        end(BAD_INPUT, str(error))
    for line in found.damage:
        print(line)
    if found.damage:
        end(FAILED, f"{path} is damaged in {len(found.damage)} places; convert it anew")
    print(f"{path}: all {found.samples} samples are as they were written")


def _tell(made: Conversion) -> None:
    """Tell of the file, and how a spec names it."""
    for failure in made.skipped:
        print(f"left out: {failure.name}: {failure.reason}")
    for split in made.splits:
        classes = "" if split.classes is None else f" of {len(split.classes)} classes"
        how = {"files": "image files", "decoded": "arrays"}.get(split.encoding, f"{split.encoding} images")
        print(f"{made.path}: {split.name}, {split.samples} samples{classes}, {split.bytes / 1e6:.1f} MB of {how}")
    print("In the data section of a spec:")
    for split in made.splits:
        where = f"path: {made.path}" + ("" if split.name == "train" else f", split: {split.name}")
        print(f"    {split.name}: {{source: hdf5, arguments: {{{where}}}}}")


@contextmanager
def _progress(stop: Callable[[], bool]) -> Iterator[Callable[[ConversionProgress], None]]:
    """A function that shows the progress, and ends the conversion when it should stop."""
    with _bar("converting") as show:

        def take(progress: ConversionProgress) -> None:
            left_out = f", {progress.skipped} left out" if progress.skipped else ""
            show(progress.done, progress.total, f"{progress.bytes / 1e6:.1f} MB{left_out}")
            if stop():
                raise _Stopped

        yield take


@contextmanager
def _bar(what: str) -> Iterator[Callable[[int, int, str], None]]:
    """A progress bar on standard error if it is a terminal."""
    from rich.console import Console

    from fleet.report.terminal import progress_bar

    with progress_bar(Console(stderr=True)) as bar:
        task = bar.add_task(what, total=None, note="")
        yield lambda done, total, note: bar.update(task, completed=done, total=total, note=note)


def _arguments(given: list[str] | None, images: str | None, labels: str | None) -> dict[str, Any]:
    """The source's arguments; a value is read as YAML."""
    import yaml

    arguments: dict[str, Any] = {}
    for text in given or []:
        key, equals, value = text.partition("=")
        if not (key and equals):
            end(BAD_INPUT, f"--argument {text}: an argument is written KEY=VALUE, such as root=data")
        try:
            arguments[key] = yaml.safe_load(value)
        except yaml.YAMLError:
            end(BAD_INPUT, f"--argument {text}: the value is not YAML; put it into quotes")
    return arguments | {key: value for key, value in (("images", images), ("labels", labels)) if value is not None}


def _encoding(encoded: str | None, decoded: bool) -> str | None:
    if encoded is not None and decoded:
        end(BAD_INPUT, "--encoded and --decoded contradict each other; leave one out")
    if encoded not in (None, "png", "jpeg"):
        end(BAD_INPUT, f"--encoded {encoded}: the formats are png and jpeg")
    return "decoded" if decoded else encoded
