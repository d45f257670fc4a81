"""What `preprocess` names is there, and loaded when it is first asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

import preprocess


def test_all_that_is_named_is_there() -> None:
    assert sorted(preprocess._MODULES) == preprocess.__all__ == dir(preprocess)
    for name in preprocess.__all__:
        getattr(preprocess, name)
    with pytest.raises(AttributeError, match="has no attribute 'Preprocessor'"):
        preprocess.Preprocessor  # noqa: B018


def test_a_function_is_loaded_without_the_others() -> None:
    program = "import sys; from preprocess import SampleLayout; "
    program += "print(*sorted(name for name in sys.modules if name.startswith('preprocess.')))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    found = set(done.stdout.split())
    assert "preprocess.samples.layout" in found, done.stderr
    assert not [name for name in found if name.startswith(("preprocess.conversion", "preprocess.making"))]
