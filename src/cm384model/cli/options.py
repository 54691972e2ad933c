"""Arguments and options that several commands share, their checks and their completion."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from cm384model.report.report import FORMATS
from cm384model.specs.catalogue import SpecKind, names
from cm384model.specs.diagnostics import SpecError, with_suggestion
from cm384model.specs.units import parse_value

PHASES = ("decode", "prefill")
SERVED = (*PHASES, "colocated")


def one_of(name: str, choices: tuple[str, ...]) -> Callable[[str | None], str | None]:
    """A check that a value is one of a few words."""

    def check(value: str | None) -> str | None:
        if value is not None and value not in choices:
            message = with_suggestion(f"{name} = '{value}' is not known", value, choices)
            raise SpecError.of(message, f"one of {', '.join(choices)}")
        return value

    return check


def whole(name: str) -> Callable[[str], int]:
    """A reader of whole numbers."""

    def read(text: str | int) -> int:
        try:
            return int(text)
        except ValueError:
            raise SpecError.of(f"{name} = '{text}' is not a whole number") from None

    return read


def share(name: str) -> Callable[[str], float]:
    """A reader of shares, as a number or in per cent."""

    def read(text: str | float) -> float:
        try:
            return parse_value(str(text), "number")
        except SpecError as error:
            raise SpecError.of(f"{name}: {error.problems[0].message}", "a share such as 0.5 or 50%") from None

    return read


def complete(kind: SpecKind) -> Callable[[str], list[str]]:
    """Names of the data files of a kind that begin as typed; reads file names only."""
    return lambda incomplete: [name for name in names(kind) if name.startswith(incomplete)]


def complete_words(words: tuple[str, ...]) -> Callable[[str], list[str]]:
    """The words that begin as typed."""
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


Workload = Annotated[
    str,
    typer.Argument(
        metavar="WORKLOAD",
        help="Name of a workload (cm384 list workloads) or a TOML file.",
        autocompletion=complete("workload"),
        show_default=False,
    ),
]


def of_file(name: str, kind: SpecKind, text: str) -> Any:
    """An option that takes a data file of a kind, by name or path."""
    return typer.Option(
        name, metavar="NAME|FILE", help=text, autocompletion=complete(kind), show_default=False
    )


ModelOption = Annotated[str | None, of_file("--model", "model", "Model; by default the workload's.")]
HardwareOption = Annotated[
    str | None,
    of_file("--hardware", "hardware", "Machine; by default the workload's, else cloudmatrix384."),
]
EngineOption = Annotated[
    str | None,
    of_file("--engine", "engine", "Serving engine; by default the workload's, else cloudmatrix-infer."),
]
SettingsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="Change any number, e.g. die.hbm_bandwidth=1.8TB/s. Repeatable.",
        show_default=False,
    ),
]
AtOption = Annotated[
    list[str] | None,
    typer.Option(
        "--at",
        metavar="NAME=VALUE,...",
        help="The deployment, e.g. ep=320,batch_per_die=48. Repeatable.",
        show_default=False,
    ),
]
PhaseOption = Annotated[
    str,
    typer.Option(
        "--phase",
        metavar="|".join(PHASES),
        help="Which half of serving.",
        callback=one_of("--phase", PHASES),
        autocompletion=complete_words(PHASES),
    ),
]
ServedOption = Annotated[
    str,
    typer.Option(
        "--phase",
        metavar="|".join(SERVED),
        help="Which half of serving, or both on the same dies.",
        callback=one_of("--phase", SERVED),
        autocompletion=complete_words(SERVED),
    ),
]
FormatOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="|".join(FORMATS),
        help="Output format; by default table, or by the suffix of -o.",
        callback=one_of("--format", FORMATS),
        autocompletion=complete_words(FORMATS),
        show_default=False,
    ),
]
OutputOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write to a file.", show_default=False),
]


def case_words(
    workload: str,
    *,
    model: str | None,
    hardware: str | None,
    engine: str | None,
    settings: list[str] | None,
) -> str:
    """What chooses a case, as it would be typed again."""
    words = [workload]
    for option, value in (("--model", model), ("--hardware", hardware), ("--engine", engine)):
        words += [option, value] if value else []
    words += [word for setting in settings or () for word in ("--set", setting)]
    return shlex.join(words)
