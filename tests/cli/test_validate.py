from __future__ import annotations

import csv
import io
import json

import pytest

LEDGER = "id,subject,at,quantity,published,unit,band\n"
AT = '"ep=320,batch_per_die=48,microbatches=2,draft_tokens=1"'


def load(run, *arguments):
    result = run("validate", *arguments, "--format", "json")
    return result.status, json.loads(result.out)


def test_the_shipped_rows_stay_in_their_bands(run):
    result = run("validate")
    assert (result.status, result.err) == (0, "")
    for said in (
        "80 % intervals hold",
        "as it should (70 to 95 %)",
        "operators, all",
        "all but inputs",
        "cm384_dsr1_decode_slo50_4096_256_b96",
        "x_deepseek_h800_profile_prefill",
        "--all lists every row with its own",
    ):
        assert said in result.out
    assert "npu_gemm_bf16_64x7168x2048   " not in result.out


def test_json_has_the_agreed_names(run):
    status, data = load(run)
    assert status == 0
    assert next(iter(data)) == "schema"
    assert {"rows", "summary", "targets"} <= set(data)
    wanted = {"id", "group", "quantity", "published", "predicted", "error", "band", "used_for_fit", "source"}
    for row in data["rows"]:
        assert wanted <= set(row)
    assert len(data["rows"]) == data["summary"]["rows"] > 800
    assert 0.70 <= data["summary"]["coverage"]["share"] <= 0.95


def test_csv_has_every_row_with_its_reason(run):
    rows = list(csv.DictReader(io.StringIO(run("validate", "--format", "csv").out)))
    assert len(rows) > 800
    for row in rows:
        assert bool(row["predicted"]) != bool(row["reason"])


def test_a_group_shows_its_rows(run):
    result = run("validate", "--group", "operators.exchange")
    assert "cm384_ep256_dispatch_b128" in result.out
    assert "what the model is to show" not in result.out
    _, data = load(run, "--group", "decode", "--group", "operators.g")
    assert {row["group"] for row in data["rows"]} == {"decode", "operators.gemm", "operators.grouped_gemm"}


def test_all_lists_what_is_not_predicted(run):
    result = run("validate", "--all", "--group", "operators.grouped_gemm")
    assert "real rows unknown (padded buffer)" in result.out


def test_rows_of_your_own_are_left_out_of_no_fit(run):
    assert "not go with rows of your own" in run("validate", "--rows", "x.csv", "--leave-one-out").err


def test_own_rows_and_the_one_that_leaves_its_band(run, tmp_path):
    path = tmp_path / "own.csv"
    path.write_text(f"{LEDGER}a,decode,{AT},tpot_s,49,ms,0.1\nb,decode,{AT},tpot_s,60,ms,10%\n")
    result = run("validate", "--rows", path)
    assert (result.status, result.out) == (2, "")
    path.write_text(f"{LEDGER}a,decode,{AT},tpot_s,49,ms,0.1\nb,decode,{AT},tpot_s,60,ms,0.1\n")
    result = run("validate", "--rows", path)
    assert (result.status, result.err) == (1, "1 row leaves its band: b\n")
    assert "OUT OF 10 %" in result.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--group", "decodes"), "Did you mean 'decode'?"),
        (("--rows", "no-such.csv"), "cannot read 'no-such.csv'"),
    ],
)
def test_bad_input_is_said_once(run, arguments, said):
    result = run("validate", *arguments)
    assert (result.status, result.out) == (2, "")
    assert result.err.count("error: ") == 1
    assert said in result.err


def test_a_row_of_ones_own_that_cannot_be_predicted_is_named_with_its_line(run, tmp_path):
    path = tmp_path / "own.csv"
    path.write_text(f'{LEDGER}a,decode,"ep=321,batch_per_die=8",tpot_s,49,ms,0.1\n')
    result = run("validate", "--rows", path)
    assert result.status == 2
    assert "own.csv:2:" in result.err


@pytest.mark.parametrize("by", ["group", "model", "engine"])
@pytest.mark.parametrize("form", ["table", "json", "csv", "markdown"])
def test_a_summary_by_group_model_or_engine(run, by, form):
    result = run("validate", "--group", "decode", "--by", by, "--format", form)
    assert result.status == 0
    word = {"group": "decode", "model": "deepseek-r1", "engine": "cloudmatrix-infer"}[by]
    assert word in result.out
    if form == "csv":
        (row,) = csv.DictReader(io.StringIO(result.out))
        assert (row["group"], row["rows"]) == (word, "5")


def test_a_summary_by_nothing_known(run):
    result = run("validate", "--by", "modell")
    assert result.status == 2
    assert "Did you mean 'model'" in result.err


def test_a_row_of_a_run_without_prompts_is_said_at_its_line(run, tmp_path):
    rows = tmp_path / "mine.csv"
    rows.write_text(
        "id,subject,at,quantity,published,unit,band\n"
        'a,colocated,"ep=16,concurrency=64",run_tokens_per_s_per_npu,100,tokens/s,0.1\n'
    )
    result = run("validate", "--rows", str(rows))
    assert (result.status, result.out) == (2, "")
    assert "a: a colocated deployment needs prompts" in result.err
    assert f"{rows}:2:" in result.err
