"""Rounding of the outputs of models, so that they do not depend on how rows are split into batches."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from exchangeable.protocols import Floats

BITS = 32  # of the 53 significant bits of a float64
FEWER: dict[np.dtype[Any], int] = {np.dtype(np.float32): 12, np.dtype(np.float16): 6}  # of 24 and 11 significant bits


def significant_bits(dtype: np.dtype[Any]) -> int:
    """Return the number of significant bits to which numbers of this type are rounded.

    >>> significant_bits(np.dtype("f8")), significant_bits(np.dtype("f4"))
    (32, 12)
    """
    return FEWER.get(dtype, BITS)


def round_outputs(values: NDArray[Any], scale: float | Floats = 1.0) -> Floats:
    """Round values to multiples of ``2**(e - bits)``, for the smallest e with ``|value| < 2**e`` and ``scale <= 2**e``.

    A matrix product rounds one row and many rows differently, so the same row can get outputs that differ in the last
    bits. After rounding they are equal, unless they lie on different sides of a rounding boundary. ``bits`` is 12 for
    float32, 6 for float16 and 32 for all other types. ``scale`` (one number, or one for each value) covers sums that
    cancel: terms of size 100 may add up to 0 in one batch and to 1e-14 in another.

    Each result depends on its own value and scale only. O(n).

    >>> round_outputs(np.array([1 / 3, 1 / 3 + 1e-15, 1e-14])).tolist()
    [0.3333333332557231, 0.3333333332557231, 0.0]
    """
    exact = np.asarray(values, np.float64)
    mantissa, least = np.frexp(scale)
    exponent = np.maximum(np.frexp(exact)[1], least - (mantissa == 0.5)) - significant_bits(values.dtype)
    with np.errstate(over="ignore"):
        nearest = np.ldexp(np.rint(np.ldexp(exact, -exponent)), exponent)
    return np.where(np.isfinite(nearest), nearest, exact)  # the largest floats would overflow to infinity
