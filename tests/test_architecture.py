"""The house: what may import what, how long a module may be, words that are not used."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

import cm384model

ROOT = Path(cm384model.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))
EVERY_MODULE = pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))

BELOW = {
    "cli": {"api", "report", "sweeping", "evidence", "planning", "prediction", "laws", "specs"},
    "report": {"api", "sweeping", "evidence", "planning", "prediction", "laws", "specs"},
    "sweeping": {"api", "planning", "prediction", "specs"},
    "api": {"evidence", "planning", "prediction", "specs"},
    "evidence": {"planning", "prediction", "laws", "specs"},
    "planning": {"prediction", "laws", "specs"},
    "prediction": {"laws", "specs"},
    "specs": set(),
    "laws": set(),
}
"""Rooms, and the rooms they may import from; their own is always open, but not to laws."""
GROUND = {"numeric", "recording", "lawdoc"}
"""Modules without a room; they stand below all rooms."""
HOMES = {
    "pydantic": {"specs"},
    "pydantic_core": {"specs"},
    "rich": {"report", "cli"},
    "typer": {"cli"},
    "polars": {"sweeping"},
    "dask": {"sweeping"},
    "distributed": {"sweeping"},
}
"""Libraries, and the rooms that use them."""
MAX_LINES = 400


def room(path: Path) -> str:
    """The package or top-level module a file belongs to."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(tree: ast.AST, *, package: str = "cm384model") -> list[str]:
    """Dotted names that a tree imports, relative ones spelled out, type checking left out."""
    found: list[str] = []
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
        found += imports(node)
    return found


def module_level(tree: ast.Module) -> list[str]:
    """What is imported when the module is."""
    shallow = ast.parse("")
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            shallow.body.append(node)
    return imports(shallow)


def faults(path: Path, tree: ast.Module) -> list[str]:
    """Imports of a module that the house forbids."""
    here, found = room(path), []
    for name in imports(tree):
        top, *rest = name.split(".")
        if top == "cm384model":
            there = rest[0] if rest else ""
            if here in GROUND:
                allowed = there in GROUND
            elif here == "laws":
                allowed = there == "numeric"
            elif here in BELOW:
                allowed = there in BELOW[here] | GROUND | {here, "__version__"}
            else:
                allowed = True
            if not allowed:
                found.append(name)
        elif (here == "laws" and top not in {"numpy", "__future__"}) or here not in HOMES.get(top, {here}):
            found.append(name)
    eager = {name.split(".")[0] for name in module_level(tree)}
    found += [f"{name} at module level" for name in eager & {"scipy", "dask", "distributed"}]
    found += [f"{name} at module level" for name in eager & {"numpy"} if here in {"specs", "recording"}]
    return found


def code_lines(source: str) -> int:
    """Lines with code: no blank lines, no comments, no docstrings."""
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            docstrings |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    silent = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in silent and token.type != tokenize.ENDMARKER:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - docstrings)


def banned_words(source: str) -> list[str]:
    """Words that the naming rules forbid for an NPU and for counts, with their lines.

    A GPU is something that is not this machine: the word may stand beside its maker or its parts.
    """
    found = []
    for number, line in enumerate(source.splitlines(), start=1):
        if re.search(r"\b((?<!VPC )(?<!Qingtian )cards?|flops|tflops|910c gpus?)\b", line, re.IGNORECASE):
            found.append(f"{number}: {line.strip()}")
    for sentence in re.split(r"(?<=[.:;)])\s+(?=[A-Z])|\n\s*\n", source):
        foreign = re.search(r"NVLink|NVIDIA|H800|H100|CUDA|RDMA|nodes \(", sentence)
        if re.search(r"(?<![a-z_])gpus?(?![a-z_])", sentence, re.IGNORECASE) and not foreign:
            found.append(sentence.strip())
    return found


@EVERY_MODULE
def test_imports_go_down(path):
    assert faults(path, ast.parse(path.read_text("utf-8"))) == []


@EVERY_MODULE
def test_a_module_is_short(path):
    assert code_lines(path.read_text("utf-8")) <= MAX_LINES


@EVERY_MODULE
def test_no_banned_words(path):
    assert banned_words(path.read_text("utf-8")) == []


def test_every_room_is_known():
    rooms = {room(path) for path in MODULES} - {"__init__", "__main__"}
    assert rooms <= set(BELOW) | GROUND


# --- the checks bite ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("laws/gemm.py", "from cm384model.laws.roofline import roofline_time"),
        ("laws/gemm.py", "import math"),
        ("laws/gemm.py", "from cm384model import recording"),
        ("laws/gemm.py", "def f():\n    from cm384model.specs.model import Model"),
        ("specs/model.py", "import numpy as np"),
        ("specs/model.py", "from cm384model.prediction.case import Case"),
        ("prediction/moe.py", "from cm384model.planning.search import plan_case"),
        ("prediction/moe.py", "import pydantic"),
        ("planning/search.py", "from cm384model.evidence.golden import check"),
        ("planning/search.py", "from rich.table import Table"),
        ("report/table.py", "import typer"),
        ("report/table.py", "def f():\n    import polars as pl"),
        ("sweeping/run.py", "import distributed"),
        ("sweeping/run.py", "from cm384model.report.glossary import GLOSSARY"),
        ("planning/search.py", "from cm384model.sweeping.study import Study"),
        ("report/table.py", "from cm384model.cli.main import main"),
        ("evidence/fit.py", "from scipy.optimize import least_squares"),
        ("numeric.py", "from cm384model.specs.units import UNITS"),
    ],
)
def test_a_forbidden_import_is_caught(file, line):
    assert faults(ROOT / file, ast.parse(line))


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("laws/gemm.py", "from cm384model.numeric import law"),
        ("specs/model.py", "def f():\n    import numpy"),
        ("evidence/fit.py", "def f():\n    from scipy.optimize import least_squares"),
        ("prediction/moe.py", "if TYPE_CHECKING:\n    from cm384model.planning.search import Slo"),
        ("cli/main.py", "import typer"),
    ],
)
def test_a_legal_import_passes(file, line):
    assert faults(ROOT / file, ast.parse(line)) == []


def test_lines_are_counted_without_words():
    words = '"""One."""\n\n# two\n"""Three\nfour."""\n\n\n'
    assert code_lines(words) == 0
    assert code_lines(words + 'X = 1\n\n\ndef f():\n    """Five."""\n    return (\n        1\n    )\n') == 5


@pytest.mark.parametrize("text", ["a card", "peak flops", "each GPU of the node", "910C GPUs"])
def test_a_banned_word_is_caught(text):
    assert banned_words(text)


@pytest.mark.parametrize(
    "text", ["H800 GPUs", "the VPC card of a node", "gpu_memory_utilization", "flop and FLOP/s", "discards"]
)
def test_a_legal_word_passes(text):
    assert banned_words(text) == []
