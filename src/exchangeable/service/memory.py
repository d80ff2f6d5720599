"""An estimate of the memory that an object takes, with all that belongs to it."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

EACH = 100  # bytes of an object or of an entry, besides what it holds


def memory_of(thing: Any) -> int:
    """Return about how many bytes an object takes. Of a list, the first element stands for all. O(attributes).

    >>> 8_000 < memory_of({"pool": np.zeros(1000), "name": "a"}) < 9_000
    True
    """
    total, seen, stack = 0, set[int](), [thing]
    while stack:
        one = stack.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        total += EACH
        if isinstance(one, np.ndarray):
            base = one.base if isinstance(one.base, np.ndarray) else one
            total += 0 if base is not one and id(base) in seen else int(base.nbytes)
            seen.add(id(base))
        elif isinstance(one, (str, bytes, bytearray)):
            total += sys.getsizeof(one)
        elif isinstance(one, dict):
            total += EACH * len(one)
            stack.extend(one.values())
        elif isinstance(one, (list, tuple)):
            if len(one) > 64 and isinstance(one[0], (float, int, str)):
                total += len(one) * (8 + sys.getsizeof(one[0]))
            else:
                stack.extend(one)
        elif hasattr(one, "__dict__") and not isinstance(one, type) and not callable(one):
            stack.append(vars(one))
    return total
