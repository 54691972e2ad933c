"""The words and the shape of every error a data file can cause."""

import pytest

from cm384model.specs.diagnostics import Problem, SpecError, did_you_mean
from cm384model.specs.load import load_engine, load_hardware, load_workload


@pytest.fixture
def complaint(example, tmp_path, monkeypatch):
    """What is said about an example file after some replacements."""
    monkeypatch.chdir(tmp_path)
    load = {"hardware": load_hardware, "workload": load_workload, "engine": load_engine}

    def complain(kind, *changes):
        text = (example / f"{kind}.toml").read_text()
        for old, new in changes:
            assert old in text
            text = text.replace(old, new, 1)
        (tmp_path / "bad.toml").write_text(text)
        with pytest.raises(SpecError) as caught:
            load[kind](tmp_path / "bad.toml")
        return caught.value.render() + "\n"

    return complain


def test_unknown_key(complaint):
    assert complaint("hardware", ("hbm_bandwidth", "hbm_bandwith")) == """\
error: die.hbm_bandwith: unknown key 'hbm_bandwith'. Did you mean 'hbm_bandwidth'?
 --> bad.toml:19:1
  |
19| hbm_bandwith = { value = 1600, unit = "GB/s", per = "die", source = "paper s1", kind = "vendor", confidence = "B", note = "nominal" }
  | ^^^^^^^^^^^^
"""  # fmt: skip  # noqa: E501


def test_unknown_key_of_a_short_table_lists_the_keys(complaint):
    assert (
        complaint("workload", ("tpot =", "tp0t ="))
        == """\
error: slo.tp0t: unknown key 'tp0t'. Did you mean 'tpot'?
 --> bad.toml:15:1
  |
15| tp0t = { value = 50, unit = "ms", source = "choice", kind = "assumed", confidence = "D" }
  | ^^^^

hint: keys here are tpot, ttft
"""
    )


def test_wrong_unit(complaint):
    assert (
        complaint("workload", ('"ms"', '"GB"'), ('"tokens"', '"token"'))
        == """\
error: traffic.prompt_len: unknown unit 'token'. Did you mean 'tokens'?
 --> bad.toml:11:30
  |
11| prompt_len = { value = 4096, unit = "token", source = "choice", kind = "assumed", confidence = "D" }
  |                              ^^^^

hint: use tokens

error: slo.tpot: missing key 'per': 'GB' per what?
 --> bad.toml:15:1
  |
15| tpot = { value = 50, unit = "GB", source = "choice", kind = "assumed", confidence = "D" }
  | ^^^^

hint: for example per = "die"
"""
    )


def test_unit_of_another_dimension(complaint):
    assert (
        complaint("workload", ('"ms"', '"tokens"'))
        == """\
error: slo.tpot: unit 'tokens' measures tokens, not a time
 --> bad.toml:15:22
  |
15| tpot = { value = 50, unit = "tokens", source = "choice", kind = "assumed", confidence = "D" }
  |                      ^^^^

hint: use s, ms, us, ns, min, h
"""
    )


def test_missing_number(complaint):
    assert complaint("hardware", ("tile_m =", "# tile_m ="), ("tile_n =", "# tile_n ="), ("dies =", "# dies =")) == """\
error: die: missing keys 'tile_m', 'tile_n'
 --> bad.toml:10:2
  |
10| [die]
  |  ^^^

hint: tile_m = { value = 1, unit = "-", source = "...", kind = "...", confidence = "..." }

error: npu: missing key 'dies'
 --> bad.toml:23:2
  |
23| [npu]
  |  ^^^

hint: dies = { value = 1, unit = "-", source = "...", kind = "...", confidence = "..." }
"""  # fmt: skip  # noqa: E501


def test_missing_value(complaint):
    assert (
        complaint("workload", ("value = 50, ", ""))
        == """\
error: slo.tpot: missing key 'value'
 --> bad.toml:15:1
  |
15| tpot = { unit = "ms", source = "choice", kind = "assumed", confidence = "D" }
  | ^^^^
"""
    )


def test_bare_number(complaint):
    assert "slo.tpot: needs a number with its unit and source, not 50\n --> bad.toml:15:1" in complaint(
        "workload",
        ('{ value = 50, unit = "ms", source = "choice", kind = "assumed", confidence = "D" }', "50"),
    )


def test_negative_and_zero_length(complaint):
    assert (
        complaint("workload", ("4096", "-1"), ("1024", "0"))
        == """\
error: traffic.prompt_len: value must not be negative, is -1
 --> bad.toml:11:16
  |
11| prompt_len = { value = -1, unit = "tokens", source = "choice", kind = "assumed", confidence = "D" }
  |                ^^^^^

error: traffic.output_len: value must be above 0, is 0 tokens
 --> bad.toml:12:16
  |
12| output_len = { value = 0, unit = "tokens", source = "choice", kind = "assumed", confidence = "D" }
  |                ^^^^^
"""
    )


def test_syntax_error(complaint):
    assert (
        complaint("workload", ("[slo]", "[slo"))
        == """\
error: not valid TOML: Expected ']' at the end of a table declaration
 --> bad.toml:14:5
  |
14| [slo
  |     ^
"""
    )


def test_syntax_error_at_the_end(complaint):
    said = complaint("workload", ('engine = "plain"\n', "engine ="))
    assert said.startswith("error: not valid TOML: Invalid value\n --> bad.toml:24:9\n")


def test_everything_wrong_is_said_at_once_in_file_order(complaint):
    said = complaint(
        "hardware",
        ("schema = 1", "schema = 2"),
        ("announced = false", 'announced = "no"'),
        ("value = 24,", "value = true,"),
        ('"paper s2"', '"papr s2"'),
        ('unit = "GB"', 'unit = "GBs"'),
        ("[npu]", "[npuu]"),
        ("value = 48, unit", "value = 0.5, unit"),
        ("[fabric.rdma]", "[fabrik.rdma]"),
        ('kind = "measured"', 'kind = "measurd"'),
        ("[0.7, 0.85]", "[0.7]"),
        (", range = [1, 10]", ""),
        ('"total_npus"', '"total_npu"'),
    )
    assert [line for line in said.splitlines() if line.startswith("error")] == [
        "error: schema: 2 is not allowed",
        "error: announced: needs true or false, not 'no'",
        "error: die.aic_cores.value: needs a number, not true",
        "error: die.aiv_cores: value must be a whole number, at least 1 and at most 1000, is 0.5",
        "error: die.bf16_flop_rate.alternatives[0]: unknown source 'papr'. Did you mean 'paper'?",
        "error: die.hbm_capacity: unknown unit 'GBs'. Did you mean 'GB'?",
        "error: npuu: unknown key 'npuu'. Did you mean 'npu'?",
        "error: fabric: missing key 'rdma'",
        "error: fabric.ub.die_to_die.bandwidth.kind: 'measurd' is not allowed. Did you mean 'measured'?",
        "error: fabrik: unknown key 'fabrik'. Did you mean 'fabric'?",
        "error: ops.gemm_int8.efficiency: range needs two finite numbers",
        "error: ops.gemm_int8.launch_latency: source 'guess' needs a range",
        "error: checks[0].property: no derived property 'total_npu'. Did you mean 'total_npus'?",
    ]
    assert "hint: one of defined, vendor, measured, fitted, secondary, assumed" in said


def test_free_names_must_be_words(complaint):
    said = complaint("engine", ("stream_overlap =", '"over lap" ='))
    assert said.startswith("error: constants.over lap: name 'over lap' must be a lower_case_word\n")


def test_unreadable_file(tmp_path):
    (tmp_path / "bad.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(SpecError, match=r"bad\.toml': it is not UTF-8 text"):
        load_engine(tmp_path / "bad.toml")


def test_command_line_problem_is_message_and_hint():
    assert (
        SpecError.of("no such thing", "try another").render() == "error: no such thing\n\nhint: try another"
    )


def test_tabs_and_long_line_numbers_keep_the_caret_in_place():
    problem = Problem("m", "f.toml", 1234, 2, 3, "\tabc = 1")
    assert problem.render() == "error: m\n   --> f.toml:1234:2\n    |\n1234|  abc = 1\n    |  ^^^"


def test_did_you_mean():
    assert did_you_mean("Tpot", ["ttft", "tpot"]) == "tpot"
    assert did_you_mean("zzz", ["ttft", "tpot"]) is None
