"""The check that numbers have not changed: that it passes, that it bites, and what it says of the cause."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from cm384model import api
from cm384model.evidence.golden import cases as golden_cases
from cm384model.evidence.golden.cases import shipped_cases, shipped_golden, unit_of
from cm384model.evidence.golden.check import TOLERANCE, check, same, update
from cm384model.evidence.golden.record import HEADER, golden_text, read_golden
from cm384model.laws import roofline
from cm384model.numeric import LAWS
from cm384model.prediction.terms import BOUNDS
from cm384model.recording import LawCall, recording
from cm384model.report.glossary import GLOSSARY
from cm384model.specs.catalogue import data_root, names
from cm384model.specs.diagnostics import SpecError

CASES = """
schema = 1

[cases.decode]
kind = "decode"
workload = "deepseek-r1-4k-256"
hardware = "mine.toml"
at = "ep=64,batch_per_die=16"

[cases.dispatch]
kind = "op"
operator = "dispatch"
hardware = "mine.toml"
at = "ep=64,tokens_per_die=16"

[cases.law]
kind = "law"
law = "expected_tokens"
at = "draft_tokens=1,acceptance=0.7"
"""


@pytest.fixture(scope="module")
def shipped():
    """The shipped check, and the laws that it evaluated."""
    with recording() as entries:
        done = check(shipped_cases(), shipped_golden(), api.plan)
    return done, {entry.law.__name__ for entry in entries if isinstance(entry, LawCall)}


@pytest.fixture
def mine(tmp_path):
    """A user's cases with a machine of his own, pinned."""
    shutil.copy(data_root() / "hardware" / "cloudmatrix384.toml", tmp_path / "mine.toml")
    (tmp_path / "cases.toml").write_text(CASES)
    pin(tmp_path)
    return tmp_path


def checked(folder: Path, *patterns: str):
    return check(folder / "cases.toml", folder / "predictions.csv", api.plan, patterns)


def pin(folder: Path, *patterns: str):
    change = update(checked(folder, *patterns), patterns)
    (folder / "predictions.csv").write_text(change.text)
    return change


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def bandwidth(folder: Path, value: int) -> None:
    path = folder / "mine.toml"
    path.write_text(
        re.sub(r"(?m)^(hbm_bandwidth *= \{ value = )[\d.]+", rf"\g<1>{value}", path.read_text(), count=1)
    )


def changes(done, status: str):
    return {(c.case, c.quantity) for c in done.result.changes if c.status == status}


# --- the shipped numbers ---------------------------------------------------------------------------------


def test_no_shipped_number_has_changed(shipped):
    done, _ = shipped
    found = [
        f"{c.case} {c.quantity}: {c.golden} -> {c.now}" for c in done.result.changes if c.status != "same"
    ]
    assert found == [], "read what `cm384 check` says"


def test_every_law_is_evaluated(shipped):
    assert set(LAWS) - shipped[1] == set()
    pinned = {quantity.partition(".")[0] for quantity in shipped[0].now["laws"].values}
    assert pinned == set(LAWS), "every law has an example that calls it"


def test_the_predictions_alone_evaluate_the_laws_of_serving():
    """Every law of a module that predictions use, but those for what no shipped data describe."""
    cases = golden_cases.read_cases(shipped_cases())
    kept = {name: case for name, case in cases.items() if case.kind not in ("law", "examples")}
    with recording() as entries:
        golden_cases.evaluate_cases(kept, shipped_cases().parent, api.plan)
    used = {entry.law.__name__ for entry in entries if isinstance(entry, LawCall)}
    modules = (
        "roofline",
        "gemm",
        "attention",
        "moe",
        "comm",
        "memory",
        "mtp",
        "overlap",
        "caching",
        "vector",
    )
    laws = {name for name, law in LAWS.items() if law.__module__.rpartition(".")[2] in modules}
    assert laws - used <= {"distinct_destinations", "kv_cache_bytes_per_token_gqa"}


def test_every_bound_binds_somewhere(shipped):
    done, _ = shipped
    bounds = {v for c in done.now.values() for q, (v, _) in c.values.items() if q.split(".")[-1] == "bound"}
    assert bounds == set(BOUNDS)


def test_every_reason_is_pinned(shipped):
    done, _ = shipped
    kinds = golden_cases.read_cases(shipped_cases())
    found: dict[str, set[str]] = {}
    for name, case in done.now.items():
        words = {q.partition(".")[2] for q in case.values if q.startswith("infeasible.")}
        found.setdefault(kinds[name].kind, set()).update(words)
    assert found["decode"] == found["prefill"] == {"hbm"}
    assert found["plan"] == {"hbm", "npus", "tpot", "ttft", "rate"}


def test_every_engine_machine_and_workload_is_pinned(shipped):
    files = {name for case in shipped[0].now.values() for name in case.provenance.data}
    assert {f"hardware/{name}.toml" for name in names("hardware")} <= files
    assert {f"hardware/engines/{name}.toml" for name in names("engine")} <= files


def test_every_operator_that_has_a_kernel_of_its_own_is_pinned():
    from cm384model.specs.deployment import OPERATOR_FIELDS

    inside = {"grouped_gemm", "grouped_gemm_swiglu", "vector", "mla_decode", "mla_prefill", "combine"}
    pinned = {case.operator for case in golden_cases.read_cases(shipped_cases()).values()}
    assert set(OPERATOR_FIELDS) - inside <= pinned


def test_every_shipped_case_says_why_it_is_there():
    assert all(case.why for case in golden_cases.read_cases(shipped_cases()).values())


def test_units_are_those_of_the_glossary(shipped):
    units = {entry.name: entry.unit for entry in GLOSSARY}
    for case in shipped[0].now.values():
        for quantity, (_, unit) in case.values.items():
            above, _, name = quantity.rpartition(".")
            if (
                unit == golden_cases.WORD
                or quantity == "result"
                or above == "infeasible"
                or case.provenance.data == {}
            ):
                continue
            whole = above.rpartition(".")[2]
            known = units.get(whole if whole in ("parts_s", "parts_bytes") else name, "-")
            assert unit == unit_of(quantity) == known, quantity


def test_the_shipped_file_is_what_update_writes(shipped):
    assert golden_text(read_golden(shipped_golden()).cases) == shipped_golden().read_text()


# --- it bites --------------------------------------------------------------------------------------------


def test_the_same_numbers_pass(mine):
    done = checked(mine)
    assert done.result.ok
    assert {case.cause for case in done.result.cases} == {""}


@pytest.mark.parametrize("factor", [1 + 1e-6, 1 - 1e-6, 1 + 1e-8])
def test_a_doctored_number_is_noticed(mine, factor):
    golden = mine / "predictions.csv"
    (line,) = re.findall(r"(?m)^decode,tpot_s,.*$", golden.read_text())
    value = float(line.split(",")[2])
    edit(golden, line, f"decode,tpot_s,{value * factor:.12g},s")
    done = checked(mine)
    assert changes(done, "moved") == {("decode", "tpot_s")}
    assert done.result.changes[0].delta == pytest.approx(1 / factor - 1, rel=1e-3)


def test_the_tolerance_is_relative_and_nothing_else():
    assert same(1.0, 1 + 0.9 * TOLERANCE)
    assert not same(1.0, 1 + 2 * TOLERANCE)
    assert not same(1e-12, 1e-12 * (1 + 2 * TOLERANCE))
    assert not same(0.0, 1e-300)
    assert not same("compute", "memory")


def test_a_doctored_word_is_noticed(mine):
    edit(mine / "predictions.csv", "dispatch,bound,latency", "dispatch,bound,memory")
    done = checked(mine)
    assert changes(done, "moved") == {("dispatch", "bound")}
    assert done.result.changes[0].delta is None


def test_a_case_without_golden_numbers_is_noticed(mine):
    text = (mine / "predictions.csv").read_text()
    kept = [line for line in text.splitlines(keepends=True) if not line.startswith("law,")]
    (mine / "predictions.csv").write_text("".join(kept))
    done = checked(mine)
    assert changes(done, "new") == {("law", "result")}
    assert not done.result.ok


def test_golden_numbers_without_a_case_are_noticed(mine):
    with (mine / "predictions.csv").open("a") as file:
        file.write("zombie,tpot_s,0.05,s\n")
    done = checked(mine)
    assert changes(done, "missing") == {("zombie", "tpot_s")}
    assert not done.result.ok


def test_a_quantity_that_is_gone_is_noticed(mine):
    with (mine / "predictions.csv").open("a") as file:
        file.write("law,second_result,0.05,s\n")
    assert changes(checked(mine), "missing") == {("law", "second_result")}


def test_without_a_golden_file_everything_is_new(mine):
    (mine / "predictions.csv").unlink()
    result = checked(mine).result
    assert (result.same, result.moved, result.missing) == (0, 0, 0)
    assert result.new > 50


def test_the_largest_change_stands_first(mine):
    bandwidth(mine, 1700)
    deltas = [
        abs(c.delta) for c in checked(mine).result.changes if c.status == "moved" and c.delta is not None
    ]
    assert deltas == sorted(deltas, reverse=True)
    assert len(deltas) > 10


# --- the cause -------------------------------------------------------------------------------------------


def causes(done):
    return {case.case: (case.cause, case.changed) for case in done.result.cases if case.cause}


def test_a_change_of_data_is_named_as_such(mine):
    bandwidth(mine, 1700)
    assert causes(checked(mine)) == {"decode": ("data", ("mine.toml",))}


def test_a_change_of_code_is_named_as_such(mine, monkeypatch):
    from cm384model.prediction import operators

    def slower(*operands, **constants):
        return 1.01 * roofline.roofline_time(*operands, **constants)

    monkeypatch.setattr(operators, "roofline_time", slower)
    assert causes(checked(mine)) == {"decode": ("code", ())}


def test_a_comment_in_a_data_file_is_no_change_of_data(mine, monkeypatch):
    path = mine / "mine.toml"
    path.write_text("# a remark\n" + path.read_text())
    test_a_change_of_code_is_named_as_such(mine, monkeypatch)


def test_a_change_of_the_case_itself_is_named_as_such(mine):
    edit(mine / "cases.toml", "batch_per_die=16", "batch_per_die=17")
    assert causes(checked(mine)) == {"decode": ("case", ())}


def test_numbers_of_unknown_origin_are_named_as_such(mine):
    text = (mine / "predictions.csv").read_text()
    (mine / "predictions.csv").write_text("".join(re.findall(r"(?m)^[^#].*\n", text)))
    assert checked(mine).result.ok
    bandwidth(mine, 1700)
    assert causes(checked(mine)) == {"decode": ("unknown", ())}


# --- update ----------------------------------------------------------------------------------------------


def test_update_is_reproducible(mine):
    before = (mine / "predictions.csv").read_bytes()
    change = pin(mine)
    assert (change.added, change.moved, change.removed) == (0, 0, 0)
    assert (mine / "predictions.csv").read_bytes() == before
    assert (mine / "predictions.csv").read_text().count(HEADER) == 1


def test_update_alone_only_adds(mine):
    bandwidth(mine, 1700)
    golden = mine / "predictions.csv"
    old = dict(re.findall(r"(?m)^(decode,\w+),(\S+),s$", golden.read_text()))
    edit(golden, re.findall(r"(?m)^law,.*\n", golden.read_text())[0], "")
    with golden.open("a") as file:
        file.write("zombie,tpot_s,0.05,s\n")
    change = pin(mine)
    assert (change.added, change.moved, change.removed) == (1, 0, 0)
    assert dict(re.findall(r"(?m)^(decode,\w+),(\S+),s$", golden.read_text())) == old
    done = checked(mine)
    assert changes(done, "missing") == {("zombie", "tpot_s")}
    assert causes(done)["decode"] == ("data", ("mine.toml",))


def test_update_moves_the_cases_named_and_no_other(mine):
    bandwidth(mine, 1700)
    edit(mine / "cases.toml", "tokens_per_die=16", "tokens_per_die=17")
    change = pin(mine, "dec*")
    assert change.moved > 10
    assert set(causes(checked(mine))) == {"dispatch"}
    pin(mine, "*")
    assert checked(mine).result.ok


def test_update_removes_what_is_gone_only_when_named(mine):
    edit(mine / "cases.toml", CASES[CASES.index("[cases.law]") :], "")
    assert pin(mine).removed == 0
    assert pin(mine, "decode").removed == 0
    assert pin(mine, "law").removed == 1
    assert checked(mine).result.ok


def test_a_case_whose_numbers_hold_takes_the_origin_of_today(mine):
    edit(mine / "mine.toml", 'confidence = "B"', 'confidence = "A"')
    bandwidth(mine, 1700)
    pin(mine, "decode")
    bandwidth(mine, 1600)
    pin(mine)
    assert causes(checked(mine)) == {"decode": ("data", ("mine.toml",))}


# --- cases that cannot run -------------------------------------------------------------------------------


def refused(mine, old: str, new: str) -> str:
    edit(mine / "cases.toml", old, new)
    with pytest.raises(SpecError) as raised:
        checked(mine)
    return raised.value.render()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('kind = "decode"', 'kind = "decod"', "Did you mean 'decode'?"),
        ('workload = "deepseek-r1-4k-256"\n', "", "a case of kind 'decode' needs 'workload'"),
        ('operator = "dispatch"', 'operater = "dispatch"', "Did you mean 'operator'?"),
        ('law = "expected_tokens"', 'law = "expected_tokens"\noperator = "gemm"', "takes no 'operator'"),
        ("[cases.law]", '[cases."a,b"]', "case name 'a,b' may have letters"),
        ('"ep=64,batch_per_die=16"', '"ep=64,batch=16"', "case decode: a decode deployment has no 'batch'"),
        ('hardware = "mine.toml"', 'hardware = "mnie.toml"', "case decode: no hardware file"),
        ('law = "expected_tokens"', 'law = "expected_token"', "Did you mean 'expected_tokens'?"),
        ("acceptance=0.7", "acceptence=0.7", "Did you mean 'acceptance'?"),
        ("acceptance=0.7", "acceptance=x", "acceptance = 'x' is not a number"),
        (",acceptance=0.7", "", "law expected_tokens needs acceptance"),
        ("acceptance=0.7", "acceptance=inf", "case law: result is not finite"),
        ('kind = "law"', 'kind = "law"\nquantities = ["tpot*"]', "matches nothing"),
        (CASES, "schema = 1\ncases = {}", "there is no case"),
    ],
)
def test_a_faulty_case_is_refused(mine, old, new, said):
    assert said in refused(mine, old, new)


def test_an_unknown_option_of_plan_is_refused(mine):
    new = '[cases.p]\nkind = "plan"\nworkload = "deepseek-r1-4k-256"\noptions = { npu = 64 }\n\n[cases.law]'
    assert "plan has no option 'npu'. Did you mean 'npus'?" in refused(mine, "[cases.law]", new)


def test_an_error_can_be_pinned(mine):
    edit(mine / "cases.toml", '"ep=64,batch_per_die=16"', '"ep=63,batch_per_die=16"\nexpect = "error"')
    pin(mine, "decode")
    golden = (mine / "predictions.csv").read_text()
    assert "decode,error,ep = 63 is no whole number of NPUs,word\n" in golden
    edit(mine / "cases.toml", "ep=63", "ep=64")
    done = checked(mine)
    assert ("decode", "error") in changes(done, "missing")
    assert ("decode", "tpot_s") in changes(done, "new")


def test_the_error_of_a_file_names_it_from_the_cases(mine):
    edit(mine / "cases.toml", 'hardware = "mine.toml"', 'hardware = "no.toml"\nexpect = "error"')
    pin(mine, "decode")
    assert "decode,error,no hardware file 'no.toml'" in (mine / "predictions.csv").read_text()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (HEADER, "case,value", f"the first line is not {HEADER}"),
        ("law,result,1.7,-", "law,result,x,-", "could not convert"),
        ("law,result,1.7,-", "law,result,nan,-", "nan is not finite"),
        ("law,result,1.7,-", "law,result,1.7", "needs four values"),
        ("law,result,1.7,-", "law,result,1.7,-\nlaw,result,1.7,-", "too"),
    ],
)
def test_a_faulty_golden_file_is_refused(mine, old, new, said):
    edit(mine / "predictions.csv", old, new)
    with pytest.raises(SpecError, match=re.escape(said)):
        checked(mine)


def test_an_unknown_pattern_is_refused(mine):
    with pytest.raises(SpecError, match=r"no case 'decod'\. Did you mean 'decode'\?"):
        checked(mine, "decod")
