"""What is wrong with an input, said in the anatomy of ruff: where, which line, what instead."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One thing wrong with an input; a problem of the command line has no file."""

    message: str
    file: str | None = None
    line: int = 1
    column: int = 1
    length: int = 1
    source_line: str = ""
    hint: str | None = None

    def render(self) -> str:
        """Text of the problem: message, place, source line with caret, hint."""
        lines = [f"error: {self.message}"]
        if self.file is not None:
            width = max(2, len(str(self.line)))
            shown = self.source_line.replace("\t", " ").rstrip()
            lines += [
                f"{'-->':>{width + 2}} {self.file}:{self.line}:{self.column}",
                f"{'|':>{width + 1}}",
                f"{self.line:>{width}}| {shown}".rstrip(),
                f"{'|':>{width + 1}} {' ' * (self.column - 1)}{'^' * max(1, self.length)}",
            ]
        if self.hint:
            lines += ["", f"hint: {self.hint}"]
        return "\n".join(lines)


class SpecError(Exception):
    """Bad input, with every problem found in it."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(problems)
        self.problems = sorted(
            problems, key=lambda problem: (problem.file or "", problem.line, problem.column)
        )

    @classmethod
    def of(cls, message: str, hint: str | None = None) -> SpecError:
        """The error of one problem that has no place in a file."""
        return cls([Problem(message, hint=hint)])

    def render(self) -> str:
        """Text of all problems, an empty line between two."""
        return "\n\n".join(problem.render() for problem in self.problems)

    def __str__(self) -> str:
        return self.render()


def did_you_mean(word: str, choices: Iterable[str]) -> str | None:
    """The choice closest to a misspelled word, if any is close; case does not count.

    >>> did_you_mean("hbm_bandwith", ["hbm_capacity", "hbm_bandwidth"])
    'hbm_bandwidth'
    """
    by_folded = {choice.casefold(): choice for choice in choices}
    found = difflib.get_close_matches(word.casefold(), by_folded, n=1, cutoff=0.6)
    return by_folded[found[0]] if found else None


def with_suggestion(message: str, word: str, choices: Iterable[str]) -> str:
    """The message, followed by the nearest choice as a question if there is one."""
    nearest = did_you_mean(word, choices)
    return f"{message}. Did you mean '{nearest}'?" if nearest else message
