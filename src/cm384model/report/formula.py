"""LaTeX of the laws' docstrings as one line of plain text."""

from __future__ import annotations

import re

_END_OF_FRACTION, _WIDE_SPACE = "\x01", "\x02"
_SYMBOLS = {
    "alpha": "α",
    "beta": "β",
    "gamma": "γ",
    "delta": "δ",
    "eta": "η",
    "lambda": "λ",
    "mu": "μ",
    "phi": "φ",
    "rho": "ρ",
    "sigma": "σ",
    "tau": "τ",
    "omega": "ω",
    "cdot": "·",
    "times": "×",
    "dots": "…",
    "le": "≤",
    "ge": "≥",
    "lceil": "⌈",
    "rceil": "⌉",
    "lfloor": "⌊",
    "rfloor": "⌋",
    "sum": "Σ",
    "quad": _WIDE_SPACE,
    "qquad": _WIDE_SPACE,
    ",": " ",
    ";": " ",
    "{": "{",
    "}": "}",
}
_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|[{}^_]|[A-Za-z0-9.']+|\s+|.")
_SIMPLE = re.compile(r"[\w.'∞…]+")


def readable(latex: str) -> str:
    r"""A formula as plain text.

    >>> readable(r"t = \alpha + \frac{F}{\eta P} \left(1 + \frac{m}{\beta_l}\right)")
    't = α + F / (η P) · (1 + m / β_l)'
    """
    text = re.sub(r"\\begin\{cases\}(.*?)\\end\{cases\}", _cases, latex)
    tokens = [token for token in _TOKEN.findall(text) if token not in (r"\left", r"\right")]
    written, _ = _sequence(tokens, 0)
    written = re.sub(_END_OF_FRACTION + r"\s*(?=[\w(⌈⌊])", " · ", written).replace(_END_OF_FRACTION, "")
    written = re.sub(r" +", " ", written).replace(_WIDE_SPACE, " ")
    return re.sub(r"([(⌈⌊\[]) +", r"\1", re.sub(r" +([)⌉⌋\],])", r"\1", written)).strip()


def _cases(match: re.Match[str]) -> str:
    """``{ a if c; b if d }``."""
    rows = [row.split("&") for row in match[1].split(r"\\")]
    return r"\{" + "; ".join(" if ".join(part.strip() for part in row) for row in rows) + r"\}"


def _sequence(tokens: list[str], position: int) -> tuple[str, int]:
    """Text of the tokens up to the brace that closes this group, and the position after it."""
    parts: list[str] = []
    while position < len(tokens) and tokens[position] != "}":
        text, position = _item(tokens, position)
        parts.append(text)
    return "".join(parts), position + 1


def _item(tokens: list[str], position: int) -> tuple[str, int]:
    token = tokens[position]
    if token == "{":
        return _sequence(tokens, position + 1)
    if token in "^_" and len(token) == 1:
        text, position = _argument(tokens, position + 1)
        return token + (text if _SIMPLE.fullmatch(text) else f"({text})"), position
    if token == r"\frac":
        top, position = _argument(tokens, position + 1)
        bottom, position = _argument(tokens, position)
        return f" {_factor(top)} / {_factor(bottom, below=True)}{_END_OF_FRACTION} ", position
    if token == r"\mathrm":
        return _argument(tokens, position + 1)
    if token.startswith("\\"):
        return _SYMBOLS.get(token[1:], token[1:]), position + 1
    return (" " if token.isspace() else token), position + 1


def _argument(tokens: list[str], position: int) -> tuple[str, int]:
    while tokens[position].isspace():
        position += 1
    text, position = _item(tokens, position)
    return text.strip(), position


def _factor(text: str, *, below: bool = False) -> str:
    """The text in brackets where a fraction needs them."""
    text = text.replace(_END_OF_FRACTION, "")
    outside = re.sub(r"\([^()]*\)|⌈[^⌈⌉]*⌉", "", re.sub(r"\([^()]*\)", "", text))
    return f"({text})" if re.search(r" [+/-] | / " + (r"| |\w\(" if below else ""), outside) else text
