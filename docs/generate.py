"""Write the generated parts of the documentation again, or check that they are current.

``docs/generate.py`` writes; ``docs/generate.py --check`` writes nothing, names every stale page and
then exits with status 1; ``--without-examples`` leaves the outputs of examples alone. Generated are:
the pages under ``docs/laws/``; what stands between ``<!-- generated: NAME -->`` and ``<!-- end -->``
in hand-written pages; and the output of every ``cm384`` example, as far as the page shows it.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import accuracy
import catalogue
import shell_examples
import tables
from law_pages import law_pages

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"

PARTS: dict[str, Callable[[], str]] = {
    **accuracy.PARTS,
    **catalogue.PARTS,
    "columns": tables.columns,
    "fitted_constants": tables.fitted_constants,
    "fitted_summary": tables.fitted_summary,
}
_PART = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def main() -> int:
    """Write or check; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 if a page is stale")
    parser.add_argument("--without-examples", action="store_true", help="run no example")
    asked = parser.parse_args()
    check, texts = asked.check, wanted(examples=not asked.without_examples)
    stale = [path for path, text in texts.items() if not path.is_file() or read(path) != text]
    orphans = sorted(set(DOCS.glob("laws/*.md")) - set(texts))
    if check:
        for path in [*stale, *orphans]:
            print(f"stale: {path.relative_to(ROOT)}", file=sys.stderr)
        if stale or orphans:
            print("\nhint: run `make docs` and read the difference", file=sys.stderr)
        return 1 if stale or orphans else 0
    for path in stale:
        path.parent.mkdir(exist_ok=True)
        path.write_text(texts[path], encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
    for path in orphans:
        path.unlink()
        print(f"removed {path.relative_to(ROOT)}")
    return 0


def wanted(*, examples: bool = True) -> dict[Path, str]:
    """What every page of the documentation should say, with the outputs of its examples or those it has."""
    texts = {DOCS / name: text for name, text in law_pages().items()}
    for path in shell_examples.pages():
        if path not in texts and path.parent.name != "laws":
            filled = _PART.sub(lambda match: f"{match[1]}{PARTS[match[2]]()}\n{match[3]}", read(path))
            texts[path] = with_outputs(filled) if examples else filled
    return texts


def with_outputs(text: str) -> str:
    """A page with the output of its examples; one that still holds is left as it is."""
    for block in reversed(list(shell_examples.blocks(text))):
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            shell_examples.prepare(Path(folder))
            printed = "".join(shown(step) for step in block.steps)
        text = text[: block.start] + printed + text[block.end :]
    return text


def shown(step: shell_examples.Step) -> str:
    """A command and its output as the page should show them; a cut output stays cut where it was."""
    status, printed = shell_examples.run(step.command)
    output = step.output
    if not shell_examples.same(output, printed):
        output = shell_examples.tidy(printed)
        head, cut, rest = step.output.partition("...\n")
        if cut and "...\n" not in rest:
            lines, first, last = output.splitlines(keepends=True), head.count("\n"), rest.count("\n")
            while first < len(lines) and re.match(r"  \S", lines[first]):  # not inside a sentence
                first += 1
            output = "".join([*lines[:first], cut, *lines[len(lines) - last :]])
    return f"$ {step.command}\n{output}" + (f"$ echo $?\n{status}\n" if status else "")


def read(path: Path) -> str:
    """Text of a page."""
    return path.read_text(encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
