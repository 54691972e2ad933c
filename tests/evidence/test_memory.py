"""The memory ledger against deployments that were run: what ran fits, what had to be offloaded does not."""

from __future__ import annotations

from dataclasses import replace

from cm384model.evidence.published import case_of, shipped_rows
from cm384model.prediction.capacity import fit_case
from cm384model.prediction.evaluate import predict_decode, predict_prefill
from cm384model.specs.load import load_engine, load_model

PREDICT = {"decode": predict_decode, "prefill": predict_prefill}


def test_every_published_deployment_fits_unless_its_cache_was_offloaded():
    ran = [row for row in shipped_rows() if row.subject in PREDICT and not row.reason]
    offloaded = {row.id for row in shipped_rows() if "_off8k" in row.id or "_off16k" in row.id}
    over = {row.id for row in ran if not PREDICT[row.subject](case_of(row), row.at).feasible}
    assert len(ran) > 40
    assert over <= offloaded, "published as run, and more than a die holds"


def test_the_largest_batch_of_glm_5_2(case):
    """cann-recipes guide to offloading (@fbc225d): 2 sequences of 64K per die of EP32 without it."""
    here = replace(case, model=load_model("glm-5.2"), engine=load_engine("cann-recipes"))
    at = {"ep": 32, "kv_len": 65536, "draft_tokens": 3, "redundant_experts": 0}
    (instance,) = fit_case(here, "decode", at).instances
    assert instance.largest_batch == 2
    four = {"batch_per_die": 4, "attention_aic_share": 0.5}
    assert not predict_decode(here, at | four).feasible  # what the offloaded runs held
