"""The documentation says what the command line does, and the generated pages are current."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))

import shell_examples  # noqa: E402  (lives beside the pages it runs)

PAGES = shell_examples.pages()
BLOCKS = [(page, block) for page in PAGES for block in shell_examples.blocks(page.read_text("utf-8"))]
BLOCK_NAMES = [f"{page.relative_to(ROOT)}:{block.line}" for page, block in BLOCKS]


def commands() -> dict[str, Any]:
    """Every command of the command line by name."""
    from typer.main import get_command

    from cm384model.cli.main import app

    return dict(get_command(app).commands)  # type: ignore[attr-defined]


def options(command: Any) -> set[str]:
    return {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}


def mentions(text: str) -> list[list[str]]:
    """Words of every use of ``cm384 COMMAND`` in code, in a block or inline."""
    blocks = re.findall(r"^```\w*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in re.findall(r"^(?:\$ )?(cm384 .*)$", block, re.MULTILINE)]
    inline = re.findall(r"`(cm384 [^`\n]*)`", text)
    return [use.partition("#")[0].split() for use in (*lines, *inline)]


@pytest.mark.parametrize(("page", "block"), BLOCKS, ids=BLOCK_NAMES)
def test_examples_print_what_the_page_says(
    page: Path, block: shell_examples.Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shell_examples.prepare(tmp_path)
    for step in block.steps:
        status, printed = shell_examples.run(step.command)
        if status != step.status:
            pytest.fail(f"$ {step.command}\nends with status {status}\n{printed}", pytrace=False)
        if step.output and not shell_examples.same(step.output, printed):
            pytest.fail(f"$ {step.command}\nprints\n{printed}\nand not\n{step.output}", pytrace=False)


def test_there_are_examples() -> None:
    run = [step.command.split()[1] for _, block in BLOCKS for step in block.steps if "cm384 " in step.command]
    assert {"plan", "predict", "op", "explain", "list"} <= set(run)


def test_a_wrong_output_is_noticed() -> None:
    assert shell_examples.same("a\n...\nd\n", "a\nb\nc\nd\n")
    assert shell_examples.same("a\n...\n", "a\n")
    assert shell_examples.same("9 plans in 0.41 s (1.2 M/s), 3 fit\n", "9 plans in 1.5 s (9 k/s),\n  3 fit\n")
    assert not shell_examples.same("a\n...\nd\n", "a\nb\nc\n")
    assert not shell_examples.same("TPOT 41 ms\n", "TPOT 42 ms\n")


def test_every_command_is_documented() -> None:
    named = {words[1] for page in PAGES for words in mentions(page.read_text("utf-8")) if len(words) > 1}
    assert set(commands()) <= named


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_named_option_exists(page: Path) -> None:
    known = commands()
    anywhere = {"--version", "--help"}.union(*(options(command) for command in known.values()))
    text = page.read_text("utf-8")
    for words in mentions(text):
        name = words[1] if len(words) > 1 else "--help"
        if name.startswith("-"):
            continue
        assert name in known, f"{' '.join(words)}: there is no command '{name}'"
        given = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
        assert given <= options(known[name]) | {"--help"}, " ".join(words)
    for option in re.findall(r"`(--[a-z][a-z-]*)[^`]*`", text):
        assert option in anywhere, f"{page.name} names {option}"


def test_generated_parts_are_current() -> None:
    """The examples have a test each."""
    command = [sys.executable, str(ROOT / "docs" / "generate.py"), "--check", "--without-examples"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"


def test_python_example_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    found = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    assert found is not None
    exec(compile(found[1], "README.md", "exec"), {})
    assert capsys.readouterr().out


def test_nothing_local_is_named() -> None:
    for page in PAGES:
        text = page.read_text("utf-8")
        assert not re.search(r"/work/|/root/|/home/|\.\./shared|shared/facts", text), page
