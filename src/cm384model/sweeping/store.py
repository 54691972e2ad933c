"""Where a sweep is written: a folder of whole parts until all are there, then one file under its name.

``OUT.part/`` holds ``part-000000.csv`` and so on. A part is written under another name and
renamed, then noted in ``_done.jsonl``: whatever stops the process, a part that has its name is
whole. A sweep is continued by making the parts that are not noted.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import polars as pl

from cm384model.specs.diagnostics import SpecError
from cm384model.sweeping.parts import encode, layout, reduced
from cm384model.sweeping.study import Study

FORMATS = ("csv", "parquet", "jsonl")
_DONE, _STUDY = "_done.jsonl", "_study.json"


@dataclass(frozen=True)
class Part:
    """A part that is made: its number, rows kept, candidates, and the bytes of its file."""

    number: int
    rows: int
    candidates: int
    content: memoryview | bytes


class Store:
    """The output of one sweep and its folder of parts.

    Parameters
    ----------
    study : Study
    path : Path
        Name of the output.
    form : {"csv", "parquet", "jsonl"}
    dataset : bool
        Whether the output is the folder of parts itself and not one file.
    """

    def __init__(self, study: Study, path: Path, form: str, *, dataset: bool = False) -> None:
        self.study, self.path, self.form, self.dataset = study, path, form, dataset
        self.folder = path.with_name(f"{path.name}.part")
        self.part_form = "parquet" if study.keep.reduces else form
        self.parts = layout(study).parts
        self.done: dict[int, tuple[int, int]] = {}
        self.metadata: dict[str, str] = {}
        self._lock: Any = None

    @property
    def rows(self) -> int:
        """Rows of the parts that are whole."""
        return sum(rows for rows, _ in self.done.values())

    @property
    def candidates(self) -> int:
        """Candidates of the parts that are whole."""
        return sum(candidates for _, candidates in self.done.values())

    @property
    def missing(self) -> list[int]:
        """Parts that are not whole yet."""
        return [number for number in range(self.parts) if number not in self.done]

    def open(self, fingerprint: str, said: Mapping[str, Any], *, resume: bool, force: bool) -> None:
        """Make the folder of parts, or take up the one that is there.

        Raises
        ------
        SpecError
            If the output exists, another sweep or an unfinished one is there, or nothing can be written.
        """
        if self.path.exists() and not force:
            raise SpecError.of(f"'{self.path}' exists", "add --force to replace it, or choose another name")
        if self.path.is_dir() and not self.dataset:
            raise SpecError.of(f"'{self.path}' is a folder", "choose another name")
        self.metadata = {"cm384": json.dumps(said)}
        if self.folder.exists() and not resume:
            if not force:
                self._read_done()
                raise SpecError.of(
                    f"an unfinished sweep is in '{self.folder}': {self.state()}",
                    "--resume continues it, --force starts again",
                )
            self._acquire()
            shutil.rmtree(self.folder)
        try:
            if self.folder.exists():
                self._acquire()
                self._take_up(fingerprint)
            else:
                self.folder.mkdir()
                self._write(self.folder / _STUDY, json.dumps({"fingerprint": fingerprint, **said}).encode())
                self._acquire()
        except OSError as error:
            with suppress(OSError):
                if not any(self.folder.glob("part-*")):
                    shutil.rmtree(self.folder)
            raise SpecError.of(
                f"cannot write '{self.folder}': {error.strerror}", "nothing was written"
            ) from None

    def add(self, part: Part) -> None:
        """Write a part that is made.

        Raises
        ------
        OSError
            If it cannot be written; the parts before it stay whole.
        """
        self._write(self._file(part.number), part.content)
        line = json.dumps({"part": part.number, "rows": part.rows, "candidates": part.candidates}) + "\n"
        with (self.folder / _DONE).open("a", encoding="utf-8") as file:
            file.write(line)
        self.done[part.number] = (part.rows, part.candidates)

    def finish(self, said: Mapping[str, Any]) -> int:
        """Put the parts together under the name of the output, with its sidecar; returns the rows.

        Raises
        ------
        OSError, polars.exceptions.PolarsError
            If it cannot be written; the parts stay whole.
        """
        try:
            return self._finish(said)
        except BaseException:
            for leftover in self.folder.glob("_whole*"):
                leftover.unlink()
            raise

    def _finish(self, said: Mapping[str, Any]) -> int:
        rows, whole = self.rows, self.folder / "_whole"
        metadata = {"cm384": json.dumps(said)}
        files = [self._file(number) for number in range(self.parts)]
        if self.study.keep.reduces:
            frame = reduced(self.study, pl.concat([pl.read_parquet(file) for file in files]))
            rows = len(frame)
            content = encode(frame, self.form, metadata)
            if self.dataset:
                self._write(files[0], content)
                for file in files[1:]:
                    file.unlink()
            else:
                self._write(whole, content)
        elif self.dataset:
            pass
        elif self.form == "parquet":
            _join_parquet(files, whole, metadata)
        else:
            _join_text(files, whole, header=self.form == "csv")
        sidecar = {**said, "rows": rows}
        self._write(
            self.path.with_name(f"{self.path.name}.meta.json"), json.dumps(sidecar, indent=2).encode()
        )
        if self.dataset:
            if self.path.is_dir():
                shutil.rmtree(self.path)
            for name in (_DONE, _STUDY):
                (self.folder / name).unlink(missing_ok=True)
            self.folder.replace(self.path)
        else:
            whole.replace(self.path)
            shutil.rmtree(self.folder)
        return rows

    def close(self) -> None:
        """Let go of the folder."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def state(self) -> str:
        """How far the sweep is, in words."""
        return f"{len(self.done):,} of {self.parts:,} parts are whole, {self.rows:,} rows"

    def stopped(self, error: Exception) -> SpecError:
        """What to tell when writing failed."""
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        return SpecError.of(
            f"cannot write '{self.path}': {reason}",
            f"{self.state()} in '{self.folder}'; the same command with --resume continues",
        )

    def _file(self, number: int) -> Path:
        return self.folder / f"part-{number:06d}.{self.part_form}"

    def _take_up(self, fingerprint: str) -> None:
        try:
            there = json.loads((self.folder / _STUDY).read_text("utf-8"))["fingerprint"]
        except (OSError, ValueError, KeyError):
            there = None
        if there != fingerprint:
            raise SpecError.of(
                f"the sweep in '{self.folder}' is another one: grid, data, columns or code differ",
                "--force starts again",
            )
        self._read_done()
        for leftover in self.folder.glob("*.tmp"):
            leftover.unlink()

    def _read_done(self) -> None:
        """Read the note of parts that are whole; a line that was cut off does not count."""
        with suppress(FileNotFoundError):
            text = (self.folder / _DONE).read_text("utf-8")
            for line in text.splitlines():
                with suppress(ValueError):
                    entry = json.loads(line)
                    if self._file(entry["part"]).exists():
                        self.done[entry["part"]] = (entry["rows"], entry["candidates"])
            if text and not text.endswith("\n"):
                with suppress(OSError), (self.folder / _DONE).open("a", encoding="utf-8") as file:
                    file.write("\n")

    def _acquire(self) -> None:
        """Keep other processes out of the folder; the system lets go of it when this one ends."""
        self.close()
        self._lock = (self.folder / _STUDY).open("rb")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise SpecError.of(f"another process is writing to '{self.folder}'") from None

    def _write(self, path: Path, content: memoryview | bytes) -> None:
        """A file under another name, renamed when it is whole."""
        temporary = path.with_name(f"{path.name}.tmp")
        try:
            with temporary.open("wb", buffering=0) as file:
                _write_all(file, content)
            temporary.replace(path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise


def _write_all(file: Any, content: memoryview | bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[file.write(rest) :]


def _join_parquet(files: list[Path], whole: Path, metadata: dict[str, str]) -> None:
    if len(files) == 1:  # as it is; its own metadata says the same but for the number of rows
        os.link(files[0], whole.with_name("_whole.tmp"))
        whole.with_name("_whole.tmp").replace(whole)
        return
    temporary = whole.with_name("_whole.tmp")
    pl.scan_parquet(files).sink_parquet(temporary, metadata=metadata)
    temporary.replace(whole)


def _join_text(files: list[Path], whole: Path, *, header: bool) -> None:
    temporary = whole.with_name("_whole.tmp")
    with temporary.open("wb") as out:
        for number, file in enumerate(files):
            with file.open("rb") as part:
                if header and number:
                    part.readline()
                _copy(part, out)
    temporary.replace(whole)


def _copy(part: BinaryIO, out: BinaryIO) -> None:
    shutil.copyfileobj(part, out, 1 << 22)
