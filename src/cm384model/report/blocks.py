"""Lines and tables: what every report is made of, and how they become text."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH = 120
"""No line of a report is wider, but a command to paste. [characters]"""

CUT = 24
"""The last column of a table may be cut down to this where the table is too wide. [characters]"""


@dataclass(frozen=True)
class Table:
    """A table of ready text.

    Attributes
    ----------
    header : tuple of str
        Names of the columns; a newline puts the unit below.
    rows : sequence of tuple of str
    align : str
        ``l`` or ``r`` for each column.
    """

    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    align: str

    @property
    def header_lines(self) -> list[tuple[str, ...]]:
        """The header, a line at a time; none if no column has a name."""
        if not any(self.header):
            return []
        split = [name.split("\n") for name in self.header]
        height = max(map(len, split))
        padded = [[*parts, *[""] * (height - len(parts))] for parts in split]
        return list(zip(*padded, strict=True))

    @property
    def widths(self) -> list[int]:
        """Widths of the columns."""
        lines = [*self.header_lines, *self.rows]
        return [max((len(line[i]) for line in lines), default=0) for i in range(len(self.header))]

    @property
    def width(self) -> int:
        """Width of the whole table."""
        return sum(self.widths) + 2 * (len(self.header) - 1)

    def split(self, width: int) -> list[Table]:
        """Tables of some of the columns that are not wider, each with the columns that name a row."""
        widths, keys = self.widths, 1 if self.header[0] else 2
        if self.align.endswith("l"):
            widths[-1] = min(widths[-1], CUT)
        room = width - sum(widths[:keys]) - 2 * (keys - 1)
        groups: list[list[int]] = [[]]
        for i in range(keys, len(widths)):
            if groups[-1] and sum(widths[j] + 2 for j in [*groups[-1], i]) > room:
                groups.append([])
            groups[-1].append(i)
        return [self._columns([*range(keys), *group]) for group in groups]

    def _columns(self, chosen: Sequence[int]) -> Table:
        header = tuple(self.header[i] for i in chosen)
        rows = [tuple(row[i] for i in chosen) for row in self.rows]
        return Table(header, rows, "".join(self.align[i] for i in chosen))


@dataclass(frozen=True)
class Command:
    """A command to paste, never wrapped."""

    text: str


Block = str | Table | Command


def plain(blocks: Sequence[Block]) -> str:
    """Text without boxes and colour, an empty line between two blocks."""
    return "\n\n".join(_plain_block(block) for block in blocks) + "\n"


def markdown(blocks: Sequence[Block]) -> str:
    """The same as Markdown."""
    return "\n\n".join(_markdown_block(block) for block in blocks) + "\n"


def wrapped(text: str, width: int = WIDTH) -> str:
    """Lines of a paragraph; its own line ends and indents are kept."""
    lines = []
    for line in text.split("\n"):
        indent = " " * (len(line) - len(line.lstrip()))
        kept = textwrap.wrap(
            line,
            width,
            subsequent_indent=indent + "  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        lines += kept or [""]
    return "\n".join(lines)


def shortened(text: str, width: int) -> str:
    """The text, cut with dots where it is too wide.

    >>> shortened("zuo2025v2 Table 7", 12)
    'zuo2025v2...'
    """
    return text if len(text) <= width else text[: max(0, width - 3)].rstrip() + "..."


def _plain_block(block: Block) -> str:
    if isinstance(block, Command):
        return f"  {block.text}"
    if isinstance(block, str):
        return wrapped(block)
    lines = [*block.header_lines, *block.rows]
    widths = block.widths
    widths[-1] = min(widths[-1], max(8, WIDTH - sum(widths[:-1]) - 2 * len(widths[:-1])))
    widths[0] -= max(0, sum(widths) + 2 * len(widths[:-1]) - WIDTH)
    folded = [part for line in lines for part in _folded(line, widths[0])]
    if any(len(cells[0]) > widths[0] for cells in folded):
        if len(parts := block.split(WIDTH)) > 1:
            return "\n\n".join(map(_plain_block, parts))
        folded, widths[0] = [*lines], block.widths[0]
    return "\n".join(_line(part, widths, block.align) for part in folded)


def _folded(cells: Sequence[str], width: int) -> list[Sequence[str]]:
    """A line whose first cell goes on below where it is wider than that, cut after an underscore."""
    name = cells[0]
    cut = name.rfind("_", 0, width) + 1
    if len(name) <= width or not cut:
        return [cells]
    return [(name[:cut], *cells[1:]), (f"  {name[cut:]}", *("" for _ in cells[1:]))]


def _line(cells: Sequence[str], widths: Sequence[int], align: str) -> str:
    cells = [*cells[:-1], shortened(cells[-1], widths[-1])]
    padded = [
        cell.rjust(width) if side == "r" else cell.ljust(width)
        for cell, width, side in zip(cells, widths, align, strict=True)
    ]
    return "  ".join(padded).rstrip()


def _markdown_block(block: Block) -> str:
    if isinstance(block, Command):
        return f"```sh\n{block.text}\n```"
    if isinstance(block, str):
        return block.replace("\n", "  \n")
    rows = [
        [name.replace("-\n", "").replace("\n/", "/").replace("\n", " ") for name in block.header],
        ["---:" if side == "r" else "---" for side in block.align],
        *([cell.replace("|", "\\|") for cell in row] for row in block.rows),
    ]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)
