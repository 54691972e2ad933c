"""How the dies of an instance may share a model: what the planner tries for each family."""

from __future__ import annotations

from typing import Any

import numpy as np

from cm384model.planning.request import Request
from cm384model.prediction.case import Case
from cm384model.prediction.families import attention_of
from cm384model.prediction.memory import usual_attention_tp
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


Layout = dict[str, Any]
"""Fields of a prefill deployment that say how its dies share the model."""

CONTEXT_PARALLEL = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0)
PIPELINE_STAGES = (1.0, 2.0, 4.0)
CHUNKS_PER_STAGE = (1.0, 4.0)


def prefill_layouts(case: Case, request: Request) -> list[Layout]:
    """What is tried of the layout of a prefill instance: all that fills a node or a part of it."""
    usual = usual_attention_tp(case.system)
    if not splits(case, request):
        return [{"attention_tp": usual, **PLAIN}]
    attention = attention_tps(case, request) if attention_of(case.model).SPLITS_PREFILL else [1.0]
    tps = sorted({usual, *map(float, attention)})
    experts = [float(expert_tp) for expert_tp in expert_tps(case, request)]
    plain = [{**PLAIN, "attention_tp": tp, "expert_tp": expert_tp} for tp in tps for expert_tp in experts]
    if request.layouts == "default":
        return plain
    node = float(case.hardware.dies_per_node)
    return [
        {**layout, "context_parallel": parts, "pipeline_stages": stages, "chunks": chunks}
        for layout in plain
        for parts in CONTEXT_PARALLEL
        for stages in PIPELINE_STAGES
        for chunks in ({1.0} if stages == 1 else {stages * several for several in CHUNKS_PER_STAGE})
        if node % (layout["attention_tp"] * max(parts, 1.0) * stages) == 0
        and node % (layout["expert_tp"] * stages) == 0
    ]


def sharing_npus(case: Case, layout: Layout, npus: Any) -> Any:
    """NPUs of an instance that share a prompt: all, unless the layout keeps it to some of them. [-]"""
    if not layout["context_parallel"]:
        return npus
    dies = layout["attention_tp"] * layout["context_parallel"] * layout["pipeline_stages"]
    return dies / case.hardware.dies_per_npu


PLAIN = {"expert_tp": 1.0, "context_parallel": 0.0, "pipeline_stages": 1.0, "chunks": 1.0}
"""Whole experts, prompts shared as the engine does, all layers on all dies."""


def _dividing(degrees: tuple[float, ...], *sizes: float) -> np.ndarray:
    return np.array([degree for degree in degrees if all(float(size) % degree == 0 for size in sizes)])
