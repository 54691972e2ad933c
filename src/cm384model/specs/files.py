"""Read a TOML data file, and say everything that is wrong with it at the keys where it is wrong."""

from __future__ import annotations

import re
import tomllib
import types
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticCustomError

from cm384model.specs.catalogue import SpecKind, resolve
from cm384model.specs.diagnostics import Problem, SpecError, did_you_mean, with_suggestion
from cm384model.specs.inheritance import Extends, Table, merged
from cm384model.specs.quantity import Measure, Quantity
from cm384model.specs.toml_keys import Loc, Place, key_places

S = TypeVar("S", bound=BaseModel)
_SHORT_LIST = 16
_NUMBER_FORM = '{ value = 1, unit = "-", source = "...", kind = "...", confidence = "..." }'
_EXPECTED = {
    "float_type": "a number",
    "int_type": "a whole number",
    "string_type": "a string",
    "bool_type": "true or false",
    "model_type": "a table",
    "dict_type": "a table",
    "tuple_type": "a list",
    "list_type": "a list",
}
_SAID = ("value", "unit", "per", "source", "kind", "range")  # keys whose messages name them


class Fault(NamedTuple):
    """What is wrong at which location, before the place in the file is known."""

    loc: Loc
    message: str
    hint: str | None


def read_spec(path: Path, model: type[S], below: tuple[Path, ...] = ()) -> S:
    """The spec a file holds; `SpecError` with all its problems if it holds none.

    A file that extends another one is filled in from it; ``below`` are the files that led here.
    """
    file = _shown_path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise SpecError.of(f"cannot read '{file}': {reason}") from error
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SpecError([_syntax_problem(str(error), text, file)]) from None
    if "extends" in data and "extends" in model.model_fields:
        data = _filled(data, model, text, path, below)
    sources = data.get("sources")
    context = {"file": file, "sources": list(sources) if isinstance(sources, dict) else []}
    model = getattr(model, "class_of", lambda _: model)(data)  # a spec may choose by what the file says
    try:
        return model.model_validate(data, context=context)
    except ValidationError as error:
        raise SpecError(_located(faults(error, model), text, file)) from None


def _filled(data: Table, model: type[S], text: str, path: Path, below: tuple[Path, ...]) -> Table:
    """The data of a file with what it takes from the file that it extends."""
    file = _shown_path(path)

    def at_extends(found: list[Fault]) -> SpecError:
        return SpecError(
            _located([fault._replace(loc=("extends", *fault.loc)) for fault in found], text, file)
        )

    form = next(t for t in get_args(model.model_fields["extends"].annotation) if issubclass(t, Extends))
    try:
        extends = form.model_validate(data["extends"])
    except ValidationError as error:
        raise at_extends(faults(error, form)) from None
    kind: SpecKind = getattr(model, "spec_kind", "hardware")
    try:
        base = resolve(kind, extends.other, path.parent)
    except SpecError as error:
        raise at_extends([Fault((form.KEY,), p.message, p.hint) for p in error.problems]) from None
    chain = (*below, path.resolve())
    if base.resolve() in chain:
        raise at_extends([Fault((form.KEY,), f"'{extends.other}' extends this file itself", None)])
    whole = read_spec(base, model, chain).model_dump(by_alias=True, exclude_none=True)
    try:
        return merged(data, whole, extends)
    except PydanticCustomError as error:
        said = error.context or {}
        raise at_extends([Fault((said["key"],), said["message"], said["hint"])]) from None


def faults(error: ValidationError, model: type[BaseModel]) -> list[Fault]:
    """A validation error in our words; a missing key whose misspelling was found is left out."""
    details = error.errors(include_url=False)
    missing = [tuple(detail["loc"]) for detail in details if detail["type"] == "missing"]
    found, renamed = [], set()
    for detail in details:
        loc = tuple(detail["loc"])
        if detail["type"] == "extra_forbidden":
            keys = _keys(_kind_at(model, loc[:-1]))
            absent = [str(gap[-1]) for gap in missing if gap[:-1] == loc[:-1]]
            word = str(loc[-1])
            nearest = did_you_mean(word, absent) or did_you_mean(word, keys)
            renamed.add((*loc[:-1], nearest))
            question = f". Did you mean '{nearest}'?" if nearest else ""
            hint = None if nearest and len(keys) > _SHORT_LIST // 2 else _listed("keys here are", keys)
            found.append(Fault(loc, f"unknown key '{word}'{question}", hint))
        elif detail["type"] != "missing":
            found.append(_fault(detail, model, loc))
    gaps: dict[Loc, list[Loc]] = {}
    for gap in missing:
        if gap not in renamed:
            gaps.setdefault(gap[:-1], []).append(gap)
    return found + [_missing(model, table, group) for table, group in gaps.items()]


def dotted(loc: Loc) -> str:
    """A location as it is written: ``die.hbm_bandwidth``, ``checks[0].value``."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in loc).lstrip(".")


def _fault(detail: Any, model: type[BaseModel], loc: Loc) -> Fault:
    kind, context, given = detail["type"], detail.get("ctx", {}), detail["input"]
    if kind == "cm384":
        message, hint, key = context["message"], context["hint"], context["key"]
        measure = _measure(_kind_at(model, loc[:-1])) if loc[-1:] == ("unit",) else None
        if measure:  # an unknown unit where the field says which ones it takes
            message = with_suggestion(f"unknown unit '{given}'", given, measure.units)
            hint = _listed("use", measure.units)
        return Fault((*loc, key) if key else loc, message, hint)
    if kind == "literal_error":
        allowed = re.findall(r"'([^']*)'", context["expected"]) or [context["expected"]]
        message = with_suggestion(f"{_shown(given)} is not allowed", str(given), allowed)
        return Fault(loc, message, _listed("one of" if len(allowed) > 1 else "it is always", allowed))
    if kind == "model_type" and _bare(_kind_at(model, loc)) is Quantity:
        message = f"needs a number with its unit and source, not {_shown(given)}"
        return Fault(loc, message, f"{loc[-1]} = {_NUMBER_FORM}")
    if loc[-1] == "range" or loc[-2:-1] == ("range",):
        return _bad_range(loc)
    if kind == "string_pattern_mismatch":
        return Fault(loc[:-1], f"name '{given}' must be a lower_case_word", None)
    if kind in _EXPECTED:
        return Fault(loc, f"needs {_EXPECTED[kind]}, not {_shown(given)}", None)
    message = (
        detail["msg"].removeprefix("Input ").removeprefix("Value error, ").replace("should be", "must be")
    )
    return Fault(loc, f"{message[0].lower()}{message[1:]}, is {_shown(given)}", None)


def _missing(model: type[BaseModel], table: Loc, gaps: list[Loc]) -> Fault:
    """One fault for all keys that are missing from one table, at the table."""
    if gaps[0][-1] == 1:
        return _bad_range(gaps[0])
    names = ", ".join(f"'{gap[-1]}'" for gap in gaps)
    number = next((gap[-1] for gap in gaps if _bare(_kind_at(model, gap)) is Quantity), None)
    hint = f"{number} = {_NUMBER_FORM}" if number else None
    return Fault(table, f"missing key{'s' if len(gaps) > 1 else ''} {names}", hint)


def _bad_range(loc: Loc) -> Fault:
    at = loc if loc[-1] == "range" else loc[:-1]
    return Fault(at, "range needs two finite numbers", "range = [low, high]")


def _located(found: list[Fault], text: str, file: str) -> list[Problem]:
    places, lines = key_places(text), text.splitlines() or [""]
    problems = {}
    for loc, message, hint in found:
        known = next((loc[:end] for end in range(len(loc), 0, -1) if loc[:end] in places), ())
        place = places.get(known, Place(1, 1, 1))
        said = loc and loc[-1] in _SAID and re.search(rf"\b{loc[-1]}\b", message)
        name = dotted(loc[:-1] if said else loc)
        full = f"{name}: {message}" if name else message
        problems[place, full] = Problem(full, file, *place, lines[place.line - 1], hint)
    return list(problems.values())


def _syntax_problem(error: str, text: str, file: str) -> Problem:
    lines = text.splitlines() or [""]
    match = re.search(r" \(at (?:line (\d+), column (\d+)|end of document)\)$", error)
    message = error[: match.start()] if match else error
    if match and match[1]:
        line, column = int(match[1]), int(match[2])
    else:
        line, column = len(lines), len(lines[-1]) + 1
    return Problem(f"not valid TOML: {message}", file, line, column, 1, lines[min(line, len(lines)) - 1])


def _shown_path(path: Path) -> str:
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "a list"
    return f"'{value}'" if isinstance(value, str) else f"{value}"


def _listed(words: str, names: list[str]) -> str | None:
    return f"{words} {', '.join(names)}" if 0 < len(names) <= _SHORT_LIST else None


def _keys(kind: Any) -> list[str]:
    kind = _bare(kind)
    if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
        return []
    return [field.alias or name for name, field in kind.model_fields.items()]


def _kind_at(model: type[BaseModel], loc: Loc) -> Any:
    """The annotation of what stands at a location, with its metadata."""
    kind: Any = model
    for step in loc:
        inside = _bare(kind)
        if isinstance(inside, type) and issubclass(inside, BaseModel):
            kind = get_type_hints(inside, include_extras=True).get(str(step))
        else:
            arguments = get_args(inside)
            kind = arguments[-1 if get_origin(inside) is dict else 0] if arguments else None
    return kind


def _bare(kind: Any) -> Any:
    """An annotation without its metadata and without None."""
    while get_origin(kind) in (Annotated, Union, types.UnionType):
        kind = get_args(kind)[0]
    return kind


def _measure(kind: Any) -> Measure | None:
    """The measure among the metadata of an annotation, also of an optional one."""
    while get_origin(kind) in (Union, types.UnionType):
        kind = get_args(kind)[0]
    metadata = get_args(kind)[1:] if get_origin(kind) is Annotated else ()
    return next((entry for entry in metadata if isinstance(entry, Measure)), None)
