from pathlib import Path

import pytest

from cm384model.specs.load import load_engine, load_hardware, load_model_of, load_workload

EXAMPLE = Path(__file__).parent / "example"


@pytest.fixture
def example():
    return EXAMPLE


@pytest.fixture
def specs():
    workload = load_workload(EXAMPLE / "workload.toml")
    return {
        "hardware": load_hardware(EXAMPLE / "hardware.toml"),
        "engine": load_engine(EXAMPLE / "engine.toml"),
        "model": load_model_of(workload),
        "workload": workload,
    }
