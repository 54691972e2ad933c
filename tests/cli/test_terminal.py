from __future__ import annotations

import os
import subprocess
import sys

import pytest

pty = pytest.importorskip("pty")


def on_a_terminal(columns: int, **environment: str) -> str:
    """What ``cm384 list units`` shows on a terminal."""
    ours, theirs = pty.openpty()
    code = "from cm384model.cli.main import main; import sys; sys.exit(main(sys.argv[1:]))"
    child = subprocess.Popen(
        [sys.executable, "-c", code, "list", "operators"],
        stdout=theirs,
        env={**os.environ, "COLUMNS": str(columns), "TERM": "xterm-256color", **environment},
    )
    os.close(theirs)
    chunks = []
    while True:
        try:
            chunk = os.read(ours, 65536)
        except OSError:
            break
        if not chunk:
            break
        chunks.append(chunk)
    assert child.wait() == 0
    os.close(ours)
    return b"".join(chunks).decode().replace("\r\n", "\n")


@pytest.mark.parametrize("columns", [80, 120])
def test_a_terminal_gets_rules_and_nothing_wider_than_itself(columns):
    out = on_a_terminal(columns, NO_COLOR="1")
    assert "─" in out
    plain = out.replace("\x1b[1m", "").replace("\x1b[0m", "")
    assert "\x1b" not in plain
    assert max(map(len, plain.splitlines())) <= columns
