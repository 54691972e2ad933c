"""Is it true? The published figures of the CloudMatrix384 paper (arXiv:2506.12708v2, its table numbers).

The rows and their bars stand in ``published.csv``; no number of the model is read from there.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from cm384model.prediction.evaluate import predict_decode, predict_operator, predict_prefill

with (Path(__file__).parent / "published.csv").open(encoding="utf-8", newline="") as file:
    ROWS = list(csv.DictReader(file))

TABLE_5_MEAN = 0.08
EVERY_ROW = pytest.mark.parametrize("row", ROWS, ids=lambda row: row["row"])


def predicted(case, row):
    """The model's value of a row."""
    kind, _, operator = row["kind"].partition(":")
    if kind == "op":
        result = predict_operator(case, operator, row["at"])
        rate = result.flop / result.time_s
        special = {
            "int8_utilisation": rate / float(case.hardware.die.int8_flop_rate.si),
            "flop_rate": rate,
            "byte_rate": result.bytes / result.time_s,
        }
        return special[row["quantity"]] if row["quantity"] in special else getattr(result, row["quantity"])
    predict = {"decode": predict_decode, "prefill": predict_prefill}[kind]
    result = predict(case, row["at"])
    assert result.feasible
    return getattr(result, row["quantity"])


def error(case, row):
    published = float(row["published"])
    return predicted(case, row) / published - 1


@EVERY_ROW
def test_a_published_figure_is_met_within_its_bar(case, row):
    assert abs(error(case, row)) <= float(row["tolerance"])


def test_the_decode_rows_are_met_in_the_mean(case):
    errors = [abs(error(case, row)) for row in ROWS if row["row"].startswith("table5")]
    assert len(errors) == 5
    assert sum(errors) / len(errors) <= TABLE_5_MEAN


def test_all_rows_are_there():
    counts = {"table3": 2, "table5": 5, "table7": 12, "table8": 1, "table9": 1, "table10": 6}
    for table, count in counts.items():
        assert sum(row["row"].startswith(f"{table}-") for row in ROWS) == count
    assert sum(counts.values()) == len(ROWS)


def test_table_8_is_a_share_of_the_nominal_peak(case):
    (row,) = (row for row in ROWS if row["row"] == "table8-mla-compute")
    assert float(row["published"]) == pytest.approx(0.654 * 376e12)
    assert predict_operator(case, "mla_decode", row["at"]).bound == "compute"
    (row,) = (row for row in ROWS if row["row"] == "table9-mla-memory")
    assert predict_operator(case, "mla_decode", row["at"]).bound == "memory"
