"""Many streams at once: find those that have changed, with a bound on the rate of false discoveries."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from exchangeable import native
from exchangeable.protocols import Floats, Integers
from exchangeable.validation import check_integer, check_interval, format_value, is_masked

MAX_LISTED = 5  # streams that a repr lists
RULE = "log_values must be numbers below inf (-inf is bankruptcy, and valid)"
TERMS = 20  # of the exponential series, enough for arguments up to 1

Names = Callable[[Integers], list[Any]]  # returns the names of the streams at these positions
Rule = Literal["given", "fixed", "joined"]
RULES: Mapping[Rule, str] = {"given": "", "fixed": " fixed in advance", "joined": " weighted by the order of joining"}


class Discoveries(NamedTuple):
    """The streams that have changed, sorted by evidence; streams with equal evidence are in the order of the input.

    ``rejected`` is a mask in the order of the input: ``frame[found.rejected]`` in pandas,
    ``frame.filter(found.rejected)`` in Polars. ``rule`` is "given" (K is the number of streams given), "fixed" (K was
    fixed in advance) or "joined" (weighted by the order of joining: ``log(e_j / (j (j + 1)))`` instead of ``log e_j``
    is compared with the threshold, and K is 1 in the threshold).
    """

    names: list[Any]  # of the k discoveries
    log_values: Floats  # of the discoveries, natural logs
    rejected: NDArray[np.bool_]
    streams: int  # K; with the rule "joined", the last position given
    alpha: float
    log_threshold: float  # log(K / (alpha k)), which all k discoveries have reached; with k = 1 if there is none
    rule: Rule

    def __repr__(self) -> str:
        shown = [f"{name!r} ({value:.4g})" for name, value in zip(self.names, self.log_values.tolist(), strict=True)]
        more = [f"and {len(shown) - MAX_LISTED:,} more"] * (len(shown) > MAX_LISTED)
        found = ", ".join(shown[:MAX_LISTED] + more) or "none"
        streams = f"{self.streams:,} streams{RULES[self.rule]}"
        return f"Discoveries({len(shown):,} of {streams} at alpha={self.alpha:g}: {found})"


def e_bh(
    log_values: Any,
    alpha: float,
    *,
    stream: str = "stream",
    log_value: str = "log_value",
    base: float = math.e,
    streams: int | None = None,
    joined: Any = None,
) -> Discoveries:
    """Find which of K streams have changed, with a false discovery rate of at most alpha: the e-BH rule.

    With the capitals sorted, ``e_(1) >= e_(2) >= ..``, the streams with the k largest are discoveries, where

        k = max{k : e_(k) >= K / (alpha k)} .

    The expected share of exchangeable streams among the discoveries is at most alpha. For one stream this is Ville's
    rule. O(K + m log m) time with m streams above 1/alpha. All is computed in logs, so large capitals never overflow.

    ``log_values`` are the logs of the *current* martingale values (``log_value`` of a step or a martingale): a mapping
    from names; a pandas Series (its index holds the names); a one-dimensional array (the names are the positions); or
    a pandas, Polars or Arrow frame with one row per stream, whose columns ``stream`` and ``log_value`` hold the name
    and the value. Logs are natural unless ``base`` says otherwise: 10 for a column ``log10_martingale``. ``-inf``, a
    bankrupt stream, is valid; a missing value or ``inf`` is not.

    When the guarantee holds: the value of each stream at a time fixed in advance, or at a time that depends only on its
    own history, is an e-value, and the guarantee holds however the streams depend on one another. If the time depends
    on the entire fleet (say, the first discovery), it holds for independent streams only; for dependent ones use
    ``adjusted``. **The running maximum of a martingale is not an e-value and must not be used here**; ``adjusted``
    turns it into one.

    ``log_value`` of `Monitor`, `RateMonitor`, `Risk` and `TableMonitor` may be mixed, each with its own hypothesis. Two
    exceptions: after a restart, ``log_value`` is about the current test only, so use monitors that latch. And evidence
    of ``Risk.against`` is valid unless its limit is too low, so the false discovery rate is at most alpha plus the sum
    of ``reference_alpha`` over these streams.

    >>> found = e_bh({"a": 9.0, "b": 0.3, "c": 4.5, "d": -2.0}, 0.05)
    >>> found
    Discoveries(2 of 4 streams at alpha=0.05: 'a' (9), 'c' (4.5))
    >>> found.names, found.rejected.tolist(), round(found.log_threshold, 2)
    (['a', 'c'], [True, False, True, False], 3.69)

    The choice of K: by default K is the number of streams given. That is valid if these are all the streams there will
    ever be, and none was added or removed after the first look at the data. Otherwise use one of these:

    - ``streams``: K, the most streams there will ever be, deleted ones included, fixed before the first look. Streams
      that are not given count as e = 0.
    - ``joined``: the position of each stream in the order of joining, 1 for the first one ever. A deleted stream keeps
      its position. With ``gamma_j = 1/(j (j + 1))``, which sum to 1, the k streams with the largest ``gamma_j e_j`` are
      discoveries, where ``k = max{k : (gamma e)_(k) >= 1 / (alpha k)}``. Give an array in the order of the input, a
      mapping or a Series with the same names, or the name of a column of the frame.

    Proof, for fixed weights w_j (1/K, or gamma_j) with sum at most 1: if j is one of the k discoveries, ``w_j e_j >=
    1/(alpha k)``. So a false discovery j adds 1/k <= alpha w_j e_j to the false discovery proportion, whose mean is at
    most alpha times the sum of w_j E[e_j] <= 1. Deleted streams only make the sum smaller.

    >>> e_bh({"a": 9.0, "c": 4.5}, 0.05, streams=100).names, e_bh({"a": 9.0, "c": 4.5}, 0.05, joined=[1, 30]).names
    (['a'], ['a'])

    Reference: Wang and Ramdas (2022), *False discovery rate control with e-values*, section 4.
    """
    level = check_interval("alpha", alpha, 0.0, math.nextafter(1.0, 0.0), "(0, 1)")
    unit = math.log(check_interval("base", base, 1.0, 1e300, "(1, 1e300]"))
    raw, names = _read_fleet(log_values, stream, log_value)
    with np.errstate(over="ignore"):
        values = raw * unit
    _check_values(raw, values, names)
    if streams is not None and joined is not None:
        raise ValueError("streams and joined must not both be given: the fleet is fixed in advance, or it grows")
    size = K = fleet_size(streams, len(values))
    rule: Rule = "given" if streams is None else "fixed"
    weighted = values
    if joined is not None:
        numbers = _joining_numbers(joined, log_values, names, len(values))
        size, K, rule = int(numbers.max()), 1, "joined"
        weighted = values - np.log(numbers) - np.log1p(numbers)
    lowest, threshold = _apply_rule(weighted, K, level)
    rejected = weighted >= lowest
    positions = np.flatnonzero(rejected)
    positions = positions[np.argsort(-weighted[positions], kind="stable")]
    return Discoveries(names(positions), values[positions], rejected, size, level, threshold, rule)


def adjusted(log_peaks: ArrayLike) -> Floats:
    """Turn the running maxima of martingales into the logs of e-values, which are valid for ``e_bh`` at any time.

        log A(x) ,   A(x) = int_0^1 kappa x^(1 - kappa) d kappa = (x - 1 - ln x) / (ln x)^2 ,   x = max_{i<=n} S_i

    For dependent streams that are watched together: the time at which they are evaluated may depend on anything, and
    evidence once reached is not lost. The price is about ``2 ln ln x`` in the log. ``log_peaks`` is the highest
    ``log_value`` so far of each stream; it is at least 0, since S_0 = 1. O(1) for each stream.

    >>> adjusted([0.0, 5.0, 100.0]).round(3)
    array([-0.693,  1.74 , 90.79 ])

    Reference: Dawid et al. (2011), *Insuring against loss of evidence*; Choe and Ramdas (2024), section 4.
    """
    peaks = _numbers("log_peaks", log_peaks)
    bad = np.flatnonzero(~((peaks >= 0.0) & (peaks < math.inf)))
    if bad.size:
        raise ValueError(f"log_peaks must be finite and at least 0, got {peaks[bad[0]]} at position {bad[0]}")
    small, large = np.minimum(peaks, 1.0), np.maximum(peaks, 1.0)
    series = np.zeros(len(peaks))  # sum_k L^k / (k + 2)!, as (e^L - 1 - L) / L^2 would cancel
    for k in reversed(range(TERMS)):
        series = series * small + 1.0 / math.factorial(k + 2)
    with np.errstate(under="ignore"):
        direct = large + np.log1p(-(1.0 + large) * np.exp(-large)) - 2.0 * np.log(large)
    return np.where(peaks < 1.0, np.log(series), direct)


def stream_seed(seed: int, key: str | int | bytes) -> int:
    """Return the seed of one stream of many: a public function of the common seed and the key of the stream.

        BLAKE2b with a digest of 8 bytes, keyed with the seed, of b"s" + UTF-8, b"i" + decimal digits or b"b" + bytes

    as an integer (all little-endian, the seed in 8 bytes). So anyone can check a single stream with
    ``Monitor(measure, bet, alarm, seed=stream_seed(seed, key))``. O(length of the key).

    >>> stream_seed(7, "a"), stream_seed(7, 1) == stream_seed(7, "1")
    (812320183666626163, False)

    Reference: RFC 7693.
    """
    name = check_integer("seed", seed, 0, 2**64 - 1).to_bytes(8, "little")
    return int.from_bytes(hashlib.blake2b(_tagged(key), digest_size=8, key=name).digest(), "little")


def stream_seeds(seed: int, keys: Iterable[str | int | bytes]) -> NDArray[np.uint64]:
    """Return the `stream_seed` of each key, faster than one by one.

    >>> int(stream_seeds(7, ["a", "b"])[0]) == stream_seed(7, "a")
    True
    """
    name = check_integer("seed", seed, 0, 2**64 - 1).to_bytes(8, "little")
    keyed = hashlib.blake2b(digest_size=8, key=name)

    def digest(key: str | int | bytes) -> bytes:
        state = keyed.copy()
        state.update(_tagged(key))
        return state.digest()

    return np.frombuffer(b"".join(map(digest, keys)), "<u8").astype(np.uint64)


def _tagged(key: str | int | bytes) -> bytes:
    """Encode a key with its type; different keys give different bytes."""
    if isinstance(key, bytes):
        return b"b" + key
    if isinstance(key, (int, np.integer)) and not isinstance(key, bool) and -(2**63) <= key < 2**63:
        return b"i%d" % int(key)
    if not isinstance(key, str):
        raise ValueError(f"key must be text, bytes or a 64-bit integer, got {format_value(key)}")
    try:
        return b"s" + key.encode()
    except UnicodeEncodeError:
        raise ValueError(f"key must be text that can be written in UTF-8, got {format_value(key)}") from None


@overload
def log_threshold(streams: int, discoveries: int, alpha: float) -> float: ...
@overload
def log_threshold(streams: int, discoveries: Integers, alpha: float) -> Floats: ...
def log_threshold(streams: int, discoveries: int | Integers, alpha: float) -> float | Floats:
    """Return the log capital that each of k ``discoveries`` must have reached in ``e_bh``: log(K / (alpha k)).

    >>> round(log_threshold(4, 2, 0.05), 2)
    3.69
    """
    thresholds: Floats = np.log(streams / np.atleast_1d(discoveries)) - native.log(alpha, None)
    return float(thresholds[0]) if isinstance(discoveries, int) else thresholds


def _apply_rule(values: Floats, K: int, alpha: float) -> tuple[float, float]:
    """Return the smallest log value of a discovery (inf if there is none), and the log threshold.

    Streams with equal values are treated equally. Only values that can be discoveries are sorted: those that reach the
    threshold for all streams to be discoveries.
    """
    highest = np.sort(values[values >= log_threshold(K, len(values), alpha)])[::-1]
    enough = np.flatnonzero(highest >= log_threshold(K, np.arange(1, len(highest) + 1), alpha))
    if not enough.size:
        return math.inf, log_threshold(K, 1, alpha)
    return float(highest[enough[-1]]), log_threshold(K, int(enough[-1]) + 1, alpha)


def fleet_size(streams: int | None, given: int) -> int:
    """Return K of ``e_bh``: ``streams``, which must be at least the number given, or that number if it is None.

    >>> fleet_size(100, 4), fleet_size(None, 4)
    (100, 4)
    """
    if streams is None:
        return given
    if isinstance(streams, bool) or not isinstance(streams, (int, np.integer)) or not given <= streams <= 2**53:
        rule = f"streams must be an integer from {given}, the number of streams given, to 2**53"
        raise ValueError(f"{rule}, got {streams!r}")
    return int(streams)


def _joining_numbers(joined: Any, log_values: Any, names: Names, count: int) -> Floats:
    """Return the position of each stream in the order of joining: distinct positive integers."""
    positions = _aligned(joined, log_values)
    if len(positions) != count:
        raise ValueError(f"joined must hold one position for each of the {count} streams, got {len(positions)}")
    bad = np.flatnonzero(~((positions >= 1.0) & (positions <= 2.0**53) & (positions == np.floor(positions))))
    if bad.size:
        stream = names(bad[:1])[0]
        raise ValueError(f"joined must hold integers from 1 to 2**53, got {positions[bad[0]]:g} for stream {stream!r}")
    order = np.argsort(positions, kind="stable")
    repeated = np.flatnonzero(np.diff(positions[order]) == 0.0)
    if repeated.size:
        one, other = names(order[repeated[0] : repeated[0] + 2])
        raise ValueError(f"joined must hold different positions, got the same one for streams {one!r} and {other!r}")
    return positions


def _check_values(raw: Floats, values: Floats, names: Names) -> None:
    if not len(values):
        raise ValueError("log_values must hold at least one stream, got none")
    bad = np.flatnonzero(~(values < math.inf))  # also true for NaN
    if bad.size:
        raise ValueError(f"{RULE}, got {raw[bad[0]]} for stream {names(bad[:1])[0]!r}")


# ------------------------------------------------------------------ input formats


def _read_fleet(log_values: Any, stream: str, log_value: str) -> tuple[Floats, Names]:
    """Return the values, and a function that returns names, so that only the names that are needed are read."""
    if isinstance(log_values, Mapping):
        return _mapping_values(log_values), _names_from_list(list(log_values))
    if isinstance(log_values, (np.ndarray, list, tuple)):
        return _numbers("log_values", log_values), np.ndarray.tolist
    import narwhals as nw

    if nw.dependencies.is_pandas_series(log_values):
        _check_index(log_values.index)
        frame = nw.from_native(log_values.to_frame("value"), eager_only=True)
        return _column(frame, "log_value", "value"), lambda positions: log_values.index[positions].tolist()
    frame = nw.from_native(log_values, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        return _column(frame, "log_value", log_value), _names_from_column(frame, stream)
    return _numbers("log_values", log_values), np.ndarray.tolist


def _aligned(joined: Any, log_values: Any) -> Floats:
    """Return the positions in the order of the streams; NaN for a stream without one."""
    if isinstance(joined, Mapping) and isinstance(log_values, Mapping):
        return _numbers("joined", [joined.get(name, math.nan) for name in log_values])
    import narwhals as nw

    if nw.dependencies.is_pandas_series(joined) and nw.dependencies.is_pandas_series(log_values):
        return _numbers("joined", joined.reindex(log_values.index))
    frame = nw.from_native(log_values, eager_only=True, pass_through=True)
    if isinstance(joined, str) and isinstance(frame, nw.DataFrame):
        return _column(frame, "joined", joined)
    return _numbers("joined", joined)


def _check_index(index: Any) -> None:
    missing = index.to_frame().isna().to_numpy().any()  # of one level or of several
    if not index.is_unique or missing:
        raise ValueError(f"the index of log_values must name each stream once, got {format_value(index.tolist())}")


def _mapping_values(log_values: Mapping[Any, Any]) -> Floats:
    for name, value in log_values.items():
        if not isinstance(value, (float, int, np.floating, np.integer)) or isinstance(value, bool):
            raise ValueError(f"{RULE}, got {format_value(value)} for stream {name!r}")
    try:
        return np.array(list(log_values.values()), dtype=np.float64)
    except OverflowError:
        raise ValueError(f"{RULE}, got an integer beyond float64") from None


def _names_from_list(names: list[Any]) -> Names:
    return lambda positions: [names[i] for i in positions.tolist()]


def _numbers(argument: str, values: Any) -> Floats:
    """Validate a column of real numbers."""
    try:
        array = np.asarray(values)
    except (TypeError, ValueError):  # ragged
        array = np.empty((0, 0))
    if array.ndim != 1 or (array.dtype.kind not in "iuf" and array.size) or is_masked(values):
        forms = "a one-dimensional array of numbers" + ", a mapping or a frame in memory" * (argument == "log_values")
        raise ValueError(f"{argument} must be {forms}, got {format_value(values)}")
    return array.astype(np.float64)


def _column(frame: Any, argument: str, name: str) -> Floats:
    """Return a column of numbers; a missing one becomes NaN, so that the error can name its stream."""
    column = _get_column(frame, argument, name)
    if not column.dtype.is_numeric():
        raise ValueError(f"{argument} must name a column of numbers, got {name!r} of type {column.dtype}")
    values = np.full(len(column), math.nan)
    present = ~column.is_null().to_numpy().astype(np.bool_)
    values[present] = column.drop_nulls().to_numpy()
    return values


def _names_from_column(frame: Any, name: str) -> Names:
    """Return the names in a frame; each must be present and unique."""
    import narwhals as nw

    column = _get_column(frame, "stream", name)
    if isinstance(column.dtype, (nw.List, nw.Array, nw.Struct)):
        raise ValueError(f"stream must name a column of names, got {name!r} of type {column.dtype}")
    for row in np.flatnonzero(column.is_null().to_numpy())[:1]:
        raise ValueError(f"stream must name every stream, got a missing name in row {row} of column {name!r}")
    try:
        distinct = column.n_unique()
    except TypeError:  # lists among pandas objects
        first = format_value(column[0])
        raise ValueError(f"stream must name a column of names, got {first} in column {name!r}") from None
    if distinct < len(column):
        twice = column.filter(column.is_duplicated())[0]
        raise ValueError(f"stream must name each stream once, by its current value, got {twice!r} in several rows")
    return lambda positions: column[
        positions.tolist()
    ].to_list()  # a list, since older versions of narwhals do not accept an array


def _get_column(frame: Any, argument: str, name: str) -> Any:
    if name not in frame.columns:
        raise ValueError(f"{argument} must name one of the columns {format_value(frame.columns)}, got {name!r}")
    return frame[name]
