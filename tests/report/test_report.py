from __future__ import annotations

import dataclasses
import json

import pytest

from cm384model.prediction.terms import Term
from cm384model.report.report import Report, flat, jsonable


@dataclasses.dataclass(frozen=True)
class Inner:
    npus: int


@dataclasses.dataclass(frozen=True)
class Outer:
    decode: Inner
    names: tuple[str, ...]
    schema: int = 1
    raw_terms: tuple[Term, ...] = (Term("t", 1.0),)


OUTER = Outer(Inner(8), ("a",))


def test_schema_comes_first_and_raw_terms_never():
    assert list(jsonable(OUTER)) == ["schema", "decode", "names"]


def test_flat_rows_carry_the_name_of_the_pool():
    assert flat(OUTER) == {"schema": 1, "decode_npus": 8}


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_never_reaches_json(bad):
    with pytest.raises(ValueError, match="Out of range float values"):
        Report([], [], {"tpot_s": bad}).render("json")


def test_json_ends_in_a_newline_and_keeps_greek():
    text = Report([], [], {"symbol": "η"}).render("json")
    assert text.endswith("}\n")
    assert "η" in text
    assert json.loads(text) == {"symbol": "η"}


def test_csv_without_rows_is_empty():
    assert Report([], [], None).render("csv") == ""
