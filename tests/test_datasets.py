"""The readers on small files made here, and on the published files where they are at hand."""

from __future__ import annotations

import gzip
import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from exchangeable.protocols import Floats, Integers
from exchangeable.research import datasets
from exchangeable.research.datasets import (
    DatasetError,
    cache_folder,
    decreasing_noise,
    digits,
    satellite,
    smooth,
    usps,
)
from exchangeable.research.download import PublishedFile

SHARED = Path(__file__).parents[1].parent / "shared" / "data"
published = pytest.mark.skipif(not SHARED.is_dir(), reason="the published files are not in ../shared/data")


def publish(folder: Path, name: str, data: bytes, rows: int) -> PublishedFile:
    """Put a file into the folder, and describe it."""
    (folder / name).write_bytes(data)
    return PublishedFile("https://example.org/", name, len(data), rows, hashlib.sha256(data).hexdigest())


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two digits and three pixels in the published formats."""
    digit = " ".join(f"{0.001 * k:.3f}" for k in range(256))
    table = {
        "usps": (
            publish(tmp_path, "train.gz", gzip.compress(f"7.0000 {digit} \n".encode()), 1),
            publish(tmp_path, "test.gz", gzip.compress(f"3 {digit}\n".encode()), 1),
        ),
        "satellite": (
            publish(tmp_path, "trn", (" ".join(map(str, range(30, 67))) + "\n").encode(), 1),
            publish(tmp_path, "tst", (" ".join(map(str, range(37))) + "\n").encode() * 2, 2),
        ),
    }
    monkeypatch.setattr(datasets, "PUBLISHED", table)
    return tmp_path


def types(*columns: Floats | Integers) -> list[str]:
    return [str(column.dtype) for column in columns]


def test_small_usps(small: Path) -> None:
    X, y = usps(small, flavour="raw")
    assert types(X, y) == ["float64", "int64"]
    assert y.tolist() == [7, 3]
    assert X.tolist() == [[round(0.001 * k, 3) for k in range(256)]] * 2
    assert X.flags.c_contiguous
    assert np.array_equal(usps(small).X, smooth(X))
    assert (usps(small, flavour="smoothed").y == y).all()


def test_small_satellite(small: Path) -> None:
    X, y = satellite(small)
    assert types(X, y) == ["float64", "int64"]
    assert X.tolist() == [list(range(30, 66))] + [list(range(36))] * 2
    assert y.tolist() == [66, 36, 36]


def test_the_cache_is_read_by_default(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXCHANGEABLE_DATA", str(small))
    assert cache_folder() == small
    assert satellite().y.tolist() == satellite(str(small)).y.tolist()


@pytest.mark.parametrize("value", ["", None])
def test_the_cache_is_that_of_the_user_by_default(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    monkeypatch.delenv("EXCHANGEABLE_DATA", raising=False)
    if value is not None:
        monkeypatch.setenv("EXCHANGEABLE_DATA", value)
    assert cache_folder().is_absolute()
    assert "exchangeable" in cache_folder().parts
    assert cache_folder().name == "datasets"


def test_a_missing_file_says_what_to_do(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (small / "test.gz").unlink()
    with pytest.raises(DatasetError) as caught:
        usps(small)
    message = str(caught.value)
    assert message.startswith(
        f"test.gz is missing in {small}: run `exchangeable fetch usps --to {small}`, or download "
    )
    assert f"https://example.org/test.gz with a browser on a machine with network and put it into {small}" in message
    assert "`exchangeable fetch usps --from DIR`" in message
    monkeypatch.setenv("EXCHANGEABLE_DATA", str(small))
    with pytest.raises(DatasetError, match=r"is missing in .*: run `exchangeable fetch usps`, or download "):
        usps()


def test_a_damaged_file_is_not_read(small: Path) -> None:
    path = small / "tst"
    good = path.read_bytes()
    for bad in (good[:-1], good + b"\n", b"", good[:-2] + b"7\n"):
        path.write_bytes(bad)
        with pytest.raises(
            DatasetError,
            match=r"tst is not the published file \(expected .*\): run `exchangeable fetch satellite --to ",
        ):
            satellite(small)
    path.write_bytes(good)
    assert len(satellite(small).y) == 3


def test_an_unreadable_file_is_one_sentence(small: Path) -> None:
    (small / "tst").unlink()
    (small / "tst").mkdir()
    with pytest.raises(DatasetError, match="tst cannot be read: "):
        satellite(small)


@pytest.mark.parametrize("line", [b"1 2 3\n", b"1 " * 37 + b"\n" + b"1 " * 37 + b"\n"])
def test_the_shape_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: bytes) -> None:
    monkeypatch.setattr(datasets, "PUBLISHED", {"satellite": (publish(tmp_path, "trn", line, 1),)})
    with pytest.raises(DatasetError, match=r"trn must hold \(1, 37\) numbers, got \("):
        satellite(tmp_path)


def test_an_unknown_flavour(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="flavour must be 'smoothed' or 'raw', got 'sweet'"):
        usps(tmp_path, flavour="sweet")


def blurred(image: Floats) -> Floats:
    """The two-dimensional convolution, pixel by pixel."""
    offsets = np.arange(-3, 4)
    kernel = np.exp(-(offsets[:, None] ** 2 + offsets[None, :] ** 2) / (2 * 0.75**2))
    kernel /= kernel.sum()
    padded = np.pad(image, 3, constant_values=-1.0)
    return np.array([[(padded[i : i + 7, j : j + 7] * kernel).sum() for j in range(16)] for i in range(16)])


def test_smoothing_is_the_two_dimensional_convolution() -> None:
    X = np.random.default_rng(5).uniform(-1, 1, size=(20, 256))
    X[0] = 1.0  # the strongest contrast to the outside
    before = X.copy()
    expected = np.array([blurred(row.reshape(16, 16)).ravel() for row in X])
    assert np.abs(smooth(X) - expected).max() < 0.5000001e-6
    assert (smooth(X) == np.round(smooth(X), 6)).all()
    assert np.array_equal(X, before)


def test_digits_come_in_their_order() -> None:
    X, y = digits()
    assert X.shape == (1797, 64)
    assert types(X, y) == ["float64", "int64"]
    assert (X.min(), X.max()) == (0.0, 16.0)
    assert y[:12].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]
    assert y[-5:].tolist() == [9, 0, 8, 9, 8]


def test_digits_without_scikit_learn_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ImportError, match=r"pip install 'exchangeable\[sklearn\]'"):
        digits()


def test_importing_is_light() -> None:
    code = "import exchangeable.research.datasets as d; print(d.__name__, *sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}; {code}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert loaded[0] == "exchangeable.research.datasets"
    assert "sklearn" not in loaded
    assert "scipy.ndimage" not in loaded


def test_decreasing_noise() -> None:
    X, y = decreasing_noise(4000, seed=3)
    assert X.shape == (4000, 10)
    assert types(X, y) == ["float64", "int64"]
    assert set(y.tolist()) == {0, 1}
    assert abs(y.mean() - 0.5) < 0.03
    noise = X - 2.0 * y[:, None]
    for t in (0, 1000, 2000, 3000, 3900):
        sigma = 1.0 - 0.7 * (t + 50) / 4000
        assert noise[t : t + 100].std() == pytest.approx(sigma, rel=0.1)
    assert abs(noise.mean()) < 0.02


def test_decreasing_noise_follows_its_seed() -> None:
    assert (decreasing_noise(50, seed=1).X == decreasing_noise(50, seed=1).X).all()
    assert (decreasing_noise(50, seed=1).X != decreasing_noise(50, seed=2).X).all()
    assert (decreasing_noise(50).X == decreasing_noise(50, seed=0).X).all()


def last_p(X: Floats, y: Floats) -> float:
    """The unsmoothed p-value of the last example under the paper's nearest-neighbour ratio, from all distances."""
    distances = np.linalg.norm(X[:, None] - X[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    same = y[:, None] == y[None]
    scores = np.where(same, distances, np.inf).min(1) / np.where(same, np.inf, distances).min(1)
    return float((scores >= scores[-1]).mean())


def test_decreasing_noise_gathers_p_near_one() -> None:
    p = []
    for seed in range(60):
        X, y = decreasing_noise(120, seed=seed)
        p.append(last_p(X, y.astype(np.float64)))
    assert np.mean(p) > 0.65  # uniform: 0.5 +- 0.04
    X, y = decreasing_noise(120)
    shuffled = np.random.default_rng(0)
    fair = [last_p(X[order], y[order].astype(np.float64)) for order in (shuffled.permutation(120) for _ in range(60))]
    assert abs(np.mean(fair) - 0.5) < 0.13


@pytest.mark.parametrize("n", [0, -1, 2.0, True, "5"])
def test_decreasing_noise_needs_a_count(n: int) -> None:
    with pytest.raises(ValueError, match="n must be a positive integer, got "):
        decreasing_noise(n)
    assert decreasing_noise(1).X.shape == (1, 10)


@published
def test_usps_as_published() -> None:
    X, y = usps(SHARED, flavour="raw")
    assert X.shape == (9298, 256)
    assert (X.min(), X.max()) == (-1.0, 1.0)
    assert np.bincount(y[:7291]).tolist() == [1194, 1005, 731, 658, 652, 556, 664, 645, 542, 644]
    assert np.bincount(y[7291:]).tolist() == [359, 264, 198, 166, 200, 160, 170, 147, 166, 177]
    assert np.array_equal(X, np.round(X, 3))
    assert len(np.unique(X, axis=0)) == len(X)
    assert y[:5].tolist() == [6, 5, 4, 7, 3]


@published
def test_usps_smoothed() -> None:
    raw, smoothed = usps(SHARED, flavour="raw"), usps(SHARED)
    assert (raw.y == smoothed.y).all()
    assert smoothed.X.shape == (9298, 256)
    assert smoothed.X.min() == -1.0
    assert smoothed.X.max() <= 1.0
    assert (raw.X != smoothed.X).any(axis=1).all()
    assert np.array_equal(smoothed.X, np.round(smoothed.X, 6))
    for k in (0, 7290, 9297):
        assert np.abs(blurred(raw.X[k].reshape(16, 16)).ravel() - smoothed.X[k]).max() < 0.5000001e-6


@published
def test_satellite_as_published() -> None:
    X, y = satellite(SHARED)
    assert X.shape == (6435, 36)
    assert (X.min(), X.max()) == (27.0, 157.0)
    assert np.array_equal(X, np.round(X))
    assert np.bincount(y[:4435]).tolist() == [0, 1072, 479, 961, 415, 470, 0, 1038]
    assert np.bincount(y[4435:]).tolist() == [0, 461, 224, 397, 211, 237, 0, 470]
    assert len(np.unique(X, axis=0)) == len(X)
    assert (y[1:] == y[:-1]).mean() == pytest.approx(0.85, abs=0.01)
