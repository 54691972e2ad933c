"""A page of Markdown for every law, from its docstring, and an index by module."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cm384model.laws
from cm384model.lawdoc import LawDoc, Operand, read_lawdoc
from cm384model.numeric import LAWS

ROOT = Path(__file__).resolve().parents[1]
BIBLIOGRAPHY = tomllib.loads((ROOT / "src/cm384model/laws/bibliography.toml").read_text(encoding="utf-8"))
WRITTEN_BY = "<!-- Written by docs/generate.py from the docstring; change that and run `make docs`. -->\n"

_SECTION = re.compile(r"^(\w+)\n-{3,}\n", re.MULTILINE)
_FOOTNOTE = re.compile(r"^\.\. \[(\d+)\] (.*(?:\n    .*)*)", re.MULTILINE)
_FORMULA = re.compile(r"^\.\. math::\n((?:    .*\n?|\n)+)", re.MULTILINE)


def law_pages() -> dict[str, str]:
    """Text of every page by its path under ``docs/``."""
    modules = sorted(info.name for info in pkgutil.iter_modules(cm384model.laws.__path__))
    for name in modules:
        importlib.import_module(f"cm384model.laws.{name}")
    docs = {name: read_lawdoc(law) for name, law in LAWS.items()}
    pages = {f"laws/{name}.md": _page(LAWS[name], doc) for name, doc in docs.items()}
    pages["laws/README.md"] = _index(modules, docs)
    return pages


def _index(modules: list[str], docs: dict[str, LawDoc]) -> str:
    lines = [WRITTEN_BY, "# Laws\n", f"{len(docs)} closed forms, a page each. One function is one formula;"]
    lines.append(
        "operands are floats or numpy arrays that broadcast. `cm384 list laws` prints the same list.\n"
    )
    for module in modules:
        own = [doc for doc in docs.values() if doc.module == module]
        if not own:
            continue
        text = inspect.getdoc(importlib.import_module(f"cm384model.laws.{module}")) or ""
        lines += [
            f"## {module}\n",
            text.partition("\n")[0] + "\n",
            "| law | result | what it gives |",
            "|---|---|---|",
        ]
        lines += [f"| [`{doc.name}`]({doc.name}.md) | {doc.result.unit} | {doc.summary} |" for doc in own]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _page(law: Callable[..., Any], doc: LawDoc) -> str:
    head, *rest = _SECTION.split(inspect.getdoc(law) or "")
    sections = dict(zip(rest[::2], rest[1::2], strict=True))
    description = head.partition("\n")[2].strip()
    parameters = inspect.signature(law).parameters.values()
    positional = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
    keywords = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    signature = ", ".join([*positional, *(["*", *keywords] if keywords else [])])
    call = f"{doc.name}({signature})"
    lines = [
        WRITTEN_BY,
        f"# `{doc.name}`\n",
        f"{doc.summary}.\n",
        f"`{call}` in [`laws/{doc.module}.py`](../../src/cm384model/laws/{doc.module}.py);",
        f"all laws: [index](README.md#{doc.module}).\n",
        markdown(description) + "\n",
        "| operand | symbol | unit | meaning |",
        "|---|---|---|---|",
        *(_row(operand) for operand in doc.operands),
        _row(doc.result, "result: "),
        "",
        "## Validity\n",
        markdown(sections.get("Notes", "").strip()) + "\n",
        "## Example\n",
        f"```python\n{sections.get('Examples', '').strip()}\n```\n",
        "## References\n",
        *_references(sections.get("References", ""), doc),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _row(operand: Operand, prefix: str = "") -> str:
    symbol = f"$`{operand.symbol}`$" if operand.symbol else ""
    return f"| {prefix}`{operand.name}` | {symbol} | {operand.unit} | {_code(operand.meaning)} |"


def _references(section: str, doc: LawDoc) -> list[str]:
    """The numbered footnotes, then the sources behind their keys."""
    notes = [f"- [{n}] {' '.join(text.split())}" for n, text in _FOOTNOTE.findall(section)]
    keys = dict.fromkeys(reference.key for reference in doc.references if reference.key in BIBLIOGRAPHY)
    sources = [f"- `{key}`: {BIBLIOGRAPHY[key]['title']}, {BIBLIOGRAPHY[key]['ref']}" for key in keys]
    return [*notes, "\nSources:\n", *sources] if sources else notes


def markdown(text: str) -> str:
    """A docstring's text as Markdown that GitHub renders, formulas fenced."""
    parts = _FORMULA.split(text)
    for i in range(0, len(parts), 2):
        prose = re.sub(r":math:`([^`]+)`", lambda m: f"$`{' '.join(m[1].split())}`$", parts[i])
        parts[i] = _code(re.sub(r"\[(\d+)\]_", r"[\1]", prose)).strip()
    for i in range(1, len(parts), 2):
        parts[i] = f"```math\n{inspect.cleandoc(parts[i])}\n```"
    return "\n\n".join(part for part in parts if part)


def _code(text: str) -> str:
    """Double backticks become single ones; the name of a law becomes a link to its page."""
    text = re.sub(r"``([^`]+)``", r"`\1`", text)
    return re.sub(r"(?<!\$)`(\w+)`(?!\$)", lambda m: f"[`{m[1]}`]({m[1]}.md)" if m[1] in LAWS else m[0], text)
