"""The simulations and the traces that the closed forms for serving are held against."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TRACES = HERE.parents[2] / "shared" / "traces"


@pytest.fixture(scope="session")
def simulation():
    """The module `simulation.py`, which is not part of a package."""
    spec = importlib.util.spec_from_file_location("serving_simulation", HERE / "simulation.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def azure():
    """Azure's conversation trace of 2023; the product reads it and does not ship it."""
    from cm384model.specs.traces import read_trace

    file = TRACES / "azure_llm_2023_conv.csv"
    if not file.exists():
        pytest.skip(f"no trace at {file}: it is published by others and not part of the repository")
    return read_trace(file)
