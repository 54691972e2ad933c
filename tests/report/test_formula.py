from __future__ import annotations

import pytest

from cm384model.lawdoc import read_lawdoc
from cm384model.numeric import LAWS
from cm384model.report.formula import readable
from cm384model.report.listing import listing

listing("laws")  # imports every law


@pytest.mark.parametrize(
    ("latex", "text"),
    [
        (r"t = \frac{a + b}{\eta\,\beta}", "t = (a + b) / (η β)"),
        (r"t = \frac{a}{b} c", "t = a / b · c"),
        (r"t = \frac{a}{b} + c", "t = a / b + c"),
        (r"\left\lceil \frac{M}{T_M} \right\rceil", "⌈M / T_M⌉"),
        (r"\min\left(1, \frac{a}{b}\right)", "min(1, a / b)"),
        (r"d_{qk}^{n + 1}", "d_qk^(n + 1)"),
        (r"S = \begin{cases} a & m \le 1 \\ b & m > 1 \end{cases}", "S = {a if m ≤ 1; b if m > 1}"),
        (r"a = b, \qquad b = c", "a = b,   b = c"),
    ],
)
def test_latex_becomes_readable(latex, text):
    assert readable(latex) == text


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_every_law_has_a_formula_without_latex_left(law):
    doc = read_lawdoc(law)
    texts = [readable(text) for text in (doc.formula, *(operand.symbol for operand in doc.operands))]
    assert "=" in texts[0]
    for text in texts:
        assert not set(text) & set("\\\x01\x02")
        assert max(map(len, text.split(",   "))) <= 116
        assert text.count("(") == text.count(")")
