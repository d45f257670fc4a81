"""The file of parts that lies beside a spec where plain values cannot say how something is made."""

from __future__ import annotations

from collections.abc import Mapping

from fleet.spec.from_script.calls import Calls
from fleet.spec.from_script.definitions import Definitions

_ARGUMENTS = {
    "model": "",
    "loss": "outputs, targets",
    "schedule": "optimizer",
    "joined": "samples",
    "weights": "samples",
}
_MEANING = {
    "model": "The network.",
    "loss": "The mean loss of a batch.",
    "schedule": "The schedule of the learning rate, which is stepped once a step.",
    "joined": "A batch of samples.",
    "weights": "How often each training sample is drawn, in relation to the others.",
    "train_data": "The samples to train on.",
    "held_out_data": "The samples to evaluate on.",
}


def parts_text(
    calls: Calls, script: Definitions, functions: Mapping[str, str], names: Mapping[str, str], copies: bool
) -> str | None:
    """The file's text; None: it is not needed.

    Args:
        functions: what a function gives -> its body.
        names: what a function gives -> its name.
        copies: whether it has copies of the script's definitions, since importing the script would train.

    Raises:
        Unwritten: a definition cannot be copied.
    """
    own = calls.own | (calls.named if copies else set())
    if not functions and not (copies and own):
        return None
    why = "which would train if it were imported" if copies else "which plain values cannot make"
    what = "Copies of definitions" if copies else "Parts"
    copied = script.needed(own) if own and copies else ""
    imports = [f"import {each}" for each in sorted(calls.imports) if f"import {each}" not in copied.splitlines()]
    blocks = [f'"""{what} of {script.name}.py, {why}."""', "\n".join(imports)]
    if copied:
        blocks.append(copied)
    elif own:
        blocks.append(f"from {calls.module} import {', '.join(sorted(own))}")
    head = "\n\n".join(block for block in blocks if block)
    return "\n\n\n".join([head, *(_function(key, names[key], body) for key, body in functions.items())]) + "\n"


def _function(key: str, name: str, body: str) -> str:
    lines = [f"def {name}({_ARGUMENTS.get(key, '')}):", f'    """{_MEANING[key]}"""']
    return "\n".join([*lines, *(f"    {line}" for line in body.splitlines())])
