"""Instances in a few words, and as the ``--at`` of a command."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import MISSING, fields

from cm384model.planning.layouts import PLAIN
from cm384model.planning.results import DecodeInstance, PrefillInstance
from cm384model.prediction.case import Case
from cm384model.prediction.memory import usual_attention_tp
from cm384model.report.values import setting, tokens

LEGEND = (
    "EP: dies of an instance   K: 1024 prompt tokens per NPU and batch   b: requests per die   "
    "mb: microbatches\n"
    "16:8: AIC cores of a die for attention and experts   MTP: draft tokens per step   "
    "TP: dies that share heads"
)
MORE = {
    "ETP": "dies that split experts",
    "CP": "parts of a prompt's sequence, 0 as the engine has it",
    "PP": "stages / chunks",
}
"""What else may stand in a plan."""

LAYOUT = {"TP": "attention_tp", "ETP": "expert_tp", "CP": "context_parallel", "PP": "pipeline_stages"}

Instance = DecodeInstance | PrefillInstance


def legend(instances: Iterable[Instance]) -> str:
    """What the short names in a table of plans mean, as far as they occur."""
    shown = {short for instance in instances for short in _layout(instance)}
    more = "   ".join(f"{short}: {meaning}" for short, meaning in MORE.items() if short in shown)
    return "\n".join([LEGEND, *([more] if more else [])])


def prefill_words(p: PrefillInstance) -> str:
    """``EP32 21K 2mb``, and how its dies share the model."""
    words = f"EP{p.ep} {tokens(p.tokens_per_npu)} {p.microbatches}mb"
    return " ".join([words, *_layout(p).values()])


def decode_words(d: DecodeInstance, cores: int) -> str:
    """``EP320 b48 2mb 16:8 MTP1``, and how its dies share the model; see `split_cores` for ``cores``."""
    attention = round(d.attention_aic_share * cores)
    split = [f"{attention}:{cores - attention}"] if d.microbatches > 1 and cores else []
    words = [f"EP{d.ep} b{d.batch_per_die} {d.microbatches}mb", *split, f"MTP{d.draft_tokens}"]
    return " ".join([*words, *_layout(d).values()])


def split_cores(case: Case) -> int:
    """Cores that two streams divide; 0 under an engine whose streams do not."""
    split = case.engine.decode_streams == "attention-experts"
    return int(case.hardware.die.aic_cores.si) if split else 0


def at_words(case: Case, instance: Instance) -> str:
    """What ``--at`` has to say to ask about an instance.

    It finds the split of the cores by itself, and what stands at its default goes without saying,
    unless dies of the model share heads by default.
    """
    at, usual = instance.at, {f.name: f.default for f in fields(instance)}
    at.pop("attention_aic_share", None)
    if not at.get("reuse"):
        at.pop("plane", None)
    said = {name for name in at if at[name] != usual[name]}
    said |= {"attention_tp"} if usual_attention_tp(case.system) > 1 else set()
    names = sorted((n for n in at if n in said), key=lambda n: usual[n] is not MISSING)
    return ",".join(f"{name}={setting(at[name])}" for name in names)


def _layout(instance: Instance) -> dict[str, str]:
    """How the dies share the model, by short name, where not each has all of it."""
    at, plain = instance.at, {"attention_tp": 1.0, **PLAIN}
    found = {short: at.get(name, plain[name]) for short, name in LAYOUT.items()}
    words = {s: f"{s}{value:g}" for s, value in found.items() if value != plain[LAYOUT[s]]}
    if "PP" in words:
        words["PP"] += f"/{at['chunks']:g}"
    return words
