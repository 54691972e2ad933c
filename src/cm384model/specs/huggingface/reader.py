"""The keys of a configuration, and what became of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cm384model.specs.diagnostics import Problem


@dataclass(frozen=True)
class Number:
    """A number of the model file: its value and where it was read or why it is that."""

    value: int
    source: str


@dataclass
class Reader:
    """Reads keys, remembers which were used, and collects what is wrong instead of stopping.

    Attributes
    ----------
    config : mapping
    used : dict of str to str
        Keys that were read, with what they became.
    settled : dict of str to str
        Keys that were looked at and have no effect, with the reason.
    numbers : dict of str to Number
        Shapes of the model file.
    problems : list of Problem
    """

    config: Mapping[str, Any]
    used: dict[str, str] = field(default_factory=dict)
    settled: dict[str, str] = field(default_factory=dict)
    numbers: dict[str, Number] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def fail(self, message: str, hint: str | None = None) -> None:
        """Note a problem."""
        self.problems.append(Problem(message, hint=hint))

    def refuse(self, reason: str) -> None:
        """Note that the model cannot be modelled."""
        self.fail(f"not modelled: {reason}", "docs/import-model.md lists what is")

    def has(self, key: str) -> bool:
        """Whether a key is there and not null."""
        return self.config.get(key) is not None

    def take(self, key: str, path: str) -> Any:
        """The value of a key, marked as used for ``path``; None if it is not there."""
        if key in self.config:
            self.used[key] = path
        return self.config.get(key)

    def settle(self, key: str, reason: str) -> Any:
        """The value of a key that has no effect, with the reason; None if it is not there."""
        if key in self.config and key not in self.used:
            self.settled[key] = reason
        return self.config.get(key)

    def found(self, *keys: str) -> str | None:
        """The first of several spellings of a key that is there."""
        return next((key for key in keys if self.has(key)), None)

    def number(self, name: str, *keys: str, least: int = 1) -> int | None:
        """The whole number under the first of ``keys`` that is there; missing is a problem."""
        key = self.found(*keys)
        if key is None:
            others = f" (or {', '.join(keys[1:])})" if len(keys) > 1 else ""
            self.fail(f"missing key '{keys[0]}'{others}: the model file needs it as architecture.{name}")
            return None
        return self.whole(name, key, least=least)

    def whole(self, name: str, key: str, *, least: int = 1) -> int | None:
        """The whole number under a key; a list must have one value for all layers."""
        value = self.take(key, f"architecture.{name}")
        if isinstance(value, list) and value and all(entry == value[0] for entry in value):
            value = value[0]
        if isinstance(value, list):
            self.refuse(f"{key} differs from layer to layer")
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            self.fail(f"{key}: needs a whole number of at least {least}, not {value!r}")
            return None
        self.numbers[name] = Number(value, f"config {key}")
        return value

    def derive(self, name: str, value: int, reason: str) -> None:
        """A number that follows from others or from what is not there."""
        self.numbers[name] = Number(value, f"derived: {reason}")

    def optional(self, name: str, *keys: str, least: int = 0) -> int:
        """As `number`, but 0 where no key is there."""
        if self.found(*keys):
            return self.number(name, *keys, least=least) or 0
        for key in keys:
            self.settle(key, "null")
        self.derive(name, 0, f"no {keys[0]}")
        return 0
