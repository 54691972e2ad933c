"""The shape all data files share, and how to walk and change the tree of their numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Generic, Literal, Self, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

from cm384model.specs.constants import OPERATOR, check_constant, only
from cm384model.specs.diagnostics import Problem, SpecError, with_suggestion
from cm384model.specs.quantity import Quantity

T = TypeVar("T")
S = TypeVar("S", bound="Spec")


class MissingConstantError(SpecError, AttributeError):
    """A constant a prediction needs and a data file does not have."""


class Free(Generic[T]):
    """A section whose names are free, each reachable as an attribute: ``hardware.ops.gemm_int8.efficiency``.

    It has no public method, so that no name is taken.
    """

    __slots__ = ("__dict__", "_where")
    _where: str

    def __init__(self, items: Mapping[str, T] | None = None) -> None:
        self.__dict__.update(items or {})
        self._where = ""

    def __getattr__(self, name: str) -> T:
        if name.startswith("_"):
            raise AttributeError(name)
        there = ", ".join(self) or "nothing"
        message = with_suggestion(f"{self._where or 'section'} has no '{name}'", name, self)
        raise MissingConstantError([Problem(message, hint=f"there is {there}")])

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "_where":
            raise AttributeError("a section is read-only")
        object.__setattr__(self, name, value)

    def __getitem__(self, name: str) -> T:
        return getattr(self, name)  # type: ignore[no-any-return]

    def __iter__(self) -> Iterator[str]:
        return iter(self.__dict__)

    def __len__(self) -> int:
        return len(self.__dict__)

    def __contains__(self, name: object) -> bool:
        return name in self.__dict__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Free) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Free({self.__dict__!r})"

    def __getstate__(self) -> tuple[dict[str, T], str]:
        return self.__dict__, self._where

    def __setstate__(self, state: tuple[dict[str, T], str]) -> None:
        self.__dict__.update(state[0])
        self._where = state[1]

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> CoreSchema:
        names = core_schema.str_schema(pattern=r"^[a-z][a-z0-9_]*$")
        items = core_schema.dict_schema(names, handler.generate_schema(get_args(source)[0]))
        return core_schema.no_info_wrap_validator_function(
            lambda value, inner: value if isinstance(value, cls) else cls(_checked(inner(value))),
            items,
            serialization=core_schema.wrap_serializer_function_ser_schema(
                lambda free, inner: inner(free.__dict__), schema=items
            ),
        )


def _checked(items: Mapping[str, T]) -> Mapping[str, T]:
    """The items of a free section, or an error at every constant that is out of its bounds."""
    found: list[InitErrorDetails] = []
    for name, item in items.items():
        if isinstance(item, Quantity):
            try:
                check_constant(name, item)
            except PydanticCustomError as error:
                found.append(InitErrorDetails(type=error, loc=(name,), input=item.value))
    if found:
        raise ValidationError.from_exception_data("constants", found)
    return items


Constants = Free[Quantity]
"""A section of named quantities."""
Operators = Free[Annotated[Free[Quantity], only(OPERATOR)]]
"""A section of operators and their constants."""


class Section(BaseModel):
    """One table of a data file: only known keys, no conversion, no change."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", populate_by_name=True)


class Source(Section):
    """Where numbers were read: a title, a reference to find it again, the day it was read."""

    title: str
    ref: str
    read: str


class Spec(Section):
    """A data file: its name, its sources, and (in the subclasses) its numbers."""

    spec_kind: ClassVar[str]
    not_settable: ClassVar[frozenset[str]] = frozenset({"schema_version", "name", "title", "sources"})

    schema_version: Literal[1] = Field(alias="schema")
    name: str
    title: str
    sources: dict[str, Source]

    _file: str = PrivateAttr(default="")

    def model_post_init(self, context: Any, /) -> None:
        """Tell every quantity its path and every free section its file."""
        self._file = (context or {}).get("file", "")
        for path, node in nodes(self):
            if isinstance(node, Quantity):
                node.at(f"{self.spec_kind}.{path}")
            elif isinstance(node, Free):
                node._where = f"[{path}] of {self._file or self.name}"

    @classmethod
    def class_of(cls, data: Mapping[str, Any]) -> type[Self]:
        """The class that checks a file of this kind; a subclass where the file itself decides."""
        return cls

    @property
    def file(self) -> str:
        """The file the spec was read from; empty if from none."""
        return self._file


def children(node: Any) -> Mapping[str, Any]:
    """What stands directly under a section, by name."""
    return vars(node) if isinstance(node, Section | Free) else {}


def nodes(node: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every section, quantity and word under a section with its dotted path."""
    for name, child in children(node).items():
        path = f"{prefix}{name}"
        yield path, child
        yield from nodes(child, f"{path}.")


def quantity_paths(spec: Spec) -> list[str]:
    """Dotted paths of all quantities of a spec, such as ``die.hbm_bandwidth``."""
    return [path for path, node in nodes(spec) if isinstance(node, Quantity)]


def node_at(spec: Spec, path: str) -> Any:
    """The section, quantity or word at a dotted path."""
    node: Any = spec
    for name in path.removeprefix(f"{spec.spec_kind}.").split("."):
        below = children(node)
        if name not in below:
            known = [known for known, _ in nodes(spec)]
            raise SpecError.of(with_suggestion(f"{spec.spec_kind} has no '{path}'", path, known))
        node = below[name]
    return node


def replace_node(spec: S, path: str, new: Any) -> S:
    """A spec with one node exchanged, unchecked, sharing everything else with the old one."""
    node_at(spec, path)
    return _replaced(spec, path.removeprefix(f"{spec.spec_kind}.").split("."), new)  # type: ignore[no-any-return]


def _replaced(node: Any, names: list[str], new: Any) -> Any:
    if not names:
        return new
    name, *rest = names
    child = _replaced(children(node)[name], rest, new)
    if isinstance(node, Free):
        copy: Free[Any] = Free({**vars(node), name: child})
        copy._where = node._where
        return copy
    return node.model_copy(update={name: child})


def replace_value(spec: S, path: str, value: Any) -> S:
    """A spec in which one quantity has another value in SI units: a number, or an array for a sweep."""
    quantity = node_at(spec, path)
    if not isinstance(quantity, Quantity):
        raise SpecError.of(f"{spec.spec_kind}.{path} is not a number")
    return replace_node(spec, path, quantity.with_si(value))
