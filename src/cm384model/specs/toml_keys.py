"""Where each key of a TOML text stands, which tomllib does not tell."""

from __future__ import annotations

import re
import tomllib
from typing import NamedTuple

Loc = tuple[str | int, ...]


class Place(NamedTuple):
    """Where a key stands, counted from 1, and how long it is."""

    line: int
    column: int
    length: int


_TOKEN = re.compile(
    r"(?P<skip>[ \t\r]+|#[^\n]*)"
    r'|(?P<text>"""(?:\\.|[^\\])*?"""(?!")|\'\'\'.*?\'\'\'(?!\')|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\')'
    r"|(?P<bare>[A-Za-z0-9_-]+)"
    r"|(?P<mark>.)",
    re.DOTALL,
)


def key_places(text: str) -> dict[Loc, Place]:
    """Place of every key, table header and array element of a valid TOML text, by location."""
    return _Scanner(text).document()


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = [match for match in _TOKEN.finditer(text) if match.lastgroup != "skip"]
        self.index = 0
        self.places: dict[Loc, Place] = {}
        self.last: dict[Loc, int] = {}  # index of the newest table of each array of tables

    def peek(self) -> str:
        return self.tokens[self.index][0] if self.index < len(self.tokens) else ""

    def take(self, *marks: str) -> bool:
        found = self.peek() in marks
        self.index += found
        return found

    def place(self, first: int, last: int) -> Place:
        start, end = self.tokens[first].start(), self.tokens[last].end()
        line = self.text.count("\n", 0, start) + 1
        return Place(line, start - self.text.rfind("\n", 0, start), end - start)

    def key(self) -> tuple[list[str], Place]:
        first, names = self.index, []
        while True:
            token = self.peek()
            names.append(tomllib.loads(f"k={token}")["k"] if token[0] in "\"'" else token)
            self.index += 1
            if not self.take("."):
                return names, self.place(first, self.index - 1)

    def resolve(self, names: list[str]) -> Loc:
        loc: Loc = ()
        for name in names:
            loc = (*loc, name)
            if loc in self.last:
                loc = (*loc, self.last[loc])
        return loc

    def document(self) -> dict[Loc, Place]:
        table: Loc = ()
        while self.index < len(self.tokens):
            if self.take("\n"):
                continue
            if self.take("["):
                table = self.header(is_array=self.take("["))
            else:
                self.pair(table)
        return self.places

    def header(self, is_array: bool) -> Loc:
        names, place = self.key()
        while self.take("]"):
            pass
        for end in range(1, len(names)):
            self.places.setdefault(self.resolve(names[:end]), place)
        if is_array:
            array = (*self.resolve(names[:-1]), names[-1])
            self.last[array] = self.last.get(array, -1) + 1
            self.places.setdefault(array, place)
        table = self.resolve(names)
        self.places[table] = place
        return table

    def pair(self, prefix: Loc) -> None:
        names, place = self.key()
        for name in names:
            prefix = (*prefix, name)
            self.places.setdefault(prefix, place)
        self.take("=")
        self.value(prefix)

    def value(self, loc: Loc) -> None:
        if self.take("{"):
            while not self.take("}"):
                if not self.take(",", "\n"):
                    self.pair(loc)
        elif self.take("["):
            count = 0
            while not self.take("]"):
                if not self.take(",", "\n"):
                    self.places[(*loc, count)] = self.place(self.index, self.index)
                    self.value((*loc, count))
                    count += 1
        else:
            while self.peek() not in (",", "}", "]", "\n", ""):
                self.index += 1
