"""The shapes of a model as the numbers of one family."""

from __future__ import annotations

from typing import TypeVar

from cm384model.specs.diagnostics import SpecError
from cm384model.specs.model import (
    Architecture,
    Dense,
    GroupedQuery,
    Latent,
    Mixture,
    Model,
    Shortcut,
    SparseLatent,
)

A = TypeVar("A", bound=Architecture)


def _shapes(model: Model, kind: type[A], what: str) -> A:
    architecture = model.architecture
    if not isinstance(architecture, kind):
        raise SpecError.of(f"model {model.name} has no {what}, its family is {model.family}")
    return architecture


def latent(model: Model) -> Latent:
    """Shapes of latent attention."""
    return _shapes(model, Latent, "latent attention")


def sparse(model: Model) -> SparseLatent:
    """Shapes of sparse latent attention."""
    return _shapes(model, SparseLatent, "indexer")


def grouped(model: Model) -> GroupedQuery:
    """Shapes of grouped-query attention."""
    return _shapes(model, GroupedQuery, "grouped-query attention")


def mixture(model: Model) -> Mixture:
    """Shapes of a mixture of experts."""
    return _shapes(model, Mixture, "experts")


def dense(model: Model) -> Dense:
    """Shapes of a dense feed-forward."""
    return _shapes(model, Dense, "dense feed-forward alone")


def shortcut(model: Model) -> Shortcut:
    """Shapes of layers with a shortcut."""
    return _shapes(model, Shortcut, "shortcut")
