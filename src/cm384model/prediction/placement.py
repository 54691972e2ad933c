"""Where the experts of a layer live in an instance of a given size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cm384model.laws.moe import expert_slots_per_die, shared_expert_dies
from cm384model.numeric import Numeric
from cm384model.prediction.shapes import mixture
from cm384model.specs.hardware import Hardware
from cm384model.specs.model import Model


@dataclass(frozen=True)
class Placement:
    """Experts of one layer on the dies of an instance.

    Attributes
    ----------
    ep : numeric
        Dies of the instance, or groups of dies that split their experts. [-]
    shared_dies : numeric
        Dies that hold only a copy of the shared expert; 0 when every die has one. [-]
    pool_dies : numeric
        Dies that hold routed experts. [-]
    slots : numeric
        Routed experts per die of the pool, redundant copies included. [-]
    expert_tp : numeric
        Dies of such a group: each has its share of the columns of every expert of the group. [-]
    """

    ep: Numeric
    shared_dies: Numeric
    pool_dies: Numeric
    slots: Numeric
    expert_tp: Numeric = 1.0

    @property
    def dedicated(self) -> Numeric:
        """1 where the shared expert has dies of its own, else 0. [-]"""
        return np.minimum(self.shared_dies, 1)

    @property
    def copies(self) -> Numeric:
        """Routed experts of the instance, redundant copies included. [-]"""
        return self.pool_dies * self.slots

    def busiest(self, imbalance: Numeric) -> Numeric:
        """Rows of the busiest die over the mean: no die has more than all rows. [-]"""
        return np.minimum(imbalance, self.pool_dies)


def place_experts(
    hardware: Hardware,
    model: Model,
    ep: Numeric,
    redundant_experts: Numeric,
    expert_tp: Numeric = 1.0,
) -> Placement:
    """Placement of the experts of ``model`` on ``ep`` dies, in groups of ``expert_tp``. [-]"""
    a = mixture(model)
    if not np.all(np.equal(expert_tp, 1)):
        ep = ep / expert_tp
        redundant_experts = redundant_experts * (ep > 1)  # in one group copies are of no use
    shared_dies = shared_expert_dies(
        ep,
        a.routed_experts.si,
        top_k=a.computing_top_k,
        shared_experts=a.shared_experts.si,
        dies_per_node=hardware.dies_per_node,
    )
    slots = expert_slots_per_die(ep, a.routed_experts.si, redundant_experts, shared_dies=shared_dies)
    return Placement(ep, shared_dies, ep - shared_dies, slots, expert_tp)
