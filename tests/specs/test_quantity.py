"""Rules of a quantity, and the float that remembers it."""

import copy
import pickle

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from cm384model.specs import quantity as q

PLAIN = {"value": 0.5, "unit": "-", "source": "paper s1", "kind": "vendor", "confidence": "B"}


def messages(caught):
    return [error["msg"] for error in caught.value.errors()]


def make(**changes):
    return q.Quantity.model_validate(
        {key: value for key, value in (PLAIN | changes).items() if value is not None}
    )


def test_accepts_integers_and_whole_provenance():
    made = make(
        value=3,
        range=[1, 4],
        note="n",
        alternatives=[{"value": 2, "source": "x", "kind": "fitted", "confidence": "C"}],
    )
    assert made.si == 3.0
    assert made.range_si == (1.0, 4.0)
    assert made.alternatives[0].value == 2.0


@pytest.mark.parametrize("value", [True, "0.5", float("inf"), float("nan"), -1, 1e300, 1e-300, [1]])
def test_refuses_values(value):
    with pytest.raises(ValidationError):
        make(value=value)


@pytest.mark.parametrize("key", ["value", "unit", "source", "kind", "confidence"])
def test_every_key_is_required(key):
    with pytest.raises(ValidationError, match=key):
        make(**{key: None})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"unit": "GBs"}, "unknown unit 'GBs'. Did you mean"),
        ({"unit": "GB"}, "missing key 'per': 'GB' per what?"),
        ({"unit": "GB/s"}, "missing key 'per': 'GB/s' per what?"),
        ({"unit": "TFLOP/s"}, "missing key 'per': 'TFLOP/s' per what?"),
        ({"range": [1, 0]}, "range [1, 0] is upside down"),
        ({"range": [0.6, 1]}, "value 0.5 lies outside its range [0.6, 1]"),
        ({"source": "guess", "range": [0, 1]}, "source 'guess' needs kind 'assumed', not 'vendor'"),
        ({"source": "guess", "kind": "assumed"}, "source 'guess' needs a range"),
        ({"source": " "}, "source must not be empty"),
        ({"value": -1}, "value must not be negative, is -1"),
    ],
)
def test_rules(changes, message):
    with pytest.raises(ValidationError) as caught:
        make(**changes)
    (said,) = messages(caught)
    assert said.startswith(message)


@pytest.mark.parametrize("unit", ["-", "%", "ms", "tokens", "tokens/s", "requests/s", "FLOP"])
def test_per_is_optional_where_it_says_nothing(unit):
    assert make(unit=unit).per is None


def test_several_rules_broken_are_all_reported():
    with pytest.raises(ValidationError) as caught:
        make(unit="GB", source="guess", kind="vendor")
    assert len(messages(caught)) == 3


def test_sources_are_checked_when_known():
    context = {"sources": ["paper"]}
    for source in ("paper s1", "paper", "guess", "choice", "derived: 2 x 3", "fit: points"):
        q.Quantity.model_validate(
            PLAIN | {"source": source, "kind": "assumed", "range": [0, 1]}, context=context
        )
    with pytest.raises(ValidationError, match=r"unknown source 'papr'\. Did you mean 'paper'\?"):
        q.Quantity.model_validate(PLAIN | {"source": "papr s1"}, context=context)


def test_si_is_a_float_that_remembers():
    made = make(value=1600, unit="GB/s", per="die")
    made.at("hardware.die.hbm_bandwidth")
    assert made.si == 1.6e12
    assert isinstance(made.si, float)
    assert made.si is made.si
    assert made.si.quantity is made
    assert made.si.path == made.path == "hardware.die.hbm_bandwidth"
    assert type(made.si * 2) is float
    again = pickle.loads(pickle.dumps(made.si))
    assert (again, again.path, again.quantity) == (made.si, made.si.path, made)
    assert copy.deepcopy(made) == made


@pytest.mark.parametrize(
    ("value", "unit", "si"), [(70, "%", 0.7), (35, "us", 35e-6), (1.2, "us", 1.2e-6), (224, "Gbit/s", 28e9)]
)
def test_si_is_exact(value, unit, si):
    assert make(value=value, unit=unit, per="die").si == si


def test_with_si_takes_numbers_and_arrays():
    made = make(value=50, unit="ms")
    made.at("workload.slo.tpot")
    assert made.si == 0.05
    other = made.with_si(0.04)
    assert (other.si, other.si.path, other.unit, made.si) == (0.04, "workload.slo.tpot", "s", 0.05)
    array = made.with_si(np.array([0.01, 0.02])).si
    assert type(array) is np.ndarray
    assert array.tolist() == [0.01, 0.02]


GOOD_UNIT = {
    "Time": "ms",
    "Deadline": "s",
    "Bytes": "GB",
    "ByteRate": "GB/s",
    "FlopRate": "TFLOP/s",
    "Tokens": "tokens",
    "Count": "-",
    "CountOrZero": "-",
    "Share": "-",
    "Efficiency": "-",
    "Ratio": "-",
}
ZERO_IS_FINE = {"Time", "CountOrZero", "Share", "Ratio"}


def field(name, **changes):
    raw = PLAIN | {"unit": GOOD_UNIT[name], "per": "die", "value": 1} | changes
    return TypeAdapter(getattr(q, name)).validate_python(raw)


@pytest.mark.parametrize("name", GOOD_UNIT)
def test_field_types(name):
    assert field(name).value == 1
    with pytest.raises(ValidationError, match="must not be negative"):
        field(name, value=-1)
    with pytest.raises(ValidationError, match="measures requests per second, not") as caught:
        field(name, unit="requests/s")
    assert GOOD_UNIT[name] in caught.value.errors()[0]["ctx"]["hint"]
    if name in ZERO_IS_FINE:
        assert field(name, value=0).si == 0
    else:
        with pytest.raises(ValidationError, match="value must be"):
            field(name, value=0)


@pytest.mark.parametrize("name", ["Share", "Efficiency"])
def test_parts_of_a_whole(name):
    assert field(name, value=70, unit="%").si == 0.7
    with pytest.raises(ValidationError, match=r"at most 1, is 1\.2"):
        field(name, value=1.2)
    with pytest.raises(ValidationError, match="range must be"):
        field(name, value=0.5, range=[0.5, 1.5])


@pytest.mark.parametrize("name", ["Count", "CountOrZero"])
def test_counts_are_whole(name):
    with pytest.raises(ValidationError, match=r"whole number, at least [01], is 1\.5"):
        field(name, value=1.5)
