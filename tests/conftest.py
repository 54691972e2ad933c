"""What all tests share: silent floating-point errors are errors, and the shipped case is loaded once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings

from cm384model.prediction.case import load_case

settings.register_profile("cm384", deadline=None, derandomize=True)
settings.load_profile("cm384")


@pytest.fixture(autouse=True)
def strict_arithmetic():
    """A division by zero or an overflow is a wrong plan.

    Underflow is allowed: the chance that no token of a large batch reaches an expert is
    rightly zero.
    """
    with np.errstate(all="raise", under="ignore"):
        yield


@pytest.fixture(scope="session")
def case():
    """DeepSeek-R1, 4096 tokens in and 256 out, on CloudMatrix384."""
    return load_case("deepseek-r1-4k-256")
