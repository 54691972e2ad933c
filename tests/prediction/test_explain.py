from __future__ import annotations

import math

import pytest

from cm384model.prediction.explain import bibliography, explain
from cm384model.specs.diagnostics import SpecError

DEPLOYMENTS = {
    "decode": "ep=320,batch_per_die=48,microbatches=2,draft_tokens=2",
    "prefill": "ep=32,tokens_per_npu=16384",
}


@pytest.fixture(scope="module", params=DEPLOYMENTS)
def explained(request, case):
    phase = request.param
    summary = explain(case, phase, DEPLOYMENTS[phase])
    return summary, [explain(case, phase, DEPLOYMENTS[phase], term.name).term for term in summary.terms]


def test_terms_less_hidden_are_the_total(explained):
    summary, _ = explained
    assert math.isclose(
        sum(term.time_s for term in summary.terms) - summary.hidden_time_s, summary.total_time_s
    )


def test_shares_add_up(explained):
    assert math.isclose(sum(term.share for term in explained[1]), 1)


def test_every_term_that_takes_time_leads_to_numbers_with_their_source(explained):
    for term in explained[1]:
        if term.time_s:
            assert term.numbers, term.name
        for number in term.numbers:
            assert number.source
            assert number.confidence in "ABCD"


def test_every_law_shows_a_formula_and_all_operands_it_was_given(explained):
    for term in explained[1]:
        for law in term.laws:
            assert "=" in law.formula, law.law
            assert law.operands
            assert math.isfinite(law.result.value)


def test_every_reference_is_in_the_bibliography(explained):
    for term in explained[1]:
        for law in term.laws:
            for reference in law.references:
                assert reference.key in bibliography()


def test_operators_add_up_where_nothing_overlaps(explained):
    for term in explained[1]:
        summed = sum(operator.total_time_s for operator in term.operators)
        if term.name in ("experts", "draft_layers"):
            assert summed >= term.time_s * (1 - 1e-9)
        else:
            assert math.isclose(summed, term.time_s, rel_tol=1e-9, abs_tol=1e-12), term.name


def test_the_operand_of_a_law_that_another_law_made_brings_that_law(case):
    term = explain(case, "decode", DEPLOYMENTS["decode"], "attention_core").term
    assert term is not None
    assert [law.law for law in term.laws][:3] == ["mean_context", "mla_decode_flop", "attention_compute_time"]


def test_a_changed_number_says_that_it_comes_from_the_command_line():
    from cm384model.prediction.case import load_case

    changed = load_case("deepseek-r1-4k-256", settings=["ops.mla_decode.efficiency=0.5"])
    term = explain(changed, "decode", DEPLOYMENTS["decode"], "attention_core").term
    assert term is not None
    (number,) = [n for n in term.numbers if n.path == "hardware.ops.mla_decode.efficiency"]
    assert (number.value, number.source, number.kind) == (0.5, "command line", "assumed")


def test_an_unknown_term_names_the_nearest_and_all(case):
    with pytest.raises(SpecError, match="Did you mean 'dispatch'") as caught:
        explain(case, "decode", DEPLOYMENTS["decode"], "dispach")
    assert "attention_core" in (caught.value.problems[0].hint or "")
