"""Every unit of the closed table, and values as typed on the command line."""

import pytest

from cm384model.specs.diagnostics import SpecError
from cm384model.specs.units import NOUN, SI_UNIT, UNITS, parse_measure, parse_value, units_of

EXPECTED = {
    "-": ("number", 1),
    "1": ("number", 1),
    "%": ("number", 0.01),
    "s": ("time", 1),
    "ms": ("time", 0.001),
    "us": ("time", 0.000001),
    "\u00b5s": ("time", 0.000001),
    "\u03bcs": ("time", 0.000001),
    "ns": ("time", 0.000000001),
    "min": ("time", 60),
    "h": ("time", 3600),
    "B": ("bytes", 1),
    "KB": ("bytes", 1_000),
    "MB": ("bytes", 1_000_000),
    "GB": ("bytes", 1_000_000_000),
    "TB": ("bytes", 1_000_000_000_000),
    "KiB": ("bytes", 1_024),
    "MiB": ("bytes", 1_048_576),
    "GiB": ("bytes", 1_073_741_824),
    "TiB": ("bytes", 1_099_511_627_776),
    "B/s": ("byte_rate", 1),
    "KB/s": ("byte_rate", 1_000),
    "MB/s": ("byte_rate", 1_000_000),
    "GB/s": ("byte_rate", 1_000_000_000),
    "TB/s": ("byte_rate", 1_000_000_000_000),
    "GiB/s": ("byte_rate", 1_073_741_824),
    "TiB/s": ("byte_rate", 1_099_511_627_776),
    "bit/s": ("byte_rate", 0.125),
    "Kbit/s": ("byte_rate", 125),
    "Mbit/s": ("byte_rate", 125_000),
    "Gbit/s": ("byte_rate", 125_000_000),
    "Tbit/s": ("byte_rate", 125_000_000_000),
    "Gbps": ("byte_rate", 125_000_000),
    "FLOP": ("flop", 1),
    "GFLOP": ("flop", 1_000_000_000),
    "TFLOP": ("flop", 1_000_000_000_000),
    "FLOP/s": ("flop_rate", 1),
    "GFLOP/s": ("flop_rate", 1_000_000_000),
    "TFLOP/s": ("flop_rate", 1_000_000_000_000),
    "PFLOP/s": ("flop_rate", 1_000_000_000_000_000),
    "TOP/s": ("flop_rate", 1_000_000_000_000),
    "TOPS": ("flop_rate", 1_000_000_000_000),
    "tokens": ("tokens", 1),
    "tokens/s": ("token_rate", 1),
    "requests/s": ("request_rate", 1),
    "/s": ("request_rate", 1),
}


def test_table_is_exactly_this():
    assert {name: (unit.dimension, unit.to_si(1)) for name, unit in UNITS.items()} == EXPECTED


def test_every_dimension_has_an_si_unit_and_a_noun():
    dimensions = {unit.dimension for unit in UNITS.values()}
    assert set(SI_UNIT) == set(NOUN) == dimensions
    for dimension, name in SI_UNIT.items():
        assert UNITS[name].to_si(1) == 1
        assert name in units_of(dimension)


@pytest.mark.parametrize(
    ("text", "dimension", "si"),
    [
        ("50ms", "time", 0.05),
        ("35 us", "time", 35e-6),
        ("1.6TB/s", "byte_rate", 1.6e12),
        ("224Gbit/s", "byte_rate", 28e9),
        ("4K", "tokens", 4096),
        ("1M", "tokens", 1048576),
        ("2_048", "tokens", 2048),
        ("2048 tokens", "tokens", 2048),
        ("4K", "number", 4096),
        ("0.7", "number", 0.7),
        (".5", "number", 0.5),
        ("70%", "number", 0.7),
        ("1e3", "number", 1000),
        ("353.9TFLOP/s", "flop_rate", 353.9e12),
    ],
)
def test_parse_value(text, dimension, si):
    assert parse_value(text, dimension) == si


def test_parse_measure_keeps_what_was_written():
    assert parse_measure("1.8TB/s", "byte_rate") == (1.8, "TB/s")


@pytest.mark.parametrize(
    ("text", "dimension", "message", "hint"),
    [
        ("50", "time", "'50' needs a unit: 50ms, 50s", None),
        ("64", "bytes", "'64' needs a unit: 64GB, 64GiB", None),
        ("5", "request_rate", "'5' needs a unit: 5requests/s", None),
        ("50GB", "time", "'50GB' measures bytes, not a time", "units are s, ms, us, ns, min, h"),
        (
            "50mss",
            "time",
            "unknown unit 'mss' in '50mss'. Did you mean 'ms'?",
            "units are s, ms, us, ns, min, h",
        ),
        (
            "50MS",
            "time",
            "unknown unit 'MS' in '50MS'. Did you mean 'ms'?",
            "units are s, ms, us, ns, min, h",
        ),
        ("4K", "time", "unknown unit 'K' in '4K'", "units are s, ms, us, ns, min, h"),
        ("soon", "time", "'soon' is not a value", "units are s, ms, us, ns, min, h"),
        ("", "tokens", "'' is not a value", "write a count of tokens: 2048, 4K"),
        ("-5ms", "time", "'-5ms' must be finite and not negative", None),
        ("1e999s", "time", "'1e999s' must be finite and not negative", None),
    ],
)
def test_parse_value_refuses(text, dimension, message, hint):
    with pytest.raises(SpecError) as caught:
        parse_value(text, dimension)
    (problem,) = caught.value.problems
    assert (problem.message, problem.hint, problem.file) == (message, hint, None)
