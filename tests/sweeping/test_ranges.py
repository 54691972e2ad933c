"""What may stand behind ``--grid AXIS=``."""

from __future__ import annotations

import pytest

from cm384model.specs.diagnostics import SpecError
from cm384model.specs.units import parse_value
from cm384model.sweeping.ranges import spans, values_of

GOOD = {
    "one": ("320", "number", [320]),
    "list": ("32, 64,128", "number", [32, 64, 128]),
    "every whole number": ("3:6", "number", [3, 4, 5, 6]),
    "step": ("1:10:4", "number", [1, 5, 9]),
    "fractional step": ("1:2:0.5", "number", [1, 1.5, 2]),
    "step between fractions": ("0.5:0.7:0.1", "number", [0.5, 0.6, 0.7]),
    "factor": ("1K:8K:x2", "tokens", [1024, 2048, 4096, 8192]),
    "factor that misses the end": ("1:10:x3", "number", [1, 3, 9]),
    "points": ("0.5:0.9:n5", "number", [0.5, 0.6, 0.7, 0.8, 0.9]),
    "points of whole numbers": ("0:100:n3", "number", [0, 50, 100]),
    "points between units": ("1.6TB/s:3.2TB/s:5", "byte_rate", [1.6e12, 2e12, 2.4e12, 2.8e12, 3.2e12]),
    "step with a unit": ("30ms:50ms:10ms", "time", [0.03, 0.04, 0.05]),
    "ends in two units": ("800GB/s:1.6TB/s:n3", "byte_rate", [0.8e12, 1.2e12, 1.6e12]),
    "step with a suffix": ("1K:4K:1K", "tokens", [1024, 2048, 3072, 4096]),
    "percent": ("70%:90%:3", "number", [0.7, 0.8, 0.9]),
    "range and values": ("1:3,8,16", "number", [1, 2, 3, 8, 16]),
    "start and end alike": ("7:7", "number", [7]),
}


@pytest.mark.parametrize(("text", "dimension", "expected"), GOOD.values(), ids=GOOD)
def test_values(text, dimension, expected):
    found = spans(text, dimension)
    assert sum(span.count for span in found) == len(expected)
    assert values_of(found, lambda value: parse_value(value, dimension)).tolist() == expected


BAD = {
    "upside down": ("64:1", "number", "is an empty range"),
    "nothing": (",", "number", "there is no value"),
    "half": ("1:", "number", "neither a value nor a range"),
    "four parts": ("1:2:3:4", "number", "neither a value nor a range"),
    "no number": ("many", "number", "'many' is not a value"),
    "fractions without a step": ("0.5:0.9", "number", "needs a step, a factor or a number of points"),
    "units without a step": ("30ms:50ms", "time", "needs a step, a factor or a number of points"),
    "fractions and a whole number": ("0.5:0.9:5", "number", "can be read in two ways"),
    "suffix and a bare step": ("1K:128K:5", "tokens", "can be read in two ways"),
    "no unit": ("30:50", "time", "'30' needs a unit"),
    "wrong unit": ("30GB:50GB:5", "time", "measures bytes, not a time"),
    "unit at one end": ("30%:1:n3", "number", "has a unit at one end only"),
    "step in another dimension": ("1:64:1%", "number", "not in the unit of its ends"),
    "step of zero": ("1:64:0", "number", "must be above 0"),
    "factor of one": ("1:64:x1", "number", "does not grow"),
    "factor from zero": ("0:64:x2", "number", "does not grow"),
    "one point": ("1:64:n1", "number", "a whole number of at least 2"),
    "half a point": ("30ms:50ms:2.5", "time", "a whole number of at least 2"),
    "no third part": ("1:64:y3", "number", "no step, factor or number of points"),
    "twice": ("1:8,4", "number", "4 is given twice"),
    "very many": ("1:1000000000", "number", "has 1,000,000,000 values"),
}


@pytest.mark.parametrize(("text", "dimension", "said"), BAD.values(), ids=BAD)
def test_what_is_refused(text, dimension, said):
    with pytest.raises(SpecError) as error:
        values_of(spans(text, dimension), lambda value: parse_value(value, dimension))
    assert said in error.value.render()


@pytest.mark.parametrize("text", ["0.1:0.9:n17", "0.05:1:0.05", "1:2:x1.1", "33%:77%:12"])
def test_a_value_is_the_number_that_at_would_read(text):
    for value in values_of(spans(text, "number"), lambda one: parse_value(one, "number")):
        assert f"{value!r}".count("000000") == 0 or value == parse_value(f"{value!r}", "number")
    (span,) = spans(text, "number")
    assert [parse_value(one, "number") for one in span.texts()] == list(
        values_of([span], lambda one: parse_value(one, "number"))
    )
