"""How the dies of an instance may share a model: what the planner tries for each family."""

from __future__ import annotations

import numpy as np

from cm384model.planning.request import Request
from cm384model.prediction.case import Case
from cm384model.prediction.families import attention_of
from cm384model.specs.model import Mixture

ATTENTION_TP = (1.0, 2.0, 4.0)
"""Dies that may share heads of latent attention. [-]"""
MORE_TP = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Dies that may share heads where the cache is split with them, or where all layouts are asked for. [-]"""
EXPERT_TP = (1.0, 4.0, 16.0)
"""Dies that may split their experts. [-]"""


def splits(case: Case, request: Request) -> bool:
    """Whether splitting of weights is searched: for grouped-query attention, and where asked for."""
    return request.layouts == "all" or attention_of(case.model).SPLITS_UNASKED


def attention_tps(case: Case, request: Request) -> np.ndarray:
    """Degrees of attention TP that divide the heads and a node. [-]"""
    if "attention-tp" in request.without:
        return np.array([1.0])
    if not splits(case, request):
        return np.array(ATTENTION_TP)
    return _dividing(MORE_TP, case.model.architecture.heads.si, case.hardware.dies_per_node)


def expert_tps(case: Case, request: Request) -> np.ndarray:
    """Degrees of expert TP that divide the columns of an expert and a node. [-]"""
    architecture = case.model.architecture
    if "expert-tp" in request.without or not splits(case, request) or not isinstance(architecture, Mixture):
        return np.array([1.0])
    return _dividing(EXPERT_TP, architecture.moe_intermediate.si, case.hardware.dies_per_node)


def decode_axes(case: Case, request: Request) -> dict[str, np.ndarray]:
    """What is searched of the layout of a decode instance."""
    return {"attention_tp": attention_tps(case, request), "expert_tp": expert_tps(case, request)}


def _dividing(degrees: tuple[float, ...], *sizes: float) -> np.ndarray:
    return np.array([degree for degree in degrees if all(float(size) % degree == 0 for size in sizes)])
