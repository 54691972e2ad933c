"""Is it true? The ledger that ships, its bands and its targets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cm384model.evidence.published import GROUPS, in_groups, shipped_rows
from cm384model.evidence.validate import COVERAGE, RUNS, check, validate
from cm384model.prediction.evaluate import predict_operator
from cm384model.report.validate import validate_report
from cm384model.specs.diagnostics import SpecError


@pytest.fixture(scope="module")
def found():
    return validate(shipped_rows())


def by_id(found, name):
    return next(row for row in found.rows if row.id == name)


def test_every_row_stays_in_its_band(found):
    assert found.summary.outside_band == ()


def test_every_row_is_predicted_or_says_why_not(found):
    for row in found.rows:
        assert (row.predicted is None) == bool(row.reason)
        assert row.source
        assert row.group in GROUPS


def test_the_intervals_hold_as_many_rows_as_they_should(found):
    coverage = found.summary.coverage
    assert coverage.rows == sum(row.is_evidence and row.kind not in RUNS for row in found.rows) > 100
    low, high = COVERAGE
    assert low <= coverage.share <= high


def test_a_fitted_row_and_an_input_are_no_evidence(found):
    assert not by_id(found, "cm384_dsr1_decode_slo50_4096_256_b96").is_evidence
    assert not by_id(found, "cm384_ub_npu_npu_read_inter_latency").is_evidence
    assert by_id(found, "cm384_layer_ops_stream_expert").is_evidence


def test_a_target_is_met_or_says_why_not(found):
    """An improvement that meets a target takes its excuse away."""
    for target in found.targets:
        assert target.met == (not target.reason), target.name


def test_a_target_is_asked_only_of_all_its_rows():
    rows = in_groups(shipped_rows(), ["decode"])
    assert {target.name for target in validate(rows).targets} == {
        "decode_mean",
        "decode_worst",
        "decode_constants",
    }


def test_all_rows_of_the_paper_are_there(found):
    counts = {
        "cm384_dsr1_decode_slo": 5,
        "cm384_dsr1_prefill_": 2 + 5,
        "cm384_ep": 12,
        "cm384_mla_": 2,
        "cm384_gemm_int8_": 6,
        "cm384_load_": 8,
        "cm384_ub_": 16,
    }
    for prefix, count in counts.items():
        assert sum(row.id.startswith(prefix) for row in found.rows) >= count, prefix


def test_summaries_count_every_row_once(found):
    s = found.summary
    assert sum(group.rows for group in s.groups) == s.predicted_rows
    assert sum(group.rows for group in s.groups if group.used_for_fit) == s.fitted_rows
    facts = sum(row.kind == "fact" for row in found.rows if row.predicted is not None)
    assert sum(total.rows for total in s.totals) == s.predicted_rows - facts


def test_a_summary_is_that_of_its_rows(found):
    rows = [row for row in found.rows if row.group == "decode" and row.predicted is not None]
    (summary,) = (s for s in found.summary.groups if s.group == "decode")
    errors = [row.predicted / row.published - 1 for row in rows]
    assert summary.bias_error == pytest.approx(sum(errors) / 5)
    assert summary.mean_error == pytest.approx(sum(map(abs, errors)) / 5)
    assert summary.median_error == pytest.approx(sorted(map(abs, errors))[2])
    assert abs(summary.worst_error) == pytest.approx(max(map(abs, errors)))
    assert by_id(found, summary.worst_id).error == summary.worst_error


def test_a_row_outside_its_band_is_named():
    row = next(row for row in shipped_rows() if row.id == "cm384_dsr1_decode_slo50_4096_256_b96")
    found = validate([replace(row, published=row.published * 1.2)])
    assert found.summary.outside_band == (row.id,)
    assert found.rows[0].error == pytest.approx(check(row).predicted / row.published / 1.2 - 1)


def test_groups_begin_with_a_word():
    rows = in_groups(shipped_rows(), ["operators.g", "decode"])
    assert {row.group for row in rows} == {"operators.gemm", "operators.grouped_gemm", "decode"}
    with pytest.raises(SpecError, match="Did you mean 'decode'"):
        in_groups(shipped_rows(), ["decodes"])


def test_left_out_rows_are_predicted_by_a_fit_that_never_saw_them():
    rows = in_groups(shipped_rows(), ["decode"])
    found = validate(rows, leave_one_out=True)
    assert len(found.leave_one_out) == 5
    for left_out in found.leave_one_out:
        assert left_out.error == pytest.approx(left_out.predicted / left_out.published - 1)
        assert left_out.error != pytest.approx(by_id(found, left_out.id).error, rel=1e-3)
    assert sum(abs(row.error) for row in found.leave_one_out) / 5 <= 0.07
    assert next(target for target in found.targets if target.name == "decode_unseen").met
    report = validate_report(found, every=False, chosen=True).render("table")
    assert "each decode row predicted by a fit that never saw it" in report


def test_table_8_is_compute_bound_and_table_9_memory_bound(case):
    rows = {row.id: row for row in shipped_rows()}
    for name, bound in (("cm384_mla_compute", "compute"), ("cm384_mla_memory", "memory")):
        assert predict_operator(case, "mla_decode", rows[name].at).bound == bound
