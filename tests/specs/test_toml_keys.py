"""Where keys stand, whatever strings and comments try."""

from cm384model.specs.toml_keys import key_places

TEXT = (
    r"""# [not.a.table]
top = "a = 1 # no comment" # b = 2
"quoted key" = 'it"""
    + r"""'
long = '''
inner = 1
'''
basic = '''x''' # closed
[a.b]   # header
c.d = { e = 1, "f" = [ { g = 2 }, { g = 3 } ] }
many = [
  1.5, # one
  "]",
]
[[rows]]
x = 1
[[rows]]
x = 2
[rows.sub]
y = 1979-05-27T07:32:00Z
"""
)


def test_places():
    places = {loc: tuple(place) for loc, place in key_places(TEXT).items()}
    assert places == {
        ("top",): (2, 1, 3),
        ("quoted key",): (3, 1, 12),
        ("long",): (4, 1, 4),
        ("basic",): (7, 1, 5),
        ("a",): (8, 2, 3),
        ("a", "b"): (8, 2, 3),
        ("a", "b", "c"): (9, 1, 3),
        ("a", "b", "c", "d"): (9, 1, 3),
        ("a", "b", "c", "d", "e"): (9, 9, 1),
        ("a", "b", "c", "d", "f"): (9, 16, 3),
        ("a", "b", "c", "d", "f", 0): (9, 24, 1),
        ("a", "b", "c", "d", "f", 0, "g"): (9, 26, 1),
        ("a", "b", "c", "d", "f", 1): (9, 35, 1),
        ("a", "b", "c", "d", "f", 1, "g"): (9, 37, 1),
        ("a", "b", "many"): (10, 1, 4),
        ("a", "b", "many", 0): (11, 3, 1),
        ("a", "b", "many", 1): (12, 3, 3),
        ("rows",): (14, 3, 4),
        ("rows", 0): (14, 3, 4),
        ("rows", 0, "x"): (15, 1, 1),
        ("rows", 1): (16, 3, 4),
        ("rows", 1, "x"): (17, 1, 1),
        ("rows", 1, "sub"): (18, 2, 8),
        ("rows", 1, "sub", "y"): (19, 1, 1),
    }


def test_empty_text():
    assert key_places("") == {}
