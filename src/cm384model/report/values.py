"""Numbers as people read them; machine formats never pass through here."""

from __future__ import annotations

import math
from collections.abc import Iterable

_LARGE = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "K"))
_SMALL = ((1.0, ""), (1e-3, "m"), (1e-6, "u"), (1e-9, "n"))


def significant(value: float, digits: int = 4) -> str:
    """A number with thousands separators and some significant digits; whole numbers in full.

    >>> significant(1943.27), significant(0.0481238), significant(5376.0)
    ('1,943', '0.04812', '5,376')
    """
    if value == int(value) and abs(value) < 1e9:
        return f"{int(value):,}"
    magnitude = math.floor(math.log10(abs(value)))
    if not -5 <= magnitude < 9:
        return f"{value:.{digits}g}"
    return f"{value:,.{max(0, digits - 1 - magnitude)}f}"


def scale(values: Iterable[float], unit: str) -> tuple[float, str]:
    """Divisor and unit in which the largest of some values reads well.

    >>> scale([0.0015, 0.02], "s"), scale([2e9], "B")
    ((0.001, 'ms'), (1000000000.0, 'GB'))
    """
    largest = max((abs(value) for value in values), default=0.0)
    steps = _SMALL if unit.split("/")[0] == "s" else _LARGE if unit[:1] in ("B", "F") else ()
    for factor, prefix in steps:
        if largest >= factor:
            return factor, prefix + unit
    return 1.0, unit


def with_unit(value: float, unit: str, digits: int = 4) -> str:
    """A number of SI units with the prefix that suits it.

    >>> with_unit(5.05e-05, "s"), with_unit(1.6e12, "B/s"), with_unit(24.0, "-")
    ('50.50 us', '1.600 TB/s', '24')
    """
    factor, shown = scale([value], unit)
    text = significant(value / factor, digits)
    if unit == "-":
        return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text
    return f"{text} {shown}"


def npus_words(npus: float) -> str:
    """So many packages.

    >>> npus_words(1), npus_words(64.0)
    ('1 NPU', '64 NPUs')
    """
    return f"{npus:g} NPU{'s' if npus != 1 else ''}"


def limit_words(limit: float) -> str:
    """A time limit as it was asked for.

    >>> limit_words(0.007201), limit_words(5.0)
    ('7.201 ms', '5 s')
    """
    factor, unit = scale([limit], "s")
    return f"{limit / factor:.6g} {unit}"


def interval(low: float | None, high: float | None, unit: str, digits: int = 4) -> str:
    """The ends of an interval in one unit; empty where there is none.

    >>> interval(0.0444, 0.0542, "s"), interval(1843.2, 2087.5, "-"), interval(None, None, "s")
    ('44.40 .. 54.20 ms', '1,843 .. 2,088', '')
    """
    if low is None or high is None:
        return ""
    factor, shown = scale([high], unit)
    ends = f"{significant(low / factor, digits)} .. {significant(high / factor, digits)}"
    return ends if unit == "-" else f"{ends} {shown}"


def percent(share: float) -> str:
    """A share of a whole.

    >>> percent(0.2904)
    '29.0 %'
    """
    return f"{100 * share:.1f} %"


def signed(share: float) -> str:
    """A relative error or change.

    >>> signed(-0.0341), signed(0.0)
    ('-3.4 %', '+0.0 %')
    """
    return f"{100 * share + 0.0:+.1f} %".replace("-0.0 %", "+0.0 %")


def tokens(count: float) -> str:
    """A count of tokens, in K = 1024 where that is exact.

    >>> tokens(9216), tokens(1000)
    ('9K', '1000')
    """
    return f"{count / 1024:g}K" if count >= 1024 and count % 1024 == 0 else f"{count:g}"


def setting(value: object) -> str:
    """A value as ``--at`` takes it.

    >>> setting(320.0), setting(0.625), setting("int8")
    ('320', '0.625', 'int8')
    """
    if isinstance(value, float) and value == int(value):
        return f"{value:.0f}"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
