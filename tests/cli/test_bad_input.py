from __future__ import annotations

import shutil

import pytest

from cm384model.specs.catalogue import data_root

WORKLOAD = "deepseek-r1-4k-256"
AT = ("--at", "ep=320,batch_per_die=48")

CASES = {
    "unknown workload": (("plan", "deepseek-r1-4k-265"), "Did you mean 'deepseek-r1-4k-256'?"),
    "unknown hardware": (("plan", WORKLOAD, "--hardware", "cloudmatrix"), "Did you mean 'cloudmatrix384'?"),
    "unknown engine": (
        ("plan", WORKLOAD, "--engine", "cloudmatrix-inf"),
        "Did you mean 'cloudmatrix-infer'?",
    ),
    "missing file": (("plan", "./no-such.toml"), "no workload file './no-such.toml'"),
    "limit without a unit": (("plan", WORKLOAD, "--slo", "tpot=50"), "tpot: '50' needs a unit: 50ms, 50s"),
    "limit of the wrong unit": (("plan", WORKLOAD, "--slo", "tpot=50GB"), "measures bytes, not a time"),
    "limit of zero": (("plan", WORKLOAD, "--slo", "tpot=0ms"), "tpot = 0ms is out of bounds"),
    "unknown limit": (("plan", WORKLOAD, "--slo", "tpto=50ms"), "Did you mean 'tpot'?"),
    "too many npus": (
        ("plan", WORKLOAD, "--npus", "385"),
        "cloudmatrix384 has 384 NPUs; --set cluster.supernodes=2 makes it 768",
    ),
    "no npus": (("plan", WORKLOAD, "--npus", "0"), "npus = 0 is out of bounds"),
    "npus no number": (("plan", WORKLOAD, "--npus", "many"), "--npus = 'many' is not a whole number"),
    "top of zero": (("plan", WORKLOAD, "--top", "0"), "top = 0 is out of bounds"),
    "unknown format": (("plan", WORKLOAD, "--format", "jsn"), "Did you mean 'json'?"),
    "unknown phase": (("predict", WORKLOAD, "--phase", "decod", *AT), "Did you mean 'decode'?"),
    "unknown option": (("plan", WORKLOAD, "--formt", "json"), "Did you mean '--format'?"),
    "unknown command": (("pln",), "Did you mean 'plan'"),
    "unknown kind": (("list", "law"), "Did you mean 'laws'?"),
    "missing workload": (("plan",), "missing argument 'WORKLOAD'"),
    "missing deployment": (("predict", WORKLOAD), "needs ep and batch_per_die"),
    "unknown at": (("predict", WORKLOAD, "--at", "ep=320,batch_per_di=48"), "Did you mean 'batch_per_die'?"),
    "at without a value": (("predict", WORKLOAD, "--at", "ep"), "'ep' is not name=value"),
    "half an npu": (("predict", WORKLOAD, "--at", "ep=321,batch_per_die=48"), "nearest: 320 or 322"),
    "more dies than there are": (
        ("predict", WORKLOAD, "--at", "ep=770,batch_per_die=48"),
        "more than the 768 dies",
    ),
    "negative length": (
        ("predict", WORKLOAD, *AT, "--at", "kv_len=-4096"),
        "kv_len: '-4096' must be finite and not negative",
    ),
    "length of zero": (("predict", WORKLOAD, *AT, "--at", "kv_len=0"), "a number from 1 to 1e+12"),
    "length without end": (("predict", WORKLOAD, *AT, "--at", "kv_len=1e300"), "a number from 1 to 1e+12"),
    "length that is no number": (
        ("predict", WORKLOAD, *AT, "--at", "kv_len=x"),
        "kv_len: 'x' is not a value",
    ),
    "unknown word": (("predict", WORKLOAD, *AT, "--at", "balance=perfct"), "Did you mean 'perfect'?"),
    "two words for one thing": (
        ("predict", WORKLOAD, *AT, "--at", "balance=perfect,imbalance=1.5"),
        "imbalance and balance set the same thing",
    ),
    "unknown path": (
        ("plan", WORKLOAD, "--set", "die.hbm_bandwith=3GB/s"),
        "Did you mean 'die.hbm_bandwidth'?",
    ),
    "cores without end": (
        ("predict", WORKLOAD, *AT, "--set", "die.aic_cores=24000000"),
        "value must be a whole number, at least 1 and at most 1000, is 24000000",
    ),
    "setting of the wrong unit": (("plan", WORKLOAD, "--set", "die.hbm_bandwidth=3GB"), "measures bytes"),
    "unknown operator": (("op", "dispach"), "Did you mean 'dispatch'?"),
    "unknown size": (("op", "gemm", "--at", "mm=3"), "operator gemm has no 'mm'. Did you mean 'm'?"),
    "unknown term": (("explain", WORKLOAD, *AT, "atention_core"), "Did you mean 'attention_core'?"),
    "unwritable output": (("list", "hardware", "-o", "/no/such/folder/x.json"), "cannot write"),
    "unknown suffix": (("plan", WORKLOAD, "-o", "plan.xlsx"), "names no format"),
}


@pytest.mark.parametrize(("arguments", "said"), CASES.values(), ids=CASES)
def test_one_clear_error(run, arguments, said):
    result = run(*arguments)
    assert (result.status, result.out) == (2, "")
    assert result.err.count("error: ") == 1
    assert said in result.err


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A user's own copy of a workload in the current folder."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(data_root() / "workloads" / f"{WORKLOAD}.toml", tmp_path / "mine.toml")
    return tmp_path / "mine.toml"


FILE_CASES = {
    "unknown key": (
        "prompt_len =",
        "prompt_length =",
        "unknown key 'prompt_length'. Did you mean 'prompt_len'?",
    ),
    "wrong unit": ('value = 50, unit = "ms"', 'value = 50, unit = "tokens"', "measures tokens, not a time"),
    "missing number": ("value = 4096, ", "", "missing key 'value'"),
    "negative length": ("value = 4096", "value = -4096", "must not be negative"),
    "length of zero": ("value = 4096", "value = 0", "must be above 0"),
}


@pytest.mark.parametrize(("old", "new", "said"), FILE_CASES.values(), ids=FILE_CASES)
def test_errors_of_a_file_point_at_the_key(run, mine, old, new, said):
    text = mine.read_text()
    assert old in text
    mine.write_text(text.replace(old, new, 1))
    result = run("plan", "./mine.toml")
    assert (result.status, result.out) == (2, "")
    assert result.err.count("error: ") == 1
    assert said in result.err
    line = next(
        i
        for i, row in enumerate(mine.read_text().splitlines(), 1)
        if new in row and (new or "4096" in row or "prompt_len" in row)
    )
    assert "--> mine.toml:" in result.err
    assert "^" in result.err
    if new:
        assert f"mine.toml:{line}:" in result.err


def test_all_errors_of_a_file_at_once(run, mine):
    text = mine.read_text()
    for old, new, _ in (FILE_CASES["unknown key"], FILE_CASES["wrong unit"]):
        text = text.replace(old, new, 1)
    mine.write_text(text)
    assert run("plan", "./mine.toml").err.count("error: ") == 2


def test_a_users_own_workload_and_hardware_work(run, mine):
    shutil.copy(data_root() / "hardware" / "cloudmatrix384.toml", mine.parent / "my.toml")
    own = run("plan", "./mine.toml", "--hardware", "./my.toml", "--npus", "64", "--format", "csv")
    assert own.status == 0
    assert own.out == run("plan", WORKLOAD, "--npus", "64", "--format", "csv").out
