from __future__ import annotations

import dataclasses

import pytest

from cm384model.evidence import calibration, sensitivity, targets, validate
from cm384model.planning import compare as plan_compare
from cm384model.planning import results as planning
from cm384model.prediction import capacity, compare, explain
from cm384model.prediction import results as prediction
from cm384model.report.glossary import GLOSSARY
from cm384model.specs.deployment import COLOCATED_FIELDS, DECODE_FIELDS, OPERATOR_FIELDS, PREFILL_FIELDS

NAMES = [entry.name for entry in GLOSSARY]
EVIDENCE = (calibration, sensitivity, targets, validate)
RESULTS = [
    value
    for module in (prediction, planning, explain, capacity, compare, plan_compare, *EVIDENCE)
    for value in vars(module).values()
    if dataclasses.is_dataclass(value)
    and value.__module__ == module.__name__
    and value.__name__[0] != "_"
    and value is not targets.Answers
]
SUFFIXES = {
    "_s": "s",
    "_bytes": "B",
    "_tokens_per_s": "tokens/s",
    "_bytes_per_s": "B/s",
    "_tokens_per_s_per_npu": "tokens/s",
    "requests_per_s": "requests/s",
}


def test_no_name_twice():
    assert len(NAMES) == len(set(NAMES))


@pytest.mark.parametrize("result", RESULTS, ids=lambda result: result.__name__)
def test_every_field_of_a_result_is_in_the_glossary(result):
    fields = {f.name for f in dataclasses.fields(result) if not f.name.startswith("raw_")}
    assert {name.removesuffix("_low").removesuffix("_high") for name in fields} <= set(NAMES)


@pytest.mark.parametrize(
    "fields", [DECODE_FIELDS, PREFILL_FIELDS, COLOCATED_FIELDS, *OPERATOR_FIELDS.values()]
)
def test_everything_that_at_takes_is_in_the_glossary(fields):
    assert set(fields) <= set(NAMES)


@pytest.mark.parametrize("entry", GLOSSARY, ids=NAMES)
def test_the_name_carries_the_unit(entry):
    assert entry.meaning
    assert len(entry.meaning) <= 80
    known = [unit for suffix, unit in SUFFIXES.items() if entry.name.endswith(suffix)]
    if known:
        assert entry.unit in known
