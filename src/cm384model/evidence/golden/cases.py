"""From the cases of ``cm384 check`` to numbers: every case evaluated, every number with its name."""

from __future__ import annotations

import dataclasses
import doctest
import fnmatch
import hashlib
import importlib
import inspect
import json
import math
import os
import pkgutil
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from cm384model import __version__, laws
from cm384model.lawdoc import read_lawdoc
from cm384model.numeric import LAWS
from cm384model.prediction.case import DEFAULT_WORKLOAD, Case, load_case
from cm384model.prediction.evaluate import predict_decode, predict_operator, predict_prefill
from cm384model.recording import LawCall, recording
from cm384model.specs.catalogue import FOLDERS, data_root, is_file_name
from cm384model.specs.check_cases import CheckCase, CheckCases
from cm384model.specs.diagnostics import Problem, SpecError, did_you_mean, with_suggestion
from cm384model.specs.engine import Engine
from cm384model.specs.files import read_spec
from cm384model.specs.hardware import Hardware
from cm384model.specs.model import Model
from cm384model.specs.quantity import Quantity
from cm384model.specs.spec import Spec, nodes
from cm384model.specs.workload import Workload

Planner = Callable[..., Any]
"""``cm384model.plan``: this room may not import it and is handed it."""

Value = float | str
WORD = "word"
"""The unit of a value that is no number."""

SPECS: tuple[type[Spec], ...] = (Hardware, Engine, Model, Workload)
_NOT_PINNED = frozenset({"schema", "phase", "rank", "relative", "bound_by", "efficiency", "name", "feasible"})


@dataclass(frozen=True)
class Provenance:
    """What the numbers of a case were computed from.

    Attributes
    ----------
    case : str
        Digest of the case itself.
    version : str
        Version of cm384.
    data : mapping of str to str
        Digest of the numbers and words of every data file, by the name of the file.
    """

    case: str
    version: str
    data: Mapping[str, str]


@dataclass(frozen=True)
class Evaluated:
    """The values and units of one case by quantity, and what they were computed from."""

    values: Mapping[str, tuple[Value, str]]
    provenance: Provenance


def shipped_cases() -> Path:
    """The cases that come with the project."""
    return Path(str(files("cm384model.evidence.golden") / "cases.toml"))


def shipped_golden() -> Path:
    """The golden numbers that come with the project."""
    return Path(str(files("cm384model.evidence.golden") / "predictions.csv"))


def read_cases(path: Path) -> dict[str, CheckCase]:
    """The cases of a file by name.

    Raises
    ------
    SpecError
        With everything that is wrong with the file.
    """
    return read_spec(path, CheckCases).cases


def chosen(names: Iterable[str], patterns: Iterable[str]) -> list[str]:
    """The names that match any of some patterns, all without a pattern.

    Raises
    ------
    SpecError
        For a pattern that matches none.
    """
    names, patterns = list(names), list(patterns)
    problems = []
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            message = with_suggestion(f"no case '{pattern}'", pattern, names)
            near = did_you_mean(pattern, names)
            problems.append(Problem(message, hint=None if near else "patterns like 'decode-*' name several"))
    if problems:
        raise SpecError(problems)
    return [name for name in names if not patterns or any(fnmatch.fnmatch(name, p) for p in patterns)]


def evaluate_cases(cases: Mapping[str, CheckCase], folder: Path, planner: Planner) -> dict[str, Evaluated]:
    """All cases, with the files that they name looked for from ``folder``.

    Raises
    ------
    SpecError
        With every case that ends in an error it does not expect, or in a number that is not finite.
    """
    digests = Digests(folder)
    found: dict[str, Evaluated] = {}
    problems: list[Problem] = []
    for name, case in cases.items():
        try:
            found[name] = evaluate_case(case, digests, planner)
        except SpecError as error:
            problems += [
                dataclasses.replace(problem, message=f"case {name}: {problem.message}")
                for problem in error.problems
            ]
    if problems:
        raise SpecError(problems)
    return found


def evaluate_case(case: CheckCase, digests: Digests, planner: Planner) -> Evaluated:
    """The numbers of one case.

    Raises
    ------
    SpecError
        For an error that the case does not expect, and for a number that is not finite.
    """
    loaded: Case | None = None
    try:
        if case.kind == "examples":
            values = _examples()
        elif case.kind == "law":
            values = _law_values(case)
        else:
            loaded = _load(case, digests.folder)
            values = dict(_numbers(_result(case, loaded, planner)))
    except SpecError as error:
        if case.expect != "error":
            raise
        values = {"error": (_first_line(error, loaded, digests), WORD)}
    bad = [name for name, (v, _) in values.items() if isinstance(v, float) and not math.isfinite(v)]
    if bad:
        raise SpecError.of(f"{', '.join(bad)} is not finite", "such a number cannot be pinned")
    kept = {n: v for n, v in values.items() if any(fnmatch.fnmatchcase(n, p) for p in case.quantities)}
    if not kept:
        raise SpecError.of(f"quantities = {case.quantities} matches nothing", f"there is {', '.join(values)}")
    data = digests.of(loaded) if loaded is not None else {}
    return Evaluated(kept, Provenance(digest(case.model_dump(exclude={"why"})), __version__, data))


def unit_of(quantity: str) -> str:
    """The unit that the name of a quantity carries.

    >>> unit_of("terms.experts.time_s"), unit_of("memory.parts_bytes.attention"), unit_of("decode.ep")
    ('s', 'B', '-')
    """
    *above, name = quantity.split(".")
    whole = above[-1] if above else ""
    for suffix, unit in _UNIT_OF_SUFFIX.items():
        if name.endswith(suffix) or whole.endswith(suffix):
            return unit
    return _UNIT_OF_NAME.get(name, "-")


_UNIT_OF_SUFFIX = {
    "_tokens_per_s_per_npu": "tokens/s",
    "_tokens_per_s": "tokens/s",
    "requests_per_s": "requests/s",
    "_bytes_per_s": "B/s",
    "_s": "s",
    "_bytes": "B",
}
_UNIT_OF_NAME = {"flop": "FLOP", "bytes": "B"} | dict.fromkeys(
    ("kv_len", "prompt_len", "tokens", "tokens_per_die", "tokens_per_npu", "capacity_tokens"), "tokens"
)


class Digests:
    """Digests of data files, each read once.

    Attributes
    ----------
    folder : Path
        Where the cases file is.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self._known: dict[str, str] = {}

    def of(self, case: Case) -> dict[str, str]:
        """Digest of the four files of a case, as they are on disk, by name."""
        found = {}
        for kind in SPECS:
            spec: Spec = getattr(case, kind.spec_kind)
            name = self.name(spec.file)
            if name not in self._known:
                self._known[name] = digest([name, said(read_spec(Path(spec.file), kind))])
            found[name] = self._known[name]
        return found

    def name(self, file: str) -> str:
        """A file as it is named in the catalogue, or else from the folder of the cases."""
        path = Path(file).resolve()
        shipped = data_root().resolve()
        if path.parent in [shipped / folder for folder in FOLDERS.values()]:
            return path.relative_to(shipped).as_posix()
        return Path(os.path.relpath(path, self.folder)).as_posix()


def said(spec: Spec) -> dict[str, str]:
    """What a data file says by path: its numbers and words, not its comments, sources and notes."""
    return {
        path: f"{node.value!r} {node.unit}" if isinstance(node, Quantity) else node
        for path, node in nodes(spec)
        if isinstance(node, Quantity | str) and path.split(".")[0] not in Spec.not_settable
    }


def digest(value: Any) -> str:
    """Eight hexadecimal digits of what JSON makes of a value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:8]


def _load(case: CheckCase, folder: Path) -> Case:
    places = (case.workload or DEFAULT_WORKLOAD, case.hardware, case.engine)
    workload, hardware, engine = (p and (str(folder / p) if is_file_name(p) else p) for p in places)
    return load_case(str(workload), hardware=hardware, engine=engine, settings=case.settings)


def _result(case: CheckCase, loaded: Case, planner: Planner) -> Any:
    at = case.at or ""
    if case.kind == "decode":
        return predict_decode(loaded, [at])
    if case.kind == "prefill":
        return predict_prefill(loaded, [at])
    if case.kind == "op":
        return predict_operator(loaded, case.operator or "", [at])
    known = [name for name in inspect.signature(planner).parameters if name != "workload"]
    options = case.options or {}
    for name in options:
        if name not in known:
            raise SpecError.of(
                with_suggestion(f"plan has no option '{name}'", name, known), f"it takes {', '.join(known)}"
            )
    result = planner(loaded, **{"top": 1} | options)
    return result.plans[0] if result.plans else {"reasons": result.reasons}


def _all_laws() -> dict[str, Callable[..., Any]]:
    for module in pkgutil.iter_modules(laws.__path__):
        importlib.import_module(f"{laws.__name__}.{module.name}")
    return LAWS


def _examples() -> dict[str, tuple[Value, str]]:
    """Every law at the first example of its docstring that calls it."""
    values: dict[str, tuple[Value, str]] = {}
    for name, law in sorted(_all_laws().items()):
        with recording() as entries:
            scope = dict(vars(sys.modules[law.__module__]))
            for example in doctest.DocTestParser().get_examples(inspect.getdoc(law) or ""):
                exec(compile(example.source, name, "exec"), scope)
        own = [e for e in entries if isinstance(e, LawCall) and e.law.__name__ == name]
        results = np.atleast_1d(own[0].result).tolist() if own else []
        unit = read_lawdoc(law).result.unit
        for number, result in enumerate(results):
            values[name if len(results) == 1 else f"{name}.{number}"] = (float(result), unit)
    return values


def _law_values(case: CheckCase) -> dict[str, tuple[Value, str]]:
    name = case.law or ""
    if name not in _all_laws():
        raise SpecError.of(with_suggestion(f"there is no law '{name}'", name, LAWS), "cm384 list laws")
    known = list(inspect.signature(LAWS[name]).parameters)
    operands: dict[str, float] = {}
    for item in (case.at or "").split(","):
        operand, _, text = (part.strip() for part in item.partition("="))
        if operand not in known:
            message = with_suggestion(f"law {name} has no '{operand}'", operand, known)
            raise SpecError.of(message, f"it takes {', '.join(known)}")
        try:
            operands[operand] = float(text)
        except ValueError:
            hint = "operands of a law are plain SI numbers"
            raise SpecError.of(f"{operand} = '{text}' is not a number", hint) from None
    missing = [operand for operand in known if operand not in operands]
    if missing:
        raise SpecError.of(f"law {name} needs {', '.join(missing)}")
    return {"result": (float(LAWS[name](**operands)), read_lawdoc(LAWS[name]).result.unit)}


def _numbers(value: Any, prefix: str = "") -> Iterable[tuple[str, tuple[Value, str]]]:
    """Numbers and words of a result under the dotted paths that they have in its JSON; terms by name."""
    if dataclasses.is_dataclass(value):
        value = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    for name, entry in value.items():
        path = f"{prefix}{name}"
        if name in _NOT_PINNED or name.startswith("raw_") or name.endswith(("_low", "_high")):
            continue
        if name == "reasons":
            words = [word for reason in entry for word in reason.partition(":")[0].split(" and ")]
            yield from ((f"infeasible.{word}", (1.0, "-")) for word in words)
        elif name == "terms":
            for term in entry:
                yield from _numbers(term, f"{path}.{term.name}.")
        elif dataclasses.is_dataclass(entry) or isinstance(entry, Mapping):
            yield from _numbers(entry, f"{path}.")
        elif isinstance(entry, str):
            yield path, (entry, WORD)
        elif isinstance(entry, int | float):
            yield path, (float(entry), unit_of(path))


def _first_line(error: SpecError, loaded: Case | None, digests: Digests) -> str:
    """The message of an error, the same wherever cases and data files are."""
    text = error.problems[0].message.splitlines()[0]
    for kind in SPECS if loaded else ():
        file = getattr(loaded, kind.spec_kind).file
        text = text.replace(file, digests.name(file))
    return text.replace(f"{digests.folder}/", "")
