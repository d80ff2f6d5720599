"""Many streams of one recipe, row t of every table being stream t: what one call brings each of them.

The events of stream t stand in ``lo[t] .. hi[t] - 1`` of the columns. The recursions are those of the other modules.
"""

from __future__ import annotations

import numpy as np

from exchangeable.kernels import alarms, blend, jumper, mixture, summation
from exchangeable.kernels.compilation import compiled

# what is known of a stream in whole numbers: the seed (its bits), how many events were bet on, how many of them before
# the latest restart; the first and the last sequence number, and the one up to which it is forgotten which are missing;
# after how many events the capital was lowest, the alarm (-1: none) and its change; which test it is, and flags
SEED, N, SINCE, FIRST, LAST, HORIZON, LOWEST, ALARM, CHANGE, TEST, FLAGS = WHOLE = range(11)
LOW, HIGH, SUM, CARRY = REAL = range(4)  # and in real ones: the least and the most log capital; its sum
PASSED, FORGOT, FULL = 1, 2, 4  # flags: the last number was not taken; the horizon is set; the test has ended

# kinds of rows; NONE is an event without a row of its own
STEP, REPEAT, LATE, GAP, CONFLICT, BAD, ENDED, NONE = range(8)
SPANS = 16  # ranges of missing numbers that a stream remembers
LARGEST = np.uint64(2**63 - 1)


# ------------------------------------------------------------------ sequence numbers


@compiled()
def _note(whole, spans, used, start, stop):  # type: ignore[no-untyped-def]
    """Remember that the numbers from start to stop, all above those noted before, are missing; how many ranges now."""
    if used and spans[used - 1, 1] + 1 == start:
        spans[used - 1, 1] = stop
        return used
    if used == SPANS:
        whole[HORIZON] = spans[0, 1]
        whole[FLAGS] |= FORGOT
        for j in range(1, SPANS):
            spans[j - 1, 0], spans[j - 1, 1] = spans[j, 0], spans[j, 1]
        used -= 1
    spans[used, 0], spans[used, 1] = start, stop
    return used + 1


@compiled()
def _seen(whole, spans, used, number, contiguous):  # type: ignore[no-untyped-def]
    """What a number up to the last one is: REPEAT or LATE; or NONE, as it is not remembered which."""
    if not contiguous:
        return REPEAT if number == whole[LAST] and not whole[FLAGS] & PASSED else LATE
    if number < whole[FIRST]:
        return LATE
    for j in range(used):
        if spans[j, 0] <= number <= spans[j, 1]:
            return LATE
    return NONE if whole[FLAGS] & FORGOT and number <= whole[HORIZON] else REPEAT


@compiled()
def _pass(whole, spans, used, number, new, contiguous):  # type: ignore[no-untyped-def]
    """Go on to a number above the last one; how many are missing between the two, and the ranges now."""
    missing = np.uint64(0)
    if new:
        whole[FIRST] = number
    elif contiguous and number > whole[LAST] + 1:
        missing = np.uint64(number) - np.uint64(whole[LAST]) - np.uint64(1)  # may exceed int64
        used = _note(whole, spans, used, whole[LAST] + 1, number - 1)
    whole[LAST] = number
    whole[FLAGS] &= ~PASSED
    return missing, used


@compiled()
def _arrive(whole, spans, used, number, alike, new, contiguous):  # type: ignore[no-untyped-def]
    """What the events of a number are: STEP, CONFLICT, REPEAT, LATE, or NONE; how many are missing; the ranges now."""
    if not new and number <= whole[LAST]:
        return _seen(whole, spans, used, number, contiguous), np.uint64(0), used
    missing, used = _pass(whole, spans, used, number, new, contiguous)
    if alike:
        return STEP, missing, used
    whole[FLAGS] |= PASSED
    if contiguous:
        used = _note(whole, spans, used, number, number)
    return CONFLICT, missing, used


@compiled()
def _group(order, x, content, bad, first, stop):  # type: ignore[no-untyped-def]
    """The events of the number of the first: the end of the lawful ones, of all, and whether all are lawful, alike."""
    end, lawful, alike = first, first, True
    while end < stop and order[end] == order[first]:
        alike = alike and not bad[end] and x[end] == x[first] and content[end] == content[first]
        lawful += not bad[end]
        end += 1
    return lawful, end, alike


@compiled()
def sequence(bounds, order, x, content, bad, new, contiguous, whole, spans, used, kind, count, missing, unsure):  # type: ignore[no-untyped-def]
    """What each event is, those of stream t being ``bounds[t] .. bounds[t + 1] - 1``, by number and the bad ones last.

    Of several events only the first has a row, with their ``count``: of the repeats of a stream, and of a conflict.
    ``missing`` is how many numbers are missing just before the event.
    """
    for t in range(len(bounds) - 1):
        end, repeat, mine, ranges = bounds[t], -1, whole[t], spans[t]
        while end < bounds[t + 1]:
            first = end
            lawful, end, alike = _group(order, x, content, bad, first, bounds[t + 1])
            begin = new[t] and first == bounds[t]
            what, missing[first], used[t] = _arrive(mine, ranges, used[t], order[first], alike, begin, contiguous)
            for i in range(first, end):
                kind[i] = BAD if i >= lawful else LATE if what in (LATE, NONE) else NONE
                unsure[i] = what == NONE and i < lawful
            if what == CONFLICT and first < lawful:
                kind[first], count[first] = CONFLICT, lawful - first
            if what == STEP:
                kind[first] = STEP
                first += 1
            if what in (STEP, REPEAT) and first < lawful:
                if repeat < 0:
                    repeat = first
                    kind[repeat], count[repeat] = REPEAT, 0
                count[repeat] += lawful - first


@compiled()
def unfold(bounds, order, kind, count, missing, row):  # type: ignore[no-untyped-def]
    """Rows of events and gaps; ``row`` gets the row of each event, -1 if it has none.

    A gap of more numbers than int64 can count becomes two rows.
    """
    room = 2 * len(order) + len(bounds)
    stream, event, kinds = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int8)
    orders, counts = np.empty(room, np.int64), np.empty(room, np.int64)
    at = 0
    for t in range(len(bounds) - 1):
        for i in range(bounds[t], bounds[t + 1]):
            left = missing[i]
            while left > 0:
                part = min(left, LARGEST)
                stream[at], event[at], kinds[at] = t, -1, GAP
                orders[at], counts[at] = np.int64(np.uint64(order[i]) - left), np.int64(part)
                left -= part
                at += 1
            row[i] = -1
            if kind[i] != NONE:
                stream[at], event[at], kinds[at], orders[at], counts[at] = t, i, kind[i], order[i], count[i]
                row[i] = at
                at += 1
    return stream[:at], event[:at], kinds[:at], orders[:at], counts[:at]


# ------------------------------------------------------------------ pools


@compiled()
def rank_bins(counts, before, lo, hi, x, greater, equal, n):  # type: ignore[no-untyped-def]
    """Let the numbers of bins x join: how many are greater, how many equal, itself included, and how many in all."""
    for t in range(len(lo)):
        for i in range(lo[t], hi[t]):
            b = int(x[i])
            counts[t, b] += 1
            above = 0
            for c in range(b + 1, counts.shape[1]):
                above += counts[t, c]
            greater[i], equal[i], n[i] = above, counts[t, b], before[t] + i - lo[t] + 1


@compiled()
def _insert(column, used, i, value):  # type: ignore[no-untyped-def]
    for j in range(used, i, -1):
        column[j] = column[j - 1]
    column[i] = value


@compiled()
def _join(score, count, used, total, x):  # type: ignore[no-untyped-def]
    """Let x join a pool of ``total`` scores, ``used`` distinct ones in order.

    How many are greater, how many equal, itself included, and how many are distinct now.
    """
    left, right = 0, used
    while left < right:
        middle = (left + right) // 2
        if score[middle] < x:
            left = middle + 1
        else:
            right = middle
    ties = used < total
    if left == used or score[left] != x:
        _insert(score, used, left, x)
        _insert(count, used, left, 0)
        used += 1
    count[left] += 1
    above = used - left - 1
    if ties:
        above = 0
        for j in range(left + 1, used):
            above += count[j]
    return above, count[left], used


@compiled()
def rank_scores(score, count, start, used, most, before, lo, hi, x, greater, equal, n):  # type: ignore[no-untyped-def]
    """The same for scores, until a pool holds ``most`` distinct ones: ``hi[t]`` becomes the end of those that joined.

    The pool of stream t begins at ``start[t]`` and has room enough.
    """
    for t in range(len(lo)):
        for i in range(lo[t], hi[t]):
            if used[t] >= most:
                hi[t] = i
                break
            total = before[t] + i - lo[t]
            greater[i], equal[i], used[t] = _join(score[start[t] :], count[start[t] :], used[t], total, x[i])
            n[i] = total + 1


# ------------------------------------------------------------------ bets


@compiled()
def simple_jumper(state, rate, lo, hi, p, out):  # type: ignore[no-untyped-def]
    """`bets.SimpleJumper`."""
    for t in range(len(lo)):
        blend.simple_jumper(state[t], rate, p[lo[t] : hi[t]], out[lo[t] : hi[t]])


@compiled()
def composite_jumper(state, rates, lo, hi, p, out):  # type: ignore[no-untyped-def]
    """`bets.CompositeJumper`; a state is the log shares of the jumpers, then the weights of each."""
    m, longest = len(rates), 0
    for t in range(len(lo)):
        longest = max(longest, hi[t] - lo[t])
    table = np.empty((longest, m))
    for t in range(len(lo)):
        gains = table[: hi[t] - lo[t]]
        for k in range(m):
            blend.simple_jumper(state[t, m + 3 * k : m + 3 * k + 3], rates[k], p[lo[t] : hi[t]], gains[:, k])
        blend.blend(state[t, :m], gains, out[lo[t] : hi[t]])


@compiled()
def sleepy_jumper(state, waking, jumping, lo, hi, p, out):  # type: ignore[no-untyped-def]
    """`bets.SleepyJumper`."""
    for t in range(len(lo)):
        jumper.extend(state[t], waking, jumping, p[lo[t] : hi[t]], out[lo[t] : hi[t]])


@compiled()
def simple_mixture(state, lo, hi, p, out):  # type: ignore[no-untyped-def]
    """`bets.SimpleMixture`."""
    for t in range(len(lo)):
        mixture.extend(state[t], p[lo[t] : hi[t]], out[lo[t] : hi[t]])


@compiled()
def gamma_mixture(state, shape, rate, lo, hi, p, out):  # type: ignore[no-untyped-def]
    """`bets.GammaMixture`."""
    for t in range(len(lo)):
        mixture.gamma_extend(state[t], shape, rate, p[lo[t] : hi[t]], out[lo[t] : hi[t]])


@compiled()
def histogram(state, lo, hi, p, out):  # type: ignore[no-untyped-def]
    """`bets.Histogram`."""
    for t in range(len(lo)):
        blend.histogram(state[t], p[lo[t] : hi[t]], out[lo[t] : hi[t]])


# ------------------------------------------------------------------ capital and alarms


@compiled()
def accumulate(real, lo, hi, gains, out):  # type: ignore[no-untyped-def]
    """The log capital after each gain."""
    for t in range(len(lo)):
        summation.accumulate(real[t, SUM : CARRY + 1], gains[lo[t] : hi[t]], out[lo[t] : hi[t]])


@compiled()
def cusum(state, lo, hi, log_values, out):  # type: ignore[no-untyped-def]
    """The statistic of `alarms.Cusum`."""
    for t in range(len(lo)):
        alarms.cusum(state[t], log_values[lo[t] : hi[t]], out[lo[t] : hi[t]])


@compiled()
def shiryaev_roberts(state, lo, hi, log_values, out):  # type: ignore[no-untyped-def]
    """The statistic of `alarms.ShiryaevRoberts`."""
    for t in range(len(lo)):
        alarms.shiryaev_roberts(state[t], log_values[lo[t] : hi[t]], out[lo[t] : hi[t]])


@compiled()
def settle(whole, real, restart, lo, hi, log_values, sounds, begun, n, alarm, change, test):  # type: ignore[no-untyped-def]
    """Count the steps, and keep what `Monitor` keeps of them: extremes, the alarm, and where the change began.

    With restarts ``hi[t]`` becomes the end of the steps up to the first alarm, after which a new test has ``begun``.
    """
    for t in range(len(lo)):
        for i in range(lo[t], hi[t]):
            if whole[t, N] == whole[t, SINCE]:
                real[t, HIGH] = 0.0
            whole[t, N] += 1
            real[t, HIGH] = max(real[t, HIGH], log_values[i])
            if sounds[i] and (restart or whole[t, ALARM] < 0):
                whole[t, ALARM], whole[t, CHANGE] = whole[t, N], whole[t, LOWEST]
            if log_values[i] <= real[t, LOW]:
                real[t, LOW], whole[t, LOWEST] = log_values[i], whole[t, N]
            n[i], test[i] = whole[t, N], whole[t, TEST]
            alarm[i] = sounds[i] if restart else whole[t, ALARM] >= 0
            change[i] = whole[t, CHANGE] if alarm[i] else -1
            if restart and sounds[i]:
                hi[t], begun[t] = i + 1, True
                real[t, LOW], real[t, SUM], real[t, CARRY] = 0.0, 0.0, 0.0
                whole[t, LOWEST] = whole[t, SINCE] = whole[t, N]
                whole[t, TEST] += 1
                break


# ------------------------------------------------------------------ rows of different lengths, end to end


@compiled()
def lift(column, start, used, places, to, out):  # type: ignore[no-untyped-def]
    """Copy the rows at these places, each to its own start."""
    for t in range(len(places)):
        begin = start[places[t]]
        for j in range(used[places[t]]):
            out[to[t] + j] = column[begin + j]


@compiled()
def splice(column, start, changed, rows, begin, used, out):  # type: ignore[no-untyped-def]
    """All rows end to end, row k being row ``changed[k]`` of the others unless that is negative."""
    at = 0
    for k in range(len(used)):
        if changed[k] < 0:
            for j in range(used[k]):
                out[at + j] = column[start[k] + j]
        else:
            for j in range(used[k]):
                out[at + j] = rows[begin[changed[k]] + j]
        at += used[k]
