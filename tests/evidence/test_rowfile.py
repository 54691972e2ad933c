from __future__ import annotations

import json

import pytest

from cm384model.evidence.published import read_rows
from cm384model.evidence.rowfile import read_lines
from cm384model.specs.diagnostics import SpecError

COLUMNS = ("id", "value", "unit")


def lines(tmp_path, text, name="rows.csv"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return read_lines(path, COLUMNS, ("id", "value"))


def test_lines_know_where_they_stand(tmp_path):
    first, second = lines(tmp_path, "# of today\nid,value\n\na,1\nb,2\n")
    assert (first.number, second.number, second.text, second.names_at) == (4, 5, "b,2", 2)
    assert (second["value"], second["unit"]) == ("2", "")


def test_a_quoted_line_end_does_not_shift_the_lines_below(tmp_path):
    assert lines(tmp_path, 'id,value\n"a\nb",1\nc,2\n')[1].number == 4


def test_json_and_csv_say_the_same(tmp_path):
    text = json.dumps([{"id": "a", "value": 1, "unit": None}, {"id": "b", "value": 2.5}], indent=1)
    first, second = lines(tmp_path, text, "rows.json")
    assert (first["value"], first["unit"], second["value"]) == ("1", "", "2.5")
    assert (first.number, second.number) == (2, 7)


@pytest.mark.parametrize(
    ("name", "text", "said", "line"),
    [
        ("r.csv", "", "there is no row", 1),
        ("r.csv", "id,value\n", "there is no row", 1),
        ("r.csv", "id,valu\na,1\n", "unknown column 'valu'. Did you mean 'value'?", 1),
        ("r.csv", "# x\nid\na\n", "there is no column 'value'", 2),
        ("r.csv", "id,value,value\na,1,1\n", "column 'value' stands twice", 1),
        ("r.csv", "id,value\na,1,2\n", "3 cells under 2 columns", 2),
        ("r.csv", "id,value\na,1\na,2\n", "the id stands in line 2 too", 3),
        ("r.csv", "id,value\n,1\n", "the row has no id", 2),
        ("r.json", '{"id": "a"}', "needs a list of objects", 1),
        ("r.json", "[1]", "needs an object", 1),
        ("r.json", '[\n{"id": "a",', "not valid JSON", 2),
        ("r.json", '[\n{"id": "a", "id": "b"}]', "'id' stands twice", 2),
        ("r.json", '[\n{"id": "a", "value": 1},\n{"id": "b", "valu": 1}]', "unknown column 'valu'", 3),
    ],
)
def test_what_is_wrong_is_said_once_at_its_line(tmp_path, name, text, said, line):
    with pytest.raises(SpecError) as error:
        lines(tmp_path, text, name)
    (problem,) = error.value.problems
    assert said in problem.message
    assert problem.line == line
    assert problem.file.endswith(name)


def test_a_missing_and_a_binary_file(tmp_path):
    with pytest.raises(SpecError, match="No such file"):
        read_lines(tmp_path / "no.csv", COLUMNS, ())
    (tmp_path / "b.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpecError, match="not UTF-8"):
        read_lines(tmp_path / "b.csv", COLUMNS, ())


def test_faults_of_a_ledger_come_all_at_once(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text(
        "id,subject,at,quantity,published,unit,band,used_for_fit\n"
        'a,decode,"ep=320,batch_per_die=48",tpot_s,50,ms,0.1,yes\n'
        "b,decod,ep=320,tpot_s,50,ms,0.1,no\n"
        "c,op gemm,m=1,time,50,ms,0.1,no\n"
        "d,op gemm,m=1,time_s,50,GB,0.1,no\n"
        "e,op gemm,m=1,time_s,50,ms,,no\n"
        "f,op gemm,m=1,time_s,50,ms,0.1,maybe\n"
    )
    with pytest.raises(SpecError) as error:
        read_rows(path)
    assert [problem.line for problem in error.value.problems] == [3, 4, 5, 6, 7]
    assert "Did you mean 'decode'?" in str(error.value)


def test_a_ledger_of_ones_own_is_read_in_si_units(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text(
        'id,subject,at,quantity,published,unit,band\na,decode,"ep=320,batch_per_die=48",tpot_s,50,ms,0.1\n'
    )
    (row,) = read_rows(path)
    assert (row.published, row.unit, row.group, row.used_for_fit) == (0.05, "s", "mine", False)
    assert (row.hardware, row.engine) == ("cloudmatrix384", "cloudmatrix-infer")
