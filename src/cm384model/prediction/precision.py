"""Whether a machine computes in the formats of a model, and what to ask for if it does not."""

from __future__ import annotations

from cm384model.prediction.families.interface import compute_precision
from cm384model.prediction.operators import ELEMENT_BYTES, no_product, precisions_of
from cm384model.prediction.system import System


def check_precisions(system: System) -> None:
    """Refuse a model whose products the machine has no format for.

    Raises
    ------
    SpecError
        With the formats that there are, and the settings under which the model runs.
    """
    p, known = system.model.precision, precisions_of(system.hardware)
    stored = {"weights": p.weights, "experts": p.experts or p.weights, "lm_head": p.lm_head}
    computed = {
        name: word if name == "lm_head" else compute_precision(word, p.activations)
        for name, word in stored.items()
    }
    missing = {name: word for name, word in computed.items() if word not in known}
    if not missing:
        return
    wanted = next(iter(missing.values()))
    alike = [word for word in known if ELEMENT_BYTES[word] == ELEMENT_BYTES[wanted]]
    instead = (alike or known)[0] if known else ""
    named = [name for name in missing if name != "experts" or p.experts is not None]
    named = [name for name in named if stored[name] not in known and ELEMENT_BYTES[stored[name]] >= 1]
    if any(name != "lm_head" for name in missing) and p.activations not in known:
        named.append("activations")
    settings = " ".join(f"--set model.precision.{name}={instead}" for name in dict.fromkeys(named))
    raise no_product(system.hardware, wanted, settings)
