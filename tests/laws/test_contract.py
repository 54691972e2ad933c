"""The contract that every law keeps: docstring, units, broadcasting, no hidden numbers."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import pkgutil
import re
import textwrap
import tomllib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import cm384model.laws
from cm384model import numeric
from cm384model.recording import LawCall, recording

MODULES = [
    importlib.import_module(f"{cm384model.laws.__name__}.{module.name}")
    for module in pkgutil.iter_modules(cm384model.laws.__path__)
]
LAWS = dict(numeric.LAWS)
BIBLIOGRAPHY = tomllib.loads((Path(cm384model.laws.__file__).parent / "bibliography.toml").read_text("utf-8"))
SCALES = {"s": 3.0, "B": 5.0, "FLOP": 7.0, "tokens": 11.0}
ALLOWED_LITERALS = {0, 1, 2, 3, 4, 0.5}
SECTIONS = ["Parameters", "Returns", "Notes", "Examples", "References"]
EVERY_LAW = pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)


class Entry(NamedTuple):
    """A parameter or result of a numpydoc docstring."""

    name: str
    kind: str
    text: str

    @property
    def unit(self) -> str:
        """The bracket that ends the text; empty if there is none."""
        match = re.search(r"\[([^][]+)\]$", self.text)
        return match[1] if match else ""


def sections(law) -> dict[str, str]:
    """Text under each numpydoc heading, and the text before the first under ''."""
    doc = inspect.getdoc(law) or ""
    parts = re.split(r"^(\w[\w ]*)\n-{3,}\n", doc, flags=re.MULTILINE)
    return {"": parts[0]} | dict(zip(parts[1::2], parts[2::2], strict=True))


def entries(section: str) -> list[Entry]:
    """Entries of a Parameters or Returns section."""
    found = re.findall(r"^(\S[^\n]*?) : ([^\n]+)\n((?:    [^\n]*\n?|\n)+)", section + "\n", re.MULTILINE)
    return [Entry(name, kind, " ".join(text.split())) for name, kind, text in found]


def factor(unit: str) -> float:
    """By how much a number in this unit grows when its base units shrink; KeyError if unknown."""
    if unit == "-":
        return 1.0
    scale = 1.0
    for position, name in enumerate(unit.split("/")):
        if name == "1" and position == 0:
            continue
        scale = scale / SCALES[name] if position else scale * SCALES[name]
    return scale


def examples(law) -> list[dict[str, float]]:
    """Operands of the calls in the law's own doctest, as floats, defaults filled in."""
    source = "".join(e.source for e in doctest.DocTestParser().get_examples(inspect.getdoc(law) or ""))
    namespace = dict(inspect.unwrap(law).__globals__) | {law.__name__: law}
    with recording() as calls:
        exec(compile(source, f"<examples of {law.__name__}>", "exec"), namespace)
    defaults = {
        p.name: p.default for p in inspect.signature(law).parameters.values() if p.default is not p.empty
    }
    return [
        {name: float(value) for name, value in (defaults | call.operands).items()}
        for call in calls
        if isinstance(call, LawCall) and call.law is law
    ]


def call(law, operands):
    """The law with operands by name, passed as its signature wants them."""
    positional = [
        operands[p.name]
        for p in inspect.signature(law).parameters.values()
        if p.kind is not inspect.Parameter.KEYWORD_ONLY
    ]
    keywords = {
        p.name: operands[p.name]
        for p in inspect.signature(law).parameters.values()
        if p.kind is inspect.Parameter.KEYWORD_ONLY
    }
    return law(*positional, **keywords)


def docstring_faults(law) -> list[str]:
    """What is wrong with a law's docstring."""
    text, faults = sections(law), []
    missing = [name for name in SECTIONS if name not in text]
    if missing:
        return [f"no section {name}" for name in missing]
    if list(text)[1:] != SECTIONS:
        faults.append(f"sections are {list(text)[1:]}")
    parameters, returns = entries(text["Parameters"]), entries(text["Returns"])
    names = list(inspect.signature(law).parameters)
    if [entry.name for entry in parameters] != names:
        faults.append(f"documents {[entry.name for entry in parameters]}, takes {names}")
    if len(returns) != 1:
        faults.append("returns one thing and must say so")
    for entry in [*parameters, *returns]:
        try:
            factor(entry.unit)
        except KeyError:
            faults.append(f"{entry.name}: no known unit in '[{entry.unit}]'")
        if not entry.kind.startswith("numeric"):
            faults.append(f"{entry.name} is a {entry.kind}")
    if ".. math::" not in text[""]:
        faults.append("no formula")
    if "Valid" not in text["Notes"]:
        faults.append("Notes do not state validity")
    return faults + reference_faults(text)


def reference_faults(text: dict[str, str]) -> list[str]:
    """References that are not in the bibliography, not listed or never cited."""
    listed = dict(re.findall(r"\.\. \[(\d+)\] (.*?)(?=\n\.\. \[|\Z)", text["References"].strip(), re.DOTALL))
    body = " ".join(part for name, part in text.items() if name != "References")
    cited = set(re.findall(r"\[(\d+)\]_", body))
    faults = [f"reference {n} is listed or cited, not both" for n in cited ^ set(listed)]
    for number, reference in listed.items():
        for part in reference.split(";"):
            match = re.match(r"([a-z]+\d{4})\b", part.strip())
            if match is None:
                faults.append(f"reference {number} starts with no key: '{part.strip()}'")
            elif match[1] not in BIBLIOGRAPHY:
                faults.append(f"unknown reference '{match[1]}'")
    return faults


def homogeneity_faults(law, points) -> list[str]:
    """Operand points at which the result does not rescale as its bracket says."""
    text = sections(law)
    unit = {entry.name: entry.unit for entry in entries(text["Parameters"])}
    (result,) = entries(text["Returns"])
    faults = []
    for operands in points:
        scaled = {name: value * factor(unit[name]) for name, value in operands.items()}
        expected = call(law, operands) * factor(result.unit)
        if not np.isclose(call(law, scaled), expected, rtol=1e-9, atol=0):
            faults.append(f"{call(law, scaled)} and not {expected} at {scaled}")
    return faults


def points(law) -> list[dict[str, float]]:
    """The law's examples, and the same with each quantity that has a unit changed at will."""
    unit = {entry.name: entry.unit for entry in entries(sections(law)["Parameters"])}
    random = np.random.default_rng(384)
    found = examples(law)
    for operands in examples(law):
        for _ in range(8):
            found.append(
                {
                    name: value * (1.0 if unit[name] == "-" else float(random.uniform(0.2, 5.0)))
                    for name, value in operands.items()
                }
            )
    return found


def magic_numbers(function) -> list[float]:
    """Numbers in the body of a function that no name explains."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function)))).body
    return [
        node.value
        for statement in definition.body
        for node in ast.walk(statement)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, int | float | complex)
        and node.value not in ALLOWED_LITERALS
    ]


def second_values(operands: dict[str, float]) -> dict[str, np.ndarray]:
    """Two values for every operand, each along an axis of its own."""
    axes = {}
    for position, (name, value) in enumerate(operands.items()):
        other = max(1.0, round(value * 0.75)) if value > 1 and value == round(value) else value * 0.75
        shape = [1] * len(operands)
        shape[position] = 2
        axes[name] = np.array([value, other]).reshape(shape)
    return axes


def test_there_are_laws():
    assert len(LAWS) >= 30
    assert {module.__name__ for module in MODULES} >= {law.__module__ for law in LAWS.values()}


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_every_public_function_is_a_law_and_no_module_hides_a_number(module):
    public = [
        name
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")
    ]
    assert public
    assert [name for name in public if name not in LAWS] == []
    helpers = [f for f in vars(module).values() if inspect.isfunction(f) and f.__module__ == module.__name__]
    assert [number for helper in helpers for number in magic_numbers(helper)] == []
    body = ast.parse(inspect.getsource(module)).body
    assert [node for node in body if isinstance(node, ast.Assign | ast.AnnAssign)] == []


@EVERY_LAW
def test_docstring(law):
    assert docstring_faults(law) == []


@EVERY_LAW
def test_the_example_calls_the_law(law):
    assert examples(law)


@EVERY_LAW
def test_units_follow_from_the_brackets(law):
    assert homogeneity_faults(law, points(law)) == []


@EVERY_LAW
def test_no_magic_numbers(law):
    assert magic_numbers(law) == []


@EVERY_LAW
def test_floats_and_integers_give_a_float(law):
    for operands in examples(law):
        assert isinstance(call(law, operands), float)
        whole = {name: int(value) if value == int(value) else value for name, value in operands.items()}
        assert isinstance(call(law, whole), float | int)
        assert call(law, whole) == pytest.approx(call(law, operands), rel=1e-12)


@EVERY_LAW
def test_sparse_axes_broadcast_and_a_grid_is_a_loop_of_scalars(law):
    for operands in examples(law):
        axes = second_values(operands)
        grid = call(law, axes)
        assert grid.shape == (2,) * len(operands)
        corners = list(np.ndindex(grid.shape))
        for where in corners[:: max(1, len(corners) // 128)] + corners[-1:]:
            scalars = {n: float(a.ravel()[i]) for (n, a), i in zip(axes.items(), where, strict=True)}
            assert grid[where] == pytest.approx(call(law, scalars), rel=1e-12, abs=0)


@EVERY_LAW
def test_a_law_leaves_its_operands_alone(law):
    for operands in examples(law):
        axes = second_values(operands)
        before = {name: axis.copy() for name, axis in axes.items()}
        call(law, axes)
        assert all(np.array_equal(axes[name], before[name]) for name in axes)


# --- the checks bite ------------------------------------------------------------------------------------


def good_time(tokens, token_bytes, *, bandwidth, latency):
    r"""Time to send tokens [1]_.

    .. math::
        t = \alpha + N m / \beta

    Parameters
    ----------
    tokens : numeric
        Tokens. [tokens]
    token_bytes : numeric
        Bytes of a token. [B/tokens]
    bandwidth : numeric
        Bandwidth,
        one way. [B/s]
    latency : numeric
        Start-up. [s]

    Returns
    -------
    time : numeric
        Time. [s]

    Notes
    -----
    Valid always.

    Examples
    --------
    >>> f"{good_time(96, 7680, bandwidth=136e9, latency=2e-6):.4e}"
    '7.4212e-06'

    References
    ----------
    .. [1] zuo2025.
    """
    return latency + tokens * token_bytes / bandwidth


def hidden_latency(tokens, token_bytes, *, bandwidth, latency):
    return 5e-6 + latency + tokens * token_bytes / bandwidth


def inverted_ratio(tokens, token_bytes, *, bandwidth, latency):
    return latency + bandwidth / (tokens * token_bytes)


def binary_gigabytes(tokens, token_bytes, *, bandwidth, latency):
    return latency + tokens * token_bytes / bandwidth * 1000**3 / 1024**3


POINT = {"tokens": 96.0, "token_bytes": 7680.0, "bandwidth": 136e9, "latency": 2e-6}


def test_a_good_law_passes():
    assert docstring_faults(good_time) == []
    assert homogeneity_faults(good_time, [POINT]) == []
    assert magic_numbers(good_time) == []


@pytest.mark.parametrize("law", [hidden_latency, inverted_ratio])
def test_a_hidden_latency_and_an_inverted_ratio_are_caught(law):
    law.__doc__ = good_time.__doc__
    assert homogeneity_faults(law, [POINT])


def test_a_branch_on_a_bare_number_is_caught():
    def law(tokens, token_bytes, *, bandwidth, latency):
        return np.where(tokens < 4 * 32, latency, tokens * token_bytes / bandwidth)[()]

    law.__doc__ = good_time.__doc__
    assert homogeneity_faults(law, [POINT])
    assert magic_numbers(law) == [32]


@pytest.mark.parametrize(("law", "numbers"), [(hidden_latency, [5e-6]), (binary_gigabytes, [1000, 1024])])
def test_magic_numbers_are_caught(law, numbers):
    assert sorted(magic_numbers(law)) == numbers


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("[B/s]", "[GB/s]", "no known unit"),
        ("[B/tokens]", "", "no known unit"),
        ("latency : numeric", "delay : numeric", "documents"),
        ("zuo2025.", "zuo2024.", "unknown reference 'zuo2024'"),
        ("[1]_", "", "listed or cited, not both"),
        ("Valid always.", "Always.", "validity"),
        ("Examples\n    -", "Example\n    -", "no section Examples"),
        (".. math::", "::", "no formula"),
        ("Time. [s]", "Time in s.", "no known unit"),
    ],
)
def test_a_faulty_docstring_is_caught(old, new, fault):
    def law(tokens, token_bytes, *, bandwidth, latency):
        return good_time(tokens, token_bytes, bandwidth=bandwidth, latency=latency)

    assert old in good_time.__doc__
    law.__doc__ = good_time.__doc__.replace(old, new)
    assert any(fault in found for found in docstring_faults(law))


def test_units():
    assert factor("B/s") == 5 / 3
    assert factor("s/tokens") == 3 / 11
    assert factor("-") == 1
    assert factor("1/s") == pytest.approx(1 / 3)
    for unknown in ("", "GB", "B/ms", "flop"):
        with pytest.raises(KeyError):
            factor(unknown)
