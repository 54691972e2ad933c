from __future__ import annotations

from cm384model.report.blocks import WIDTH, Command, Table, markdown, plain, wrapped

TABLE = Table(("name", "time\n[ms]", "source"), [("a", "1.5", "x|y"), ("bb", "10.0", "z")], "lrl")


def test_plain_text_has_no_boxes_and_no_trailing_space():
    assert plain([TABLE]) == "name  time  source\n      [ms]\na      1.5  x|y\nbb    10.0  z\n"


def test_markdown_escapes_the_bar():
    assert markdown([TABLE]) == (
        "| name | time [ms] | source |\n| --- | ---: | --- |\n| a | 1.5 | x\\|y |\n| bb | 10.0 | z |\n"
    )


def test_the_last_column_is_cut_to_the_width():
    wide = Table(("a", "b"), [("x", "y" * 200)], "ll")
    assert max(map(len, plain([wide]).splitlines())) == WIDTH


def test_commands_are_not_wrapped():
    assert plain([Command("c" * 300)]) == "  " + "c" * 300 + "\n"


def test_paragraphs_are_wrapped_with_a_hanging_indent():
    assert wrapped("aaa bbb ccc", 8) == "aaa bbb\n  ccc"


def test_a_narrow_table_is_split_and_every_part_names_its_rows():
    first, second = TABLE.split(10)
    assert (first.header, second.header) == (("name", "time\n[ms]"), ("name", "source"))
    assert second.rows == [("a", "x|y"), ("bb", "z")]
    assert TABLE.split(80) == [Table(TABLE.header, TABLE.rows, TABLE.align)]


def test_a_table_wider_than_a_page_is_split_and_stays_aligned():
    names = ("hardware", *(f"column_{i}" for i in range(14)))
    wide = Table(names, [("cloudmatrix384", *("1.5",) * 14), ("h800", *("10.0",) * 14)], "l" + "r" * 14)
    assert wide.width > WIDTH
    parts = [part.splitlines() for part in plain([wide]).split("\n\n")]
    assert len(parts) == 2
    for lines in parts:
        assert len({len(line) for line in lines}) == 1 <= len(lines[0]) <= WIDTH
        assert [line.split()[0] for line in lines] == ["hardware", "cloudmatrix384", "h800"]


def test_a_first_column_that_no_split_makes_narrower_is_kept():
    assert plain([Table(("a", "b"), [("x" * 130, "y")], "ll")]).splitlines() == [
        "a" + " " * 131 + "b",
        "x" * 130 + "  y",
    ]
