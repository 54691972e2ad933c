"""``--set PATH=VALUE``: any number or word of any spec, changed from the command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from cm384model.specs.constants import check_constant
from cm384model.specs.diagnostics import Problem, SpecError, with_suggestion
from cm384model.specs.files import faults
from cm384model.specs.quantity import Quantity
from cm384model.specs.spec import Section, Spec, node_at, nodes, quantity_paths, replace_node, replace_value
from cm384model.specs.units import parse_measure

__all__ = ["apply_overrides", "locate", "quantity_paths", "replace_value", "settable_paths"]


def settable_paths(spec: Spec) -> list[str]:
    """Dotted paths of everything `apply_overrides` may change: numbers and words, precisions left out too."""
    return [
        path
        for path, node in nodes(spec)
        if (isinstance(node, Quantity | str) or (node is None and path.startswith("precision.")))
        and path.split(".")[0] not in spec.not_settable
    ]


def apply_overrides(specs: Mapping[str, Any], settings: Iterable[str]) -> dict[str, Any]:
    """The specs with every ``PATH=VALUE`` applied; the path may start with the name of its spec.

    A changed number is marked as assumed, with the command line as its source.
    All problems of all settings are reported at once.
    """
    changed = dict(specs)
    problems: list[Problem] = []
    for setting in settings:
        try:
            name, path, text = _resolved(changed, setting)
            changed[name] = _set(changed[name], path, text)
        except SpecError as error:
            problems += [
                Problem(f"--set {setting}: {problem.message}", hint=problem.hint)
                for problem in error.problems
            ]
    if problems:
        raise SpecError(problems)
    return changed


def find_quantity(specs: Mapping[str, Any], path: str) -> Quantity:
    """The number at a path, which may start with the name of its spec.

    Raises
    ------
    SpecError
        If there is none, or the path is ambiguous.
    """
    name, found, _ = _resolved(specs, f"{path}=any")
    node = node_at(specs[name], found)
    if not isinstance(node, Quantity):
        raise SpecError.of(f"'{path}' is a word and no number")
    return node


def _resolved(specs: Mapping[str, Spec], setting: str) -> tuple[str, str, str]:
    given, equals, text = (part.strip() for part in setting.partition("="))
    if not equals or not given or not text:
        raise SpecError.of("needs PATH=VALUE", "for example --set die.hbm_bandwidth=1.8TB/s")
    return (*locate(specs, given), text)


def locate(specs: Mapping[str, Spec], given: str) -> tuple[str, str]:
    """The name of a spec and the path in it that a text such as ``die.hbm_bandwidth`` stands for.

    Raises
    ------
    SpecError
        For a path that is unknown or in two specs.
    """
    known = [(name, path) for name, spec in specs.items() for path in settable_paths(spec)]
    found = [(name, path) for name, path in known if given in (f"{name}.{path}", path)]
    if len(found) == 1:
        return found[0]
    full = [f"{name}.{path}" for name, path in found or known]
    if found:
        raise SpecError.of(f"'{given}' is ambiguous", f"one of {', '.join(full)}")
    if given.rpartition(".")[2] in specs:
        kind = given.rpartition(".")[2]
        hint = f"--{kind} NAME|FILE puts another one in its place" if kind != "workload" else None
        raise SpecError.of(f"'{given}' is a whole file, not one of its values", hint)
    prefixed = given.split(".")[0] in specs
    choices = full if prefixed else [path for _, path in known]
    raise SpecError.of(with_suggestion(f"unknown path '{given}'", given, choices))


def _set(spec: Spec, path: str, text: str) -> Spec:
    old = node_at(spec, path)
    new: Any = text
    parent_path, _, name = path.rpartition(".")
    parent = node_at(spec, parent_path) if parent_path else spec
    try:
        if isinstance(old, Quantity):
            new = _number(old, text)
        if isinstance(parent, Section):
            type(parent).model_validate({**dict(parent), name: new}, context={"file": spec.file})
        elif isinstance(new, Quantity):
            check_constant(name, new)
    except ValidationError as error:
        raise SpecError(
            [Problem(message, hint=hint) for _, message, hint in faults(error, type(parent))]
        ) from None
    except PydanticCustomError as error:
        said = error.context or {}
        raise SpecError.of(said["message"], said["hint"]) from None
    return replace_node(spec, path, new)


def _number(old: Quantity, text: str) -> Quantity:
    value, unit = parse_measure(text, old.dimension)
    new = Quantity(value=value, unit=unit, per=old.per, source="command line", kind="assumed", confidence="D")
    new.at(old.path)
    return new
