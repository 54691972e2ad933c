from __future__ import annotations

import dataclasses

import pytest

from cm384model.evidence.golden import against, check
from cm384model.report.ci import Outcome, github, junit
from cm384model.report.glossary import GLOSSARY

SHOWN = (
    check.Change,
    check.CaseChanges,
    check.CheckResult,
    against.QuantityChange,
    against.NumberChange,
    against.AgainstResult,
)


@pytest.mark.parametrize("result", SHOWN, ids=lambda result: result.__name__)
def test_every_field_of_a_check_is_in_the_glossary(result):
    assert {field.name for field in dataclasses.fields(result)} <= {entry.name for entry in GLOSSARY}


def test_what_github_would_misread_is_escaped():
    outcome = Outcome("a,b: c", "100 %\nnext", ["::error::no"], failed=True, file="/x/y,z.csv", line=3)
    assert github("check", [outcome]) == (
        "::error file=/x/y%2Cz.csv,line=3,title=check%3A a%2Cb%3A c::100 %25%0Anext%0A::error::no\n"
    )


def test_what_xml_would_misread_is_escaped():
    text = junit("check", [Outcome("a<b", "x & y", ['"<'], failed=True), Outcome("c", "same")])
    assert 'name="a&lt;b"' in text
    assert 'message="x &amp; y"' in text
    assert 'tests="2" failures="1"' in text
