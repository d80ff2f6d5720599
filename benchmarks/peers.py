"""Other libraries, each used as its documentation tells: one small adapter each, all with one way to be called.

``PATHS`` bet on p-values (``peer.path(p)``), ``STREAMS`` compute them from examples (``peer.stream(X, y, seed)``). Both
give the log capital after each step, whatever the library made of it: NaN and infinities are passed on, exceptions too.
"""

# mypy: disable-error-code="import-not-found"
from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

LIBRARIES = ("MAPIE", "crepes", "online-cp", "nonconform")
VILLE = "P(the capital ever reaches 1/alpha) <= alpha"


class OnPValues(NamedTuple):
    """A martingale on given p-values."""

    name: str
    library: str
    path: Callable[[Floats], Floats]  # p-values -> log capital after each
    promise: str = VILLE
    above: bool = False  # the library sounds above 1/alpha, not at it
    after: int = 0  # it judges after this many steps at the earliest
    cost: float = 1e-4  # seconds a step, about


class OnExamples(NamedTuple):
    """A martingale on examples."""

    name: str
    library: str
    takes: str  # "scores": y is None, X one column; "labelled": rows and class labels; "rows": y plays no part
    stream: Callable[[Floats, Integers | None, int], Floats]  # X, y, seed -> log capital after each example it bets on
    promise: str = VILLE
    above: bool = False
    after: int = 0
    cost: float = 1e-4


Peer = OnPValues | OnExamples


def version(library: str) -> str | None:
    """The installed version, or None.

    >>> version("no such library") is None
    True
    """
    try:
        return installed_version(library)
    except PackageNotFoundError:
        return None


def installed(peers: Iterable[Any]) -> list[Any]:
    """Those whose library is here."""
    return [peer for peer in peers if version(peer.library) is not None]


def sounds(peer: Peer, log_value: Floats, alpha: float) -> bool:
    """Whether the library would have told its user of a change, at its own rule; NaN is no alarm."""
    if len(log_value) < peer.after:
        return False
    threshold = -np.log(alpha)
    return bool((log_value > threshold if peer.above else log_value >= threshold).any())


def quietly(call: Callable[..., Floats], *arguments: Any) -> Floats:
    """Without the library's warnings (it warns of rejections, overflow, fitting on a slice)."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return call(*arguments)


def _log(values: Any) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(np.asarray(values, dtype=np.float64))


# ------------------------------------------------------------------ online-cp: README, "Conformal test martingales"


def _online_cp(make: Callable[[Any], Any]) -> Callable[[Floats], Floats]:
    def call(p: Floats) -> Floats:
        import online_cp

        martingale = make(online_cp)
        for value in p.tolist():
            martingale.update(value)
        return np.asarray(martingale.log_martingale_values[1:], dtype=np.float64)  # the first is log 1

    return call


def _online_cp_neighbours(X: Floats, y: Integers | None, seed: int) -> Floats:
    """The README's loop, from the first example on: p-value, bet, learn."""
    import online_cp

    assert y is not None
    labels = np.unique(y)
    predictor = online_cp.ConformalNearestNeighboursClassifier(k=1, label_space=labels, rnd_state=seed)
    martingale = online_cp.PluginMartingale(betting_strategy=online_cp.GaussianKDE())
    for x, label in zip(X, y, strict=True):
        p, update = predictor.compute_p_value(x, label, return_update=True)
        martingale.update(p)
        predictor.learn_one(x, label, update)
    return np.asarray(martingale.log_martingale_values[1:], dtype=np.float64)


# ------------------------------------------------------------------ crepes: README, "test the exchangeability"


def _crepes(make: Callable[[Any], Any]) -> Callable[[Floats], Floats]:
    def call(p: Floats) -> Floats:
        from crepes import martingales

        return _log(make(martingales).apply(p))

    return call


def _crepes_scores(X: Floats, y: Integers | None, seed: int) -> Floats:
    from crepes import martingales

    p = martingales.semi_online_p_values(X[:, 0], seed=seed)
    return _log(martingales.SimpleJumper().apply(p))


def _crepes_labelled(X: Floats, y: Integers | None, seed: int) -> Floats:
    """A third to fit, a third to calibrate, a third to test; the README's forest replaced by a quick learner."""
    from crepes import WrapClassifier, martingales
    from sklearn.naive_bayes import GaussianNB

    assert y is not None
    fit, calibrate = len(y) // 3, 2 * len(y) // 3
    model = WrapClassifier(GaussianNB())
    model.fit(X[:fit], y[:fit])
    model.calibrate(X[fit:calibrate], y[fit:calibrate], seed=seed)
    p = model.predict_p(X[calibrate:], y[calibrate:], all_classes=False, online=True, seed=seed)
    return _log(martingales.SimpleJumper().apply(np.asarray(p, dtype=np.float64)))


# ------------------------------------------------------------------ MAPIE: OnlineMartingaleTest


def _mapie(method: str) -> Callable[[Floats], Floats]:
    """The two updates that its ``update`` calls, on given p-values."""

    def call(p: Floats) -> Floats:
        from mapie.exchangeability_testing import OnlineMartingaleTest

        test = OnlineMartingaleTest(test_method=method, warn=False)
        update = getattr(
            test, "update_plugin_martingale" if method == "plugin_martingale" else "update_simple_jumper_martingale"
        )
        for value in p.tolist():
            update(value)
            test.pvalue_history.append(value)
        return _log(test.martingale_value_history)

    return call


def _mapie_labelled(method: str) -> Callable[[Floats, Integers | None, int], Floats]:
    """As in its example: one ``update`` with the table; it fits its own model on the first 30 % and tests the rest."""

    def call(X: Floats, y: Integers | None, seed: int) -> Floats:
        from mapie.exchangeability_testing import OnlineMartingaleTest

        test = OnlineMartingaleTest(task="classification", test_method=method, random_state=seed, warn=False)
        test.update(X, y)
        return _log(test.martingale_value_history)

    return call


# ------------------------------------------------------------------ nonconform: README, "sequential monitoring"


def _nonconform(make: Callable[[Any], Any], column: str = "log_martingale") -> Callable[[Floats], Floats]:
    def call(p: Floats) -> Floats:
        from nonconform import martingales

        return np.array([getattr(state, column) for state in make(martingales).update_many(p)])

    return call


def _nonconform_scores(X: Floats, y: Integers | None, seed: int) -> Floats:
    from nonconform.martingales import SimpleJumperMartingale
    from nonconform.monitoring import SequentialRankConformalizer

    p = SequentialRankConformalizer(seed=seed).update_many(X[:, 0])
    return np.array([state.log_martingale for state in SimpleJumperMartingale().update_many(p)])


def _nonconform_rows(X: Floats, y: Integers | None, seed: int) -> Floats:
    """A third trains and calibrates, the rest is watched; the README's forest replaced by a quick detector."""
    logging.getLogger("nonconform").setLevel(logging.ERROR)  # it warns that this detector needs no seed
    from nonconform import ConformalDetector, Split
    from nonconform.martingales import SimpleJumperMartingale
    from nonconform.monitoring import ExchangeabilityMonitor
    from sklearn.svm import OneClassSVM

    first = len(X) // 3
    detector = ConformalDetector(detector=OneClassSVM(), strategy=Split(n_calib=0.3), seed=seed).fit(X[:first])
    monitor = ExchangeabilityMonitor.from_split_detector(detector, martingale=SimpleJumperMartingale(), seed=seed)
    states = monitor.update_many(X[first:])
    return np.array([state.martingale_state.log_restarted_martingale for state in states])


# ------------------------------------------------------------------ all of them

PATHS: tuple[OnPValues, ...] = (
    OnPValues("MAPIE jumper", "MAPIE", _mapie("jumper_martingale"), above=True, after=100, cost=1.2e-5),
    OnPValues("MAPIE plug-in", "MAPIE", _mapie("plugin_martingale"), above=True, after=100, cost=1e-3),
    OnPValues("crepes SimpleJumper", "crepes", _crepes(lambda m: m.SimpleJumper()), cost=6e-6),
    OnPValues("crepes SleeperStayer", "crepes", _crepes(lambda m: m.SleeperStayer()), cost=7e-6),
    OnPValues("crepes SleeperDrifter", "crepes", _crepes(lambda m: m.SleeperDrifter()), cost=3e-5),
    OnPValues("online-cp PluginMartingale", "online-cp", _online_cp(lambda o: o.PluginMartingale()), cost=1e-4),
    OnPValues("online-cp SimpleJumper", "online-cp", _online_cp(lambda o: o.SimpleJumper()), cost=2e-4),
    OnPValues("online-cp CompositeJumper", "online-cp", _online_cp(lambda o: o.CompositeJumper()), cost=1.2e-3),
    OnPValues("online-cp SimpleMixture", "online-cp", _online_cp(lambda o: o.SimpleMixtureMartingale()), cost=5e-5),
    OnPValues("online-cp SleeperStayer", "online-cp", _online_cp(lambda o: o.SleeperStayer()), cost=2e-4),
    OnPValues("online-cp SleeperDrifter", "online-cp", _online_cp(lambda o: o.SleeperDrifter()), cost=4e-4),
    OnPValues(
        "online-cp BetaMoments",
        "online-cp",
        _online_cp(lambda o: o.PluginMartingale(betting_strategy=o.BetaMoments())),
    ),
    OnPValues(
        "online-cp ParticleFilter",
        "online-cp",
        _online_cp(lambda o: o.PluginMartingale(betting_strategy=o.ParticleFilterStrategy())),
        cost=2e-3,
    ),
    OnPValues("nonconform Power", "nonconform", _nonconform(lambda m: m.PowerMartingale()), cost=6e-5),
    OnPValues("nonconform SimpleMixture", "nonconform", _nonconform(lambda m: m.SimpleMixtureMartingale())),
    OnPValues("nonconform SimpleJumper", "nonconform", _nonconform(lambda m: m.SimpleJumperMartingale())),
    OnPValues(
        "nonconform SimpleJumper, restarted",
        "nonconform",
        _nonconform(lambda m: m.SimpleJumperMartingale(), "log_restarted_martingale"),
    ),
)
STREAMS: tuple[OnExamples, ...] = (
    OnExamples(
        "MAPIE jumper", "MAPIE", "labelled", _mapie_labelled("jumper_martingale"), above=True, after=100, cost=1e-4
    ),
    OnExamples(
        "MAPIE plug-in", "MAPIE", "labelled", _mapie_labelled("plugin_martingale"), above=True, after=100, cost=8e-4
    ),
    OnExamples("crepes semi-online ranks", "crepes", "scores", _crepes_scores, cost=2e-5),
    OnExamples("crepes predict_p online", "crepes", "labelled", _crepes_labelled, cost=2e-5),
    OnExamples("online-cp nearest neighbours", "online-cp", "labelled", _online_cp_neighbours, cost=9e-4),
    OnExamples("nonconform sequential ranks", "nonconform", "scores", _nonconform_scores),
    OnExamples("nonconform monitor, restarted", "nonconform", "rows", _nonconform_rows, cost=5e-4),
)
