"""The paper's plug-in bet: a Gaussian kernel estimate of the past p-values, reflected at 0 and 1.

The estimator is that of the extended sample {-p_i, p_i, 2 - p_i} with Silverman's bandwidth (R's ``bw.nrd0``), cut to
[0, 1] and normalised to integral one. Three ways of computing one and the same number:

- **direct** sums over the past p-values while the bandwidth h exceeds ``DIRECT`` (the first 1,300 to 3,000 steps);
- then the **cosine series** of the estimator reflected for ever,

      f(p) = 1 + (2/n) sum_{k>=1} exp(-(k pi h)^2 / 2) C_k cos(k pi p),    C_k = sum_i cos(k pi p_i) ,

  which differs from the three-copy one by less than ``2 phi(1/h)/h`` (5e-11 at h = 0.14, 1e-12 at h = 0.13);
- where f(p) is so small that the series cancels, or h so small that it is long, **cells**: sums over 1,024 cells of
  Hermite expansions about their centres (positive terms, so tiny densities keep their relative accuracy; in logs,
  so they never underflow).

Memory is constant: the first ``EARLY`` p-values, the cosine sums, the moments of the cells, and a counting grid for
the quartiles, which Silverman's rule reads when p-values are strongly U-shaped: order statistics are exact up to
``EARLY`` steps; later they are read off the grid, exact where a p-value is alone in its interval of width 2^-16.

References: Fedorova et al. (2012), sections 3.3 and 4; Greengard and Strain (1991) for the expansion.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from exchangeable.kernels.summation import add
from exchangeable.protocols import Floats

DIRECT = 0.14  # bandwidth above which sums are direct
EARLY = 2940  # more steps than it can take to get there: 0.9 sd (3 n)^(-1/5) <= 0.14 with sd <= sqrt(8.25)/3
WAVES, LANES = 512, 32  # terms of the series that are kept; how many are computed side by side
REACH = 8.584  # sqrt(2 ln 1e16): terms with k pi h beyond it are below 1e-16
FAINT = 0.01  # below this density the series would cancel
CELLS, MOMENTS = 1024, 16
GRID = 2**16
BLOCK = 1024  # steps after which the recent cosine sums are added to the old ones
ROOT2PI = math.sqrt(2.0 * math.pi)
ROOT2 = math.sqrt(2.0)

# head: how many; sum of p and its carry; sum of p^2 and its carry; the bandwidth they give
N, SUM, SUM_CARRY, SQUARES, SQUARES_CARRY, WIDTH = range(6)


@njit(cache=True, nogil=True)
def _seek(cursor, grid, k):  # type: ignore[no-untyped-def]
    """Move the cursor (interval, p-values below it) to the interval that holds the k-th smallest p-value, k from 0."""
    place, below = int(cursor[0]), cursor[1]
    while below > k:
        place -= 1
        below -= grid[0, place]
    while below + grid[0, place] <= k:
        below += grid[0, place]
        place += 1
    cursor[0], cursor[1] = place, below


@njit(cache=True, nogil=True)
def _in_interval(cursor, grid, k):  # type: ignore[no-untyped-def]
    """The k-th smallest p-value, in the cursor's interval: exact if alone there, else spread about the mean."""
    place, below = int(cursor[0]), cursor[1]
    count = grid[0, place]
    spread = (k - below - 0.5 * (count - 1.0)) / (count + 1.0)
    return (place + 0.5 + spread) / GRID + grid[1, place] / count


@njit(cache=True, nogil=True)
def _quartile(early, cursor, grid, n, index):  # type: ignore[no-untyped-def]
    """Order statistic at a fractional index (R's quantile, type 7)."""
    k = math.floor(index)
    if n <= EARLY:
        low, high = early[int(k)], early[int(math.ceil(index))]
    else:
        _seek(cursor, grid, k + 1.0)
        high = _in_interval(cursor, grid, k + 1.0)
        _seek(cursor, grid, k)
        low = _in_interval(cursor, grid, k)
    return low + (index - k) * (high - low)


@njit(cache=True, nogil=True)
def _bandwidth(head, early, cursors, grid):  # type: ignore[no-untyped-def]
    """``bw.nrd0`` of the extended sample: ``0.9 min(sd, IQR/1.34) (3 n)^(-1/5)``."""
    n = head[N]
    total = 2.0 * n - (head[SUM] + head[SUM_CARRY])
    squares = 3.0 * (head[SQUARES] + head[SQUARES_CARRY]) + 4.0 * n - 4.0 * (head[SUM] + head[SUM_CARRY])
    spread = math.sqrt((squares - total * total / (3.0 * n)) / (3.0 * n - 1.0))
    if n >= 3.0:
        upper = _quartile(early, cursors[1], grid, n, (3.0 * n - 1.0) / 4.0)
        span = 2.0 - upper + _quartile(early, cursors[0], grid, n, (n - 3.0) / 4.0)
    elif n == 2.0:  # the quartiles fall between the copies
        span = 1.5 - 0.5 * early[1] + 0.5 * early[0]
    else:
        span = 1.0
    return 0.9 * min(spread, span / 1.34) * (3.0 * n) ** -0.2


@njit(cache=True, nogil=True, inline="always")
def _tail(z):  # type: ignore[no-untyped-def]
    """Gaussian upper tail, left out where it is below the last bit of one."""
    return 0.5 * math.erfc(z / ROOT2) if z < 8.3 else 0.0


@njit(cache=True, nogil=True)
def _log_direct(early, n, h, p):  # type: ignore[no-untyped-def]
    """Three copies, cut and normalised."""
    height = 0.0
    lost = 0.0
    c = -0.5 / (h * h)
    for x in early[:n]:
        height += math.exp(c * (p - x) ** 2) + math.exp(c * (p + x) ** 2) + math.exp(c * (p - 2.0 + x) ** 2)
        lost += _tail((1.0 + x) / h) + _tail((2.0 - x) / h)
    return math.log(height / (h * ROOT2PI * (n - lost)))


@njit(cache=True, nogil=True)
def _cosines(p, out, c, s):  # type: ignore[no-untyped-def]
    """``cos(k pi p)`` for k = 1 .. len(out), a multiple of ``len(c) = len(s)``: rotations side by side, error k ulps."""
    c1, s1 = math.cos(math.pi * p), math.sin(math.pi * p)
    c[0], s[0] = c1, s1
    for k in range(1, len(c)):
        c[k] = c[k - 1] * c1 - s[k - 1] * s1
        s[k] = s[k - 1] * c1 + c[k - 1] * s1
    turn_c, turn_s = c[len(c) - 1], s[len(c) - 1]
    for start in range(0, len(out), len(c)):
        part = out[start : start + len(c)]
        for k in range(len(c)):
            cosine, sine = c[k], s[k]
            part[k] = cosine
            c[k] = cosine * turn_c - sine * turn_s
            s[k] = sine * turn_c + cosine * turn_s


@njit(cache=True, nogil=True)
def _series(n, h, waves, cosines):  # type: ignore[no-untyped-def]
    """The cosine series at the p whose cosines are given; the weights ``q^(k^2)`` by recurrence."""
    terms = int(math.ceil(REACH / (math.pi * h)))
    old, recent = waves[0], waves[1]
    q = math.exp(-0.5 * (math.pi * h) ** 2)
    weight, ratio, total = q, q * q * q, 0.0
    for k in range(terms):
        total += weight * (old[k] + recent[k]) * cosines[k]
        weight *= ratio
        ratio *= q * q
    return 1.0 + 2.0 * total / n


@njit(cache=True, nogil=True)
def _cell_sum(moments, tau, h, sign):  # type: ignore[no-untyped-def]
    """``sum_i exp(tau u_i - u_i^2/2)`` over a cell, u_i = sign (p_i - centre)/h, by Hermite polynomials."""
    before, polynomial, factor, total = 0.0, 1.0, 1.0, 0.0
    for m in range(MOMENTS):
        total += polynomial * factor * moments[m]
        before, polynomial = polynomial, tau * polynomial - m * before
        factor *= sign / (h * (m + 1))
    return total


@njit(cache=True, nogil=True)
def _log_cells(cells, n, h, p):  # type: ignore[no-untyped-def]
    """Three copies, cell by cell, relative to the nearest."""
    nearest = math.inf
    for b in range(CELLS):
        if cells[b, 0] > 0.0:
            centre = (b + 0.5) / CELLS
            nearest = min(nearest, abs(p - centre), p + centre, 2.0 - centre - p)
    total = 0.0
    for b in range(CELLS):
        if cells[b, 0] == 0.0:
            continue
        centre = (b + 0.5) / CELLS
        for distance, sign in ((p - centre, 1.0), (p + centre, -1.0), (p - 2.0 + centre, -1.0)):
            exponent = 0.5 * (nearest - distance) * (nearest + distance) / (h * h)
            if exponent > -80.0:  # the rest is below 1e-30 of the nearest
                total += math.exp(exponent) * _cell_sum(cells[b], distance / h, h, sign)
    return math.log(total / (n * h * ROOT2PI)) - 0.5 * (nearest / h) ** 2


@njit(cache=True, nogil=True)
def _bet(head, early, waves, cells, p, cosines):  # type: ignore[no-untyped-def]
    """Log of the betting function at p, whose cosines are given."""
    n, h = int(head[N]), head[WIDTH]
    if n == 0:
        return 0.0
    if h > DIRECT:
        return _log_direct(early, n, h, p)
    if REACH / (math.pi * h) <= WAVES:
        density = _series(n, h, waves, cosines)
        if density >= FAINT:
            return math.log(density)
    return _log_cells(cells, n, h, p)


@njit(cache=True, nogil=True)
def _count(cursors, grid, p):  # type: ignore[no-untyped-def]
    """Let the grid count p (how many, and their offsets from the middle of the interval)."""
    place = min(int(p * GRID), GRID - 1)
    grid[0, place] += 1.0
    grid[1, place] += p - (place + 0.5) / GRID
    for q in range(2):
        if place < cursors[q, 0]:
            cursors[q, 1] += 1.0


@njit(cache=True, nogil=True)
def _learn(head, early, waves, cells, cursors, grid, p, cosines):  # type: ignore[no-untyped-def]
    n = int(head[N])
    head[N] += 1.0
    head[SUM], head[SUM_CARRY] = add(head[SUM], head[SUM_CARRY], p)
    head[SQUARES], head[SQUARES_CARRY] = add(head[SQUARES], head[SQUARES_CARRY], p * p)
    if n < EARLY:
        k = np.searchsorted(early[:n], p)
        for j in range(n, k, -1):
            early[j] = early[j - 1]
        early[k] = p
    recent = waves[1]
    for k in range(len(recent)):
        recent[k] += cosines[k]
    if (n + 1) % BLOCK == 0:  # two short sums round less than one long one
        waves[0] += recent
        recent[:] = 0.0
    cell = min(int(p * CELLS), CELLS - 1)
    offset, power = p - (cell + 0.5) / CELLS, 1.0
    for m in range(MOMENTS):
        cells[cell, m] += power
        power *= offset
    _count(cursors, grid, p)
    head[WIDTH] = _bandwidth(head, early, cursors, grid)


@njit(cache=True, nogil=True)
def log_density(head, early, waves, cells, cursors, grid, p):  # type: ignore[no-untyped-def]
    """Log of the betting function at p."""
    cosines = np.empty(WAVES)
    _cosines(p, cosines, np.empty(LANES), np.empty(LANES))
    return _bet(head, early, waves, cells, p, cosines)


@njit(cache=True, nogil=True)
def extend(head, early, waves, cells, cursors, grid, p, out):  # type: ignore[no-untyped-def]
    """Bet on each p, then learn it."""
    cosines, c, s = np.empty(WAVES), np.empty(LANES), np.empty(LANES)
    for i in range(len(p)):
        _cosines(p[i], cosines, c, s)
        out[i] = _bet(head, early, waves, cells, p[i], cosines)
        _learn(head, early, waves, cells, cursors, grid, p[i], cosines)


def fresh() -> tuple[Floats, ...]:
    """The state before the first p-value, in the order in which the loops take it."""
    return (
        np.zeros(6),
        np.zeros(EARLY),
        np.zeros((2, WAVES)),
        np.zeros((CELLS, MOMENTS)),
        np.zeros((2, 2)),
        np.zeros((2, GRID)),
    )
