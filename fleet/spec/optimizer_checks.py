"""What of an optimizer of the spec can be known only with its network's parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import nn, optim

from fleet.spec.built_optimizer import OTHERS, Makers, built_optimizer, shown_names
from fleet.spec.calls import Misfit, misfits, refused
from fleet.spec.optimizer import Optimizer, patterns, unmatched
from fleet.spec.problem import Path, nearest

Fault = tuple[Path, Any, Misfit]
"""Where in the job, what stands there, and what is wrong."""


def argument_faults(asked: Optimizer, makers: Makers) -> Iterator[Fault]:
    """The arguments that do not suit the optimizers' signatures."""
    places: list[tuple[Path, str | None, Mapping[str, Any]]] = [(("optimizer",), asked.name, asked.arguments)]
    places += [(("optimizer", "groups", n), each.name, each.arguments) for n, each in enumerate(asked.groups)]
    for path, name, arguments in places:
        if name is None:
            continue
        by_weights = {key: value for key, value in arguments.items() if isinstance(value, Mapping)}
        for key, value in by_weights.items():
            yield path + ("arguments", key), value, _of_all(name, key, value)
        plain = {key: value for key, value in arguments.items() if key not in by_weights}
        for misfit in misfits(makers[name], name, plain, 1):
            at = path + ("arguments",) + ((misfit.argument,) if misfit.argument else ())
            yield at, arguments[misfit.argument] if misfit.argument else dict(arguments), misfit


def _of_all(name: str, key: str, value: Mapping[str, Any]) -> Misfit:
    groups = ", ".join(f'{{match: ["*{part}"], {key}: {one}}}' for part, one in value.items())
    rule = f"an argument of {name} holds for all parameters, and here stands one for each of {', '.join(value)}"
    return Misfit(key, rule, mend=f"take it away, and add groups: [{groups}] beside the arguments")


def group_faults(asked: Optimizer, names: Sequence[str]) -> Iterator[Fault]:
    """The patterns that are no parameter's, and the parameters that no optimizer has."""
    for number, pattern in unmatched(asked, names):
        ends = {name.rpartition(".")[2]: f"*.{name.rpartition('.')[2]}" for name in names}
        close = nearest(pattern, names) or ends.get(nearest(pattern.strip("*."), ends) or "")
        mend = f"the network has {shown_names(names)}"
        path: Path = ("optimizer", "groups", number, "match")
        yield path, pattern, Misfit(None, f"no parameter of the network has a name like {pattern!r}", close, mend)
    rest = asked.members(names)[-1]
    if rest and asked.name is None:
        rule = f"no group has {shown_names(rest)}, which nothing would train"
        yield ("optimizer", "groups"), [list(group.match) for group in asked.groups], Misfit(None, rule, mend=OTHERS)


def building_faults(asked: Optimizer, makers: Makers, named: Sequence[tuple[str, nn.Parameter]]) -> Iterator[Fault]:
    """What building it raises, and options that no optimizer has."""
    try:
        made = built_optimizer(asked, makers, named)
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        yield ("optimizer", "arguments"), dict(asked.arguments), _refused(asked, makers, named, error)
        return
    if not isinstance(made, optim.Optimizer):
        rule = f"{asked.name} gives a {type(made).__name__}, not a torch.optim.Optimizer"
        yield ("optimizer", "name"), asked.name, Misfit(None, rule, mend="name a class of Optimizer")
        return
    for number, group in enumerate(asked.groups):
        name = group.name or asked.name
        assert name is not None
        known = sorted(_defaults(makers[name], named))
        for key, value in group.options.items():
            if known and key not in known:
                rule = f"{name} has no option {key!r}; it has {', '.join(known)}"
                close = nearest(key, known)
                path: Path = ("optimizer", "groups", number, key)
                yield path, value, Misfit(None, rule, close, f"rename it to {close}" if close else "take it away")


def _defaults(maker: Any, named: Sequence[tuple[str, nn.Parameter]]) -> Mapping[str, Any]:
    """What an optimizer's groups may say, as far as it can be made without arguments."""
    for parameter in ([one] for _, one in named):
        try:
            return dict(maker(parameter).defaults)
        except Exception:  # it needs arguments, or other parameters
            continue
    return {}


def _refused(
    asked: Optimizer, makers: Makers, named: Sequence[tuple[str, nn.Parameter]], error: BaseException
) -> Misfit:
    name = asked.name or ", ".join(asked.names)
    flat = [key for key, parameter in named if parameter.dim() != 2]
    if "only supports 2D" in str(error) and flat:
        matched = ", ".join(f'"{pattern}"' for pattern in patterns(flat, [key for key, _ in named]))
        rule = f"Muon takes weights of two dimensions alone, and not {shown_names(flat)}"
        mend = f'write optimizer: {{groups: [{{match: [{matched}], name: AdamW}}, {{match: ["*"], name: Muon}}]}}'
        return Misfit(None, rule, mend=mend)
    return refused(makers[asked.name or asked.names[0]], name, error)
