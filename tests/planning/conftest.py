from __future__ import annotations

import numpy as np
import pytest

from cm384model.planning import layouts, space


@pytest.fixture
def coarse(monkeypatch):
    """Every axis of the planner with few values, so that a plan takes milliseconds."""
    monkeypatch.setattr(space, "core_shares", lambda case: np.array([1 / 2, 7 / 12, 2 / 3]))
    monkeypatch.setattr(space, "MAX_DRAFT_TOKENS", 1)
    monkeypatch.setattr(layouts, "ATTENTION_TP", (1.0, 2.0))
    monkeypatch.setattr(space, "MAX_BATCH_PER_DIE", 96)
    monkeypatch.setattr(space, "TOKENS_STEP", 4096)
