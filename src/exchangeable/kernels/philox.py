"""The counter-based generator Philox4x64-10: the word at any position of any key, without a generator in between.

Word j of key (k0, k1) is the word j mod 4 of the block whose counter is j div 4 + 1, as NumPy counts them. A block is
ten rounds of

    (c0, c1, c2, c3) <- (hi(M1 c2) ^ c1 ^ k0, lo(M1 c2), hi(M0 c0) ^ c3 ^ k1, lo(M0 c0)) ,   k0 += W0, k1 += W1

on the counter (c0, 0, 0, 0), where hi and lo are the halves of a product of 128 bits.

Reference: Salmon, Moraes, Dror, Shaw (2011), *Parallel random numbers: as easy as 1, 2, 3*, section 3.3.
"""

from __future__ import annotations

import numpy as np

from exchangeable.kernels.compilation import compiled

M0, M1 = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
W0, W1 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)
ROUNDS = 10
HALF, LOW = np.uint64(32), np.uint64(0xFFFFFFFF)


@compiled(inline="always")
def _high(a, b):  # type: ignore[no-untyped-def]
    """The upper 64 bits of the product of two words."""
    a0, a1, b0, b1 = a & LOW, a >> HALF, b & LOW, b >> HALF
    middle = a1 * b0 + (a0 * b0 >> HALF)  # neither sum can overflow
    other = a0 * b1 + (middle & LOW)
    return a1 * b1 + (middle >> HALF) + (other >> HALF)


@compiled()
def block(counter, k0, k1):  # type: ignore[no-untyped-def]
    """The four words of a counter below 2^64."""
    c0, c1, c2, c3 = counter, np.uint64(0), np.uint64(0), np.uint64(0)
    for _ in range(ROUNDS):
        high0, high1 = _high(M0, c0), _high(M1, c2)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, M1 * c2, high0 ^ c3 ^ k1, M0 * c0
        k0 += W0
        k1 += W1
    return c0, c1, c2, c3


@compiled()
def thetas(keys, start, lo, hi, out):  # type: ignore[no-untyped-def]
    """For each t the tie-breaking numbers of `pvalues.thetas` with seed keys[t], from position start[t] on.

    They go to ``out[lo[t]:hi[t]]``.
    """
    for t in range(len(keys)):
        place = np.uint64(start[t])
        words = (place, place, place, place)
        for i in range(lo[t], hi[t]):
            part = place & np.uint64(3)
            if part == 0 or i == lo[t]:
                words = block((place >> np.uint64(2)) + np.uint64(1), keys[t], np.uint64(0))
            out[i] = 1.0 - float(words[part] >> np.uint64(11)) * 2.0**-53
            place += np.uint64(1)
