"""Reports on a terminal: rules and colour, as far as the terminal has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from cm384model.report.blocks import WIDTH, Block, Command, Table, shortened, wrapped

if TYPE_CHECKING:
    from rich.table import Table as RichTable


def show(blocks: Sequence[Block]) -> None:
    """Print the blocks on the terminal; `NO_COLOR` and dumb terminals are respected by rich."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    width = min(console.width, WIDTH)
    for number, block in enumerate(blocks):
        if number:
            console.print()
        if isinstance(block, Command):
            console.print(Text(f"  {block.text}", style="cyan"), soft_wrap=True)
        elif isinstance(block, Table):
            for i, part in enumerate(block.split(width)):
                if i:
                    console.print()
                console.print(_rich(part, width), width=width)
        else:
            console.print(Text(wrapped(block, width), style="bold" if number == 0 else ""))


def _rich(block: Table, width: int) -> RichTable:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    table = RichTable(
        box=box.SIMPLE_HEAD,
        header_style="bold",
        show_edge=False,
        show_header=bool(block.header_lines),
        pad_edge=False,
        collapse_padding=True,
    )
    for name, side in zip(block.header, block.align, strict=True):
        justify: Literal["left", "right"] = "right" if side == "r" else "left"
        table.add_column(Text(name), justify=justify, no_wrap=True, vertical="bottom")
    room = width - block.width + block.widths[-1]
    for *cells, last in block.rows:
        table.add_row(*map(Text, cells), Text(shortened(last, room)))
    return table
