"""A result in every format: blocks for people, records for csv, data for json."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cm384model.report.blocks import Block, markdown, plain

FORMATS = ("table", "json", "csv", "markdown")
SUFFIXES = {".txt": "table", ".json": "json", ".csv": "csv", ".md": "markdown"}
"""Format by the suffix of an output file."""


@dataclass(frozen=True)
class Report:
    """A result, ready for every format.

    Attributes
    ----------
    blocks : sequence of Block
        Lines and tables for people.
    records : sequence of mapping
        Flat rows, all with the same keys.
    data : any
        What JSON shows: dataclasses, mappings, sequences, numbers, words.
    notes : sequence of str
        What a reader must know before the figures; in JSON they are part of ``data``.
    """

    blocks: Sequence[Block]
    records: Sequence[Mapping[str, Any]]
    data: Any
    notes: Sequence[str] = ()

    @property
    def page(self) -> list[Block]:
        """The blocks with the notes below the heading."""
        noted = "\n".join(f"note: {note}" for note in self.notes)
        return [*self.blocks[:1], *([noted] if noted else []), *self.blocks[1:]]

    def render(self, form: str) -> str:
        """The text of one of `FORMATS`, ending in a newline."""
        if form == "json":
            return json.dumps(jsonable(self.data), indent=2, allow_nan=False, ensure_ascii=False) + "\n"
        if form == "csv":
            return _csv(self.records)
        return markdown(self.page) if form == "markdown" else plain(self.page)


def jsonable(value: Any) -> Any:
    """Dataclasses as objects, ``schema`` or ``rank`` first and without the fields that hold raw arrays."""
    if dataclasses.is_dataclass(value):
        names = [f.name for f in dataclasses.fields(value) if not f.name.startswith("raw_")]
        names.sort(key=lambda name: name not in ("schema", "phase", "rank"))
        return {name: jsonable(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(key): jsonable(entry) for key, entry in value.items()}
    if isinstance(value, tuple | list):
        return [jsonable(entry) for entry in value]
    return str(value) if isinstance(value, Path) else value


def flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Numbers and words of a dataclass or mapping with the names of what they stand in before them."""
    row: dict[str, Any] = {}
    for name, entry in jsonable(value).items():
        if isinstance(entry, dict):
            row |= flat(entry, f"{prefix}{name}_")
        elif not isinstance(entry, list):
            row[f"{prefix}{name}"] = entry
    return row


def _csv(records: Sequence[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    if records:
        writer = csv.DictWriter(text, fieldnames=list(records[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)
    return text.getvalue()
