"""One batch of a prefill instance, as named terms."""
from __future__ import annotations
