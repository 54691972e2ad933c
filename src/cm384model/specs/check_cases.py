"""The cases of ``cm384 check``: what a user wants pinned, one table each."""

from __future__ import annotations

import re
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from cm384model.specs.quantity import fault
from cm384model.specs.spec import Section, Source, Spec

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_NEEDS: dict[str, tuple[str, ...]] = {
    "decode": ("workload", "at"),
    "prefill": ("workload", "at"),
    "plan": ("workload",),
    "op": ("operator",),
    "law": ("law", "at"),
    "examples": (),
}
_TAKES: dict[str, frozenset[str]] = {
    "operator": frozenset({"op"}),
    "law": frozenset({"law"}),
    "options": frozenset({"plan"}),
    "at": frozenset({"decode", "prefill", "op", "law"}),
}


class CheckCase(Section):
    """One case: a prediction, an operator, a plan or a law, as it would be asked on the command line.

    ``examples`` is every law by itself, at the example of its docstring.
    ``expect = "error"`` pins the message of the error that the case must end in.
    ``quantities`` are the names, with wildcards, of what is pinned; everything by default.
    """

    kind: Literal["decode", "prefill", "op", "plan", "law", "examples"]
    why: str = ""
    workload: str | None = None
    hardware: str | None = None
    engine: str | None = None
    operator: str | None = None
    law: str | None = None
    at: str | None = None
    settings: list[str] = Field(default=[], alias="set")
    options: dict[str, Any] | None = None
    expect: Literal["numbers", "error"] = "numbers"
    quantities: list[str] = Field(default=["*"])

    @model_validator(mode="after")
    def _complete(self) -> Self:
        for name in _NEEDS[self.kind]:
            if getattr(self, name) is None and self.expect == "numbers":
                raise fault(f"a case of kind '{self.kind}' needs '{name}'", f'{name} = "..."')
        for name, kinds in _TAKES.items():
            if getattr(self, name) is not None and self.kind not in kinds:
                raise fault(f"a case of kind '{self.kind}' takes no '{name}'", key=name)
        return self


class CheckCases(Spec):
    """A cases file of ``cm384 check``."""

    spec_kind: ClassVar[str] = "cases"

    name: str = ""
    title: str = ""
    sources: dict[str, Source] = Field(default={})
    cases: dict[str, CheckCase]

    @model_validator(mode="after")
    def _named(self) -> Self:
        for name in self.cases:
            if not _NAME.fullmatch(name):
                raise fault(f"case name '{name}' may have letters, digits and . _ - only", key="cases")
        if not self.cases:
            raise fault("there is no case", '[cases.my-first] with kind = "decode", workload and at')
        return self
