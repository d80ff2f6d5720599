"""Labelled streams for models that learn: generators of river with known changes, and the data that river ships.

``STREAMS[name].draw(seed)`` returns the examples of a stream as a list; the data that river ships are the same for
every seed. ``changes`` are the places of the changes; a gradual change begins there, with one example in eight of the
new concept. ``changes`` is empty if nothing changes, and None if the stream changes all the time or if nobody knows.
"""

# mypy: disable-error-code="import-not-found"
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

Example = tuple[dict[Any, Any], Any]
Generate = Callable[[int, int], Any]  # which concept, and the seed

LENGTH, CONCEPTS, WIDTH = 10_000, 4, 1_000


@dataclass(frozen=True)
class Stream:
    """Examples for each seed, and the places where they change."""

    definition: str
    draw: Callable[[int], list[Example]]
    changes: tuple[int, ...] | None = None
    width: int = 0


def join(parts: Sequence[Any], step: int, width: int, seed: int) -> Any:
    """Play ``step`` examples of each part, with river's gradual change between them if there is a width."""
    if not width:
        return chain.from_iterable(islice(iter(part), step) for part in parts)
    from river.datasets import synth

    joined = parts[-1]
    for part in reversed(parts[:-1]):
        joined = synth.ConceptDriftStream(part, joined, position=step, width=width, seed=seed)
    return joined


def concepts(definition: str, generate: Generate, width: int = 0, length: int = LENGTH) -> Stream:
    """Four concepts with three changes, abrupt or gradual."""
    step = length // CONCEPTS

    def draw(seed: int) -> list[Example]:
        parts = [generate(k, 1000 * seed + k) for k in range(CONCEPTS)]
        return list(islice(iter(join(parts, step, width, seed)), length))

    return Stream(definition, draw, tuple(k * step - width // 2 for k in range(1, CONCEPTS)), width)


def steady(definition: str, generate: Callable[[int], Any], changes: tuple[int, ...] | None = None) -> Stream:
    """One generator from beginning to end."""
    return Stream(definition, lambda seed: list(islice(iter(generate(seed)), LENGTH)), changes)


def agrawal(k: int, seed: int) -> Any:
    from river.datasets import synth

    return synth.Agrawal(classification_function=(0, 3, 6, 8)[k], perturbation=0.05, seed=seed)


def sea(k: int, seed: int) -> Any:
    from river.datasets import synth

    return synth.SEA(variant=(0, 3, 1, 2)[k], noise=0.1, seed=seed)


def stagger(k: int, seed: int) -> Any:
    from river.datasets import synth

    return synth.STAGGER(classification_function=(0, 1, 2, 0)[k], seed=seed)


def sine(k: int, seed: int) -> Any:
    from river.datasets import synth

    return synth.Sine(classification_function=k, seed=seed)


def mixed(k: int, seed: int) -> Any:
    from river.datasets import synth

    return synth.Mixed(classification_function=k % 2, seed=seed)


def led(k: int, seed: int) -> Any:
    from river.datasets import synth

    return synth.LEDDrift(noise_percentage=0.1, irrelevant_features=True, n_drift_features=(0, 3, 5, 7)[k], seed=seed)


def rbf(speed: float) -> Callable[[int], Any]:
    def generate(seed: int) -> Any:
        from river.datasets import synth

        return synth.RandomRBFDrift(
            seed_model=seed, seed_sample=seed + 1, n_classes=4, n_features=10, n_centroids=20,
            change_speed=speed, n_drift_centroids=20,
        )  # fmt: skip

    return generate


def hyperplane(magnitude: float) -> Callable[[int], Any]:
    def generate(seed: int) -> Any:
        from river.datasets import synth

        return synth.Hyperplane(n_features=10, n_drift_features=10, mag_change=magnitude, seed=seed)

    return generate


def shipped(name: str, definition: str, most: int = LENGTH) -> Stream:
    def draw(seed: int) -> list[Example]:
        from river import datasets

        return list(islice(iter(getattr(datasets, name)()), most))

    return Stream(definition, draw)


STREAMS: Mapping[str, Stream] = {
    "Agrawal": concepts("functions 0, 3, 6, 8, perturbation 5 %", agrawal),
    "Agrawal, gradual": concepts("the same", agrawal, WIDTH),
    "SEA": concepts("variants 0, 3, 1, 2, noise 10 %", sea),
    "SEA, gradual": concepts("the same", sea, WIDTH),
    "STAGGER": concepts("functions 0, 1, 2, 0", stagger),
    "STAGGER, gradual": concepts("the same", stagger, WIDTH),
    "Sine": concepts("functions 0, 1, 2, 3", sine),
    "Sine, gradual": concepts("the same", sine, WIDTH),
    "Mixed": concepts("functions 0, 1, 0, 1", mixed),
    "Mixed, gradual": concepts("the same", mixed, WIDTH),
    "LED": concepts("noise 10 %, 0, 3, 5, 7 features swapped with irrelevant ones, 5,000 examples", led, length=5_000),
    "RBF": steady("20 centroids, all moving with speed 0.001", rbf(0.001)),
    "RBF, slow": steady("the same with speed 0.0001", rbf(0.0001)),
    "Hyperplane": steady("10 features, all moving by 0.01", hyperplane(0.01)),
    "Hyperplane, slow": steady("the same by 0.001", hyperplane(0.001)),
    "Agrawal, no change": steady("function 0", lambda seed: agrawal(0, seed), ()),
    "SEA, no change": steady("variant 0, noise 10 %", lambda seed: sea(0, seed), ()),
    "RBF, no change": steady("20 centroids at rest", rbf(0.0), ()),
    "Phishing": shipped("Phishing", "1,250 websites"),
    "Bananas": shipped("Bananas", "5,300 points in two classes"),
    "ImageSegments": shipped("ImageSegments", "2,310 segments of images in 7 classes"),
    "Shuttle": shipped("Shuttle", "the first 10,000 readings of sensors, rare classes against the most frequent"),
}
