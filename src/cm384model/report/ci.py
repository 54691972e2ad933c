"""Outcomes for machines that build: annotations of GitHub, and JUnit's XML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from cm384model.report.report import FORMATS, SUFFIXES, Report

CI_FORMATS = (*FORMATS, "github", "junit")
CI_SUFFIXES = SUFFIXES | {".xml": "junit"}


@dataclass(frozen=True)
class Outcome:
    """One thing that was checked.

    Attributes
    ----------
    name : str
    summary : str
        What was found, in one line.
    details : sequence of str
        Lines that say more, where it failed.
    failed : bool
    file, line : str and int
        Where an annotation belongs; an empty file is nowhere.
    """

    name: str
    summary: str
    details: Sequence[str] = ()
    failed: bool = False
    file: str = ""
    line: int = 1


@dataclass(frozen=True)
class CiReport(Report):
    """A report that also renders as ``github`` and ``junit``."""

    suite: str = "cm384 check"
    outcomes: Sequence[Outcome] = ()

    def render(self, form: str) -> str:
        """The text of one of `CI_FORMATS`."""
        if form == "github":
            return github(self.suite, self.outcomes)
        if form == "junit":
            return junit(self.suite, self.outcomes)
        return super().render(form)


def github(suite: str, outcomes: Sequence[Outcome]) -> str:
    """Workflow commands: an error for everything that failed, one notice where nothing did."""
    failed = [outcome for outcome in outcomes if outcome.failed]
    if not failed:
        return f"::notice title={_property(suite)}::{len(outcomes)} checked, nothing changed\n"
    lines = []
    for outcome in failed:
        place = f"file={_property(_from_here(outcome.file))},line={outcome.line}," if outcome.file else ""
        message = "\n".join([outcome.summary, *outcome.details])
        lines.append(f"::error {place}title={_property(f'{suite}: {outcome.name}')}::{_escaped(message)}\n")
    return "".join(lines)


def junit(suite: str, outcomes: Sequence[Outcome]) -> str:
    """A test suite with a test case for every outcome."""
    failures = str(sum(outcome.failed for outcome in outcomes))
    counts = {"name": suite, "tests": str(len(outcomes)), "failures": failures, "errors": "0"}
    root = ElementTree.Element("testsuites", counts)
    parent = ElementTree.SubElement(root, "testsuite", counts)
    for outcome in outcomes:
        case = ElementTree.SubElement(parent, "testcase", {"classname": suite, "name": outcome.name})
        if outcome.failed:
            failure = ElementTree.SubElement(case, "failure", {"message": outcome.summary})
            failure.text = "\n".join(outcome.details)
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def _from_here(file: str) -> str:
    """A file as GitHub wants it, from the top of the checkout, which is the current folder."""
    path = Path(file).resolve()
    return path.relative_to(Path.cwd()).as_posix() if path.is_relative_to(Path.cwd()) else file


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")
