"""The paper's plug-in bet: a Gaussian kernel estimate of the past p-values, reflected at 0 and 1.

The estimator is that of the extended sample {-p_i, p_i, 2 - p_i} with Silverman's bandwidth h (R's ``bw.nrd0``), cut to
[0, 1] and normalised to integral one. It is computed in O(1/h) time a step and constant memory from the first step on:

- The estimator reflected for ever is a **cosine series**, whatever the bandwidth,

      1 + (2/n) sum_{k>=1} exp(-(k pi h)^2 / 2) C_k cos(k pi p),    C_k = sum_i cos(k pi p_i) .

- It has further copies, 2 + p_i, -2 + p_i and so on, which lie at least 1 from any p, and the three copies lose mass
  beyond [0, 1]. Both are sums of **smooth** functions of the p_i, taken exactly (to rounding) from Chebyshev
  interpolation in p_i; below h = ``WIDE`` they are smaller than 1e-12 and left out.
- Where the density is so small that the series cancels, or h so small that it is long (n > 1e10), **cells**: sums over
  1,024 cells of Hermite expansions about their centres, relative to the nearest, so that tiny densities keep their
  relative accuracy and never underflow. Where these expansions would need more terms (far from all p-values, and
  n > 1e7) the intervals of the grid below, each as its number, mean and variance.

Silverman's rule reads the quartiles when p-values are strongly U-shaped. They come from a **grid** of 86,018 intervals
of width 2^-16, ever narrower near 0 and 1 (256 for each halving of the distance, down to 2^-50). Each knows how many
p-values it holds, their mean and their variance: an order statistic is exact where an interval holds one or two
p-values, or equal ones, and else as if they were evenly spaced.

References: Fedorova et al. (2012), sections 3.3 and 4; Greengard and Strain (1991) for the expansion.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from exchangeable.kernels.compilation import compiled
from exchangeable.kernels.summation import add

WIDE = 0.13  # bandwidth above which the further copies are taken away
EARLY = 4300  # more steps than it can take to get there: sd <= sqrt(8.25)/3 and so h <= 0.8617 (3 n)^(-1/5)
NODES = 20  # of the Chebyshev interpolation
WAVES, LANES = 512, 16  # the longest series that is used, and how many terms are computed side by side
REACH = 8.584  # sqrt(2 ln 1e16): Gaussians beyond it are below 1e-16
FAR = -80.0  # exponents below it are less than 1e-30 of the nearest
FAINT = 0.01  # below this density the series would cancel
CELLS, MOMENTS = 1024, 16
FINE = 2**16  # intervals of the grid in [0, 1], away from its ends
EDGE, OCTAVES, PARTS = 2.0**-6, 44, 256  # nearer to 0 or 1 than EDGE: so many halvings, so many intervals in each
TAIL = 1 + OCTAVES * PARTS
PLACES = 2 * TAIL + FINE - int(2 * FINE * EDGE)
STRIDE = 256  # intervals that are counted together, to skip over empty ones
COUNT, ANCHOR, OFFSETS, OFFSETS2 = range(4)  # of an interval: how many, the first, sums of distances from it, squared
BLOCK = 1024  # steps after which the recent cosine sums are added to the old ones
ROOT2 = math.sqrt(2.0)
ROOT2PI = math.sqrt(2.0 * math.pi)
ANGLES = (2.0 * np.arange(NODES) + 1.0) * math.pi / (2.0 * NODES)
POINTS = 0.5 - 0.5 * np.cos(ANGLES)
BARYCENTRIC = np.where(np.arange(NODES) % 2 == 0, 1.0, -1.0) * np.sin(ANGLES)

# head: how many; sum of p and its carry; sum of p^2 and its carry; the bandwidth they give, the mass it keeps, and the
# number of cosine sums that are kept
N, SUM, SUM_CARRY, SQUARES, SQUARES_CARRY, WIDTH, MASS, ACTIVE = range(8)


@compiled()
def _near(distance):  # type: ignore[no-untyped-def]
    """The interval of a p-value at this distance (below EDGE) from 0: 0 for the nearest, increasing."""
    mantissa, exponent = math.frexp(distance)
    octave = -5 - exponent  # 1 for distances in [EDGE/2, EDGE)
    if distance == 0.0 or octave > OCTAVES:
        return 0
    return 1 + (OCTAVES - octave) * PARTS + int((2.0 * mantissa - 1.0) * PARTS)


@compiled()
def _place(p):  # type: ignore[no-untyped-def]
    """The interval of the grid that holds p."""
    if p < EDGE:
        return _near(p)
    if 1.0 - p < EDGE:
        return PLACES - 1 - _near(1.0 - p)
    return min(TAIL + int((p - EDGE) * FINE), PLACES - 1 - TAIL)


@compiled()
def _seek(cursor, grid, blocks, k):  # type: ignore[no-untyped-def]
    """Move the cursor (interval, p-values below it) to the interval that holds the k-th smallest p-value, k from 0."""
    place, below = int(cursor[0]), cursor[1]
    while below > k:
        if place % STRIDE == 0 and below - blocks[place // STRIDE - 1] > k:
            below -= blocks[place // STRIDE - 1]
            place -= STRIDE
        else:
            place -= 1
            below -= grid[place, COUNT]
    while below + grid[place, COUNT] <= k:
        if place % STRIDE == 0 and below + blocks[place // STRIDE] <= k:
            below += blocks[place // STRIDE]
            place += STRIDE
        else:
            below += grid[place, COUNT]
            place += 1
    cursor[0], cursor[1] = place, below


@compiled()
def _mean_variance(interval):  # type: ignore[no-untyped-def]
    """Mean and variance of the p-values in an interval."""
    offset = interval[OFFSETS] / interval[COUNT]
    return interval[ANCHOR] + offset, max(interval[OFFSETS2] / interval[COUNT] - offset * offset, 0.0)


@compiled()
def _in_interval(cursor, grid, k):  # type: ignore[no-untyped-def]
    """The k-th smallest p-value, in the cursor's interval: as if its p-values were evenly spaced."""
    interval, below = grid[int(cursor[0])], cursor[1]
    mean, variance = _mean_variance(interval)
    count = interval[COUNT]
    if count == 1.0:
        return mean
    return mean + (k - below - 0.5 * (count - 1.0)) * math.sqrt(12.0 * variance / (count * count - 1.0))


@compiled()
def _order_statistic(cursor, grid, blocks, index):  # type: ignore[no-untyped-def]
    """Order statistic at a fractional index from 0 (R's quantile, type 7)."""
    k = math.floor(index)
    part = index - k
    high = 0.0
    if part > 0.0:
        _seek(cursor, grid, blocks, k + 1.0)
        high = _in_interval(cursor, grid, k + 1.0)
    _seek(cursor, grid, blocks, k)
    return (1.0 - part) * _in_interval(cursor, grid, k) + part * high


@compiled()
def _span(n, cursors, grid, blocks, enough):  # type: ignore[no-untyped-def]
    """Interquartile range of the extended sample, or a lower bound of it that is ``enough`` to tell that sd is less."""
    if n == 1.0:
        return 1.0
    if n == 2.0:  # the quartiles fall between the copies: 1.5 - max/2 and -min/2
        return 1.5 - 0.5 * (
            _order_statistic(cursors[1], grid, blocks, 1.0) - _order_statistic(cursors[0], grid, blocks, 0.0)
        )
    upper, lower = (3.0 * n - 1.0) / 4.0, (n - 3.0) / 4.0
    _seek(cursors[1], grid, blocks, math.ceil(upper))
    _seek(cursors[0], grid, blocks, math.floor(lower))
    anchors = grid[int(cursors[1, 0]), ANCHOR] - grid[int(cursors[0, 0]), ANCHOR]
    bound = 2.0 - anchors - 2.0 / FINE  # each at most the width of an interval away
    if bound >= enough:
        return bound
    return 2.0 - _order_statistic(cursors[1], grid, blocks, upper) + _order_statistic(cursors[0], grid, blocks, lower)


@compiled()
def _bandwidth(head, cursors, grid, blocks):  # type: ignore[no-untyped-def]
    """``bw.nrd0`` of the extended sample: ``0.9 min(sd, IQR/1.34) (3 n)^(-1/5)``."""
    n, total_p = head[N], head[SUM] + head[SUM_CARRY]
    total = 2.0 * n - total_p
    squares = 3.0 * (head[SQUARES] + head[SQUARES_CARRY]) + 4.0 * n - 4.0 * total_p
    spread = math.sqrt((squares - total * total / (3.0 * n)) / (3.0 * n - 1.0))
    return 0.9 * min(spread, _span(n, cursors, grid, blocks, 1.35 * spread) / 1.34) * (3.0 * n) ** -0.2


@compiled(inline="always")
def _tail(z):  # type: ignore[no-untyped-def]
    """Gaussian upper tail, left out where it is below the last bit of one."""
    return 0.5 * math.erfc(z / ROOT2) if z < REACH else 0.0


@compiled()
def _kept(nodes, n, h):  # type: ignore[no-untyped-def]
    """The mean mass that the three copies keep in [0, 1]: ``1 - mean[Q((1 + p_i)/h) + Q((2 - p_i)/h)]``."""
    if h <= WIDE:
        return 1.0
    lost = 0.0
    for j in range(NODES):
        lost += nodes[j] * (_tail((1.0 + POINTS[j]) / h) + _tail((2.0 - POINTS[j]) / h))
    return 1.0 - lost / n


@compiled()
def _further(nodes, n, h, p):  # type: ignore[no-untyped-def]
    """The part of the endlessly reflected estimate that comes from other copies than the three."""
    c, reach = -0.5 / (h * h), REACH * h
    total = 0.0
    for j in range(NODES):
        x = POINTS[j]
        height = 0.0
        shift = 2.0
        while shift - 1.0 <= reach:  # the copies x + shift, x - shift, -x - shift, and 2 - x + shift
            for distance in (shift + x - p, shift - x + p, shift + x + p, shift + 2.0 - x - p):
                if distance <= reach:
                    height += math.exp(c * distance * distance)
            shift += 2.0
        total += nodes[j] * height
    return total / (n * h * ROOT2PI)


@compiled()
def _cosines(p, out, c, s):  # type: ignore[no-untyped-def]
    """``cos(k pi p)`` for k = 1 .. len(out), a multiple of ``len(c) = len(s)``: rotations side by side."""
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


@compiled()
def _series(n, h, waves, cosines):  # type: ignore[no-untyped-def]
    """The cosine series at the p whose cosines are given; the weights ``q^(k^2)`` by recurrence."""
    terms = math.ceil(REACH / (math.pi * h))
    old, recent = waves[0], waves[1]
    q = math.exp(-0.5 * (math.pi * h) ** 2)
    weight, ratio, total = q, q * q * q, 0.0
    for k in range(terms):
        total += weight * (old[k] + recent[k]) * cosines[k]
        weight *= ratio
        ratio *= q * q
    return 1.0 + 2.0 * total / n


@compiled()
def _cell_sum(moments, tau, h, sign):  # type: ignore[no-untyped-def]
    """``sum_i exp(tau u_i - u_i^2/2)`` over a cell, u_i = sign (p_i - centre)/h, by Hermite polynomials."""
    before, polynomial, factor, total = 0.0, 1.0, 1.0, 0.0
    for m in range(MOMENTS):
        total += polynomial * factor * moments[m]
        before, polynomial = polynomial, tau * polynomial - m * before
        factor *= sign / (h * (m + 1))
    return total


@compiled()
def _nearest(cells, p):  # type: ignore[no-untyped-def]
    """Distance from p to the centre of the nearest cell with p-values in it, or of a copy of one."""
    nearest = math.inf
    for b in range(CELLS):
        if cells[b, 0] > 0.0:
            centre = (b + 0.5) / CELLS
            nearest = min(nearest, abs(p - centre), p + centre, 2.0 - centre - p)
    return nearest


@compiled()
def _relative_cells(cells, h, p, nearest):  # type: ignore[no-untyped-def]
    """Sum of the Gaussians of the three copies, relative to one at distance ``nearest``: cell by cell."""
    total = 0.0
    for b in range(CELLS):
        if cells[b, 0] == 0.0:
            continue
        centre = (b + 0.5) / CELLS
        for distance, sign in ((p - centre, 1.0), (p + centre, -1.0), (p - 2.0 + centre, -1.0)):
            exponent = 0.5 * (nearest - distance) * (nearest + distance) / (h * h)
            if exponent > FAR:
                total += math.exp(exponent) * _cell_sum(cells[b], distance / h, h, sign)
    return total


@compiled()
def _nearest_mean(grid, p):  # type: ignore[no-untyped-def]
    """Distance from p to the nearest mean of an interval of the grid, or to a copy of one."""
    nearest = math.inf
    for place in range(PLACES):
        if grid[place, COUNT] > 0.0:
            mean, _ = _mean_variance(grid[place])
            nearest = min(nearest, abs(p - mean), p + mean, 2.0 - mean - p)
    return nearest


@compiled()
def _relative_grid(grid, blocks, h, p, nearest):  # type: ignore[no-untyped-def]
    """The same from the intervals of the grid: each a Gaussian sum to second order in its spread."""
    total = 0.0
    for block in range(len(blocks)):
        if blocks[block] == 0.0:
            continue
        for place in range(block * STRIDE, min((block + 1) * STRIDE, PLACES)):
            if grid[place, COUNT] == 0.0:
                continue
            mean, variance = _mean_variance(grid[place])
            for distance in (p - mean, p + mean, p - 2.0 + mean):
                exponent = 0.5 * (nearest - distance) * (nearest + distance) / (h * h)
                if exponent > FAR:
                    spread = 0.5 * variance / (h * h) * ((distance / h) ** 2 - 1.0)
                    total += grid[place, COUNT] * math.exp(exponent + spread)
    return total


@compiled()
def _log_tail(cells, grid, blocks, n, h, p):  # type: ignore[no-untyped-def]
    """Log of the three copies' estimate, however small it is."""
    nearest = _nearest(cells, p)
    if (nearest + REACH * h) * 0.5 / CELLS <= h * h:  # then the terms fall like 1/m!
        total = _relative_cells(cells, h, p, nearest)
    else:
        nearest = _nearest_mean(grid, p)
        total = _relative_grid(grid, blocks, h, p, nearest)
    return math.log(total / (n * h * ROOT2PI)) - 0.5 * (nearest / h) ** 2


@compiled()
def _bet(head, nodes, waves, cells, grid, blocks, p, cosines):  # type: ignore[no-untyped-def]
    """Log of the betting function at p, whose cosines are given."""
    n, h = int(head[N]), head[WIDTH]
    if n == 0:
        return 0.0
    if REACH / (math.pi * h) <= WAVES:
        density = _series(n, h, waves, cosines)
        if h > WIDE:
            density -= _further(nodes, n, h, p)
        if density >= FAINT:
            return math.log(density / head[MASS])
    return _log_tail(cells, grid, blocks, n, h, p) - math.log(head[MASS])


@compiled()
def _interpolate(nodes, p):  # type: ignore[no-untyped-def]
    """Add the Lagrange polynomials of the nodes at p (barycentric form)."""
    total = 0.0
    for j in range(NODES):
        if p == POINTS[j]:
            nodes[j] += 1.0
            return
        total += BARYCENTRIC[j] / (p - POINTS[j])
    for j in range(NODES):
        nodes[j] += BARYCENTRIC[j] / (p - POINTS[j]) / total


@compiled()
def _wave(waves, cosines, n):  # type: ignore[no-untyped-def]
    """Add the cosines of the n-th p: two short sums round less than one long one."""
    old, recent = waves[0][: len(cosines)], waves[1][: len(cosines)]
    for k in range(len(recent)):
        recent[k] += cosines[k]
    if n % BLOCK == 0:
        old += recent
        recent[:] = 0.0


@compiled()
def _cosine_sum(cells, k):  # type: ignore[no-untyped-def]
    """``sum_i cos(k pi p_i)`` from the moments of the cells: ``cos(x + y)``, x the centre and y in power series."""
    total = 0.0
    for b in range(CELLS):
        if cells[b, 0] == 0.0:
            continue
        even, odd, factor = 0.0, 0.0, 1.0  # sums of cos and sin of k pi (p_i - centre)
        for m in range(0, MOMENTS, 4):
            even += factor * cells[b, m]
            factor *= k * math.pi / (m + 1)
            odd += factor * cells[b, m + 1]
            factor *= k * math.pi / (m + 2)
            even -= factor * cells[b, m + 2]
            factor *= k * math.pi / (m + 3)
            odd -= factor * cells[b, m + 3]
            factor *= k * math.pi / (m + 4)
        angle = k * math.pi * (b + 0.5) / CELLS
        total += math.cos(angle) * even - math.sin(angle) * odd
    return total


@compiled()
def _more_waves(head, waves, cells):  # type: ignore[no-untyped-def]
    """Keep as many cosine sums as the bandwidth needs; new ones begin with all p-values so far."""
    active = int(head[ACTIVE])
    while active < WAVES and active * math.pi * head[WIDTH] < REACH:
        for k in range(active, active + LANES):
            waves[0, k] = _cosine_sum(cells, k + 1.0)
            waves[1, k] = 0.0
        active += LANES
    head[ACTIVE] = active


@compiled()
def _moments(cells, p):  # type: ignore[no-untyped-def]
    """Add the powers of p's distance from the centre of its cell."""
    b = min(int(p * CELLS), CELLS - 1)
    cell = cells[b]
    offset, power = p - (b + 0.5) / CELLS, 1.0
    for m in range(MOMENTS):
        cell[m] += power
        power *= offset


@compiled()
def _count(cursors, grid, blocks, p):  # type: ignore[no-untyped-def]
    """Count p in its interval of the grid."""
    place = _place(p)
    interval = grid[place]
    if interval[COUNT] == 0.0:
        interval[ANCHOR] = p
    offset = p - interval[ANCHOR]
    interval[COUNT] += 1.0
    interval[OFFSETS] += offset
    interval[OFFSETS2] += offset * offset
    blocks[place // STRIDE] += 1.0
    for q in range(2):
        if place < cursors[q, 0]:
            cursors[q, 1] += 1.0


@compiled()
def _learn(head, nodes, waves, cells, cursors, grid, blocks, p, cosines):  # type: ignore[no-untyped-def]
    head[N] += 1.0
    head[SUM], head[SUM_CARRY] = add(head[SUM], head[SUM_CARRY], p)
    head[SQUARES], head[SQUARES_CARRY] = add(head[SQUARES], head[SQUARES_CARRY], p * p)
    _wave(waves, cosines, int(head[N]))
    _moments(cells, p)
    _count(cursors, grid, blocks, p)
    head[WIDTH] = _bandwidth(head, cursors, grid, blocks)
    _more_waves(head, waves, cells)
    if head[N] <= EARLY:
        _interpolate(nodes, p)
        head[MASS] = _kept(nodes, head[N], head[WIDTH])


@compiled()
def log_density(head, nodes, waves, cells, cursors, grid, blocks, p):  # type: ignore[no-untyped-def]
    """Log of the betting function at p."""
    cosines = np.empty(int(head[ACTIVE]))
    _cosines(p, cosines, np.empty(LANES), np.empty(LANES))
    return _bet(head, nodes, waves, cells, grid, blocks, p, cosines)


@compiled()
def extend(head, nodes, waves, cells, cursors, grid, blocks, p, out):  # type: ignore[no-untyped-def]
    """Bet on each p, then learn it."""
    room, c, s = np.empty(WAVES), np.empty(LANES), np.empty(LANES)
    for i in range(len(p)):
        cosines = room[: int(head[ACTIVE])]
        _cosines(p[i], cosines, c, s)
        out[i] = _bet(head, nodes, waves, cells, grid, blocks, p[i], cosines)
        _learn(head, nodes, waves, cells, cursors, grid, blocks, p[i], cosines)


def fresh() -> tuple[NDArray[np.float64], ...]:
    """The state before the first p-value, in the order in which the loops take it."""
    head = np.zeros(8)
    head[MASS], head[ACTIVE] = 1.0, LANES
    shapes = (NODES, (2, WAVES), (CELLS, MOMENTS), (2, 2), (PLACES, 4), 1 + PLACES // STRIDE)
    return (head, *(np.zeros(shape) for shape in shapes))
