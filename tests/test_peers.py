"""The harness that holds us and other libraries against their promises: its rules, and that it covers what we ship."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import peers
import validity
from entry_points import SCENARIOS, TEMPTING
from exchangeable import alarms, bets, catalogue, measures
from exchangeable.protocols import Bet, Floats
from exchangeable.research import certificate


def test_peers_have_names_of_their_own() -> None:
    for group in (peers.PATHS, peers.STREAMS):
        assert len({peer.name for peer in group}) == len(group)
    assert {peer.library for peer in validity.everyone()} == set(peers.LIBRARIES)


def test_a_missing_library_is_reported() -> None:
    assert peers.version("there is no such library") is None
    odd = peers.PATHS[0]._replace(library="there is no such library")
    assert peers.installed([odd]) == []


def test_an_alarm_is_the_librarys_own() -> None:
    peer = peers.PATHS[0]._replace(above=False, after=0)
    at = np.array([0.0, -math.log(0.05), math.nan])
    assert peers.sounds(peer, at, 0.05)
    assert not peers.sounds(peer._replace(above=True), at, 0.05)
    assert not peers.sounds(peer._replace(after=4), at, 0.05)  # judged only later
    assert not peers.sounds(peer, np.array([math.nan, -math.inf]), 0.05)
    assert peers.sounds(peer, np.array([math.inf]), 0.05)


@pytest.mark.parametrize("peer", peers.installed(peers.PATHS), ids=lambda peer: str(peer.name))
def test_a_peer_bets_on_every_p_value(peer: peers.OnPValues) -> None:
    path = peers.quietly(peer.path, np.random.default_rng(0).random(30))
    assert path.shape == (30,)
    assert np.isfinite(path).all()


@pytest.mark.parametrize("peer", peers.installed(peers.STREAMS), ids=lambda peer: str(peer.name))
def test_a_peer_takes_examples(peer: peers.OnExamples) -> None:
    path = validity.peer_path(peer, validity.kinds(peer)[0], 0, 0)
    assert 0 < len(path) <= validity.PEER_STEPS


def test_everything_that_we_ship_is_in_the_table() -> None:
    for made, names, module in (
        (validity.MEASURES, catalogue.MEASURES, measures),
        (validity.BETS, catalogue.BETS, bets),
    ):
        shipped = {getattr(module, name) for name in module.__all__}
        assert {type((names[one] if isinstance(one, str) else one)()) for one in made} == shipped
    assert {type(certificate.named_alarm(str(name), 0.05, 100)) for name in validity.ALARMS} == {
        alarms.Ville, alarms.Cusum, alarms.ShiryaevRoberts,
    }  # fmt: skip


def test_what_the_table_adds_is_found_by_other_processes() -> None:
    for made in (*validity.MEASURES, *validity.BETS):
        assert isinstance(made, str) or getattr(validity, certificate.display_name(made)) is made


class Generous(bets.SimpleJumper):
    """A bet with integral 1.1."""

    def extend(self, p: Any) -> Floats:
        return super().extend(p) + math.log(1.1)


@pytest.mark.parametrize("bet", ["simple-jumper", Generous])
def test_the_document(bet: str | type[Bet], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in (
        ("MEASURES", ["value", "nearest-neighbour"]),
        ("BETS", [bet]),
        ("ALARMS", ["ville", "cusum"]),
        ("STEPS", 40),
        ("LONG", 400),
        ("LONG_RUNS", 2000),
        ("PERIOD", 20.0),
        ("WORKERS", 1),
        ("OUR_ROWS", ()),
        ("SCENARIOS", [one for one in SCENARIOS if one.entry == "`fleet.e_bh(joined=)`"]),
        ("TEMPTING", TEMPTING[-1:]),
        ("LIVE", []),
        ("LIVE_TEMPTING", []),
    ):
        monkeypatch.setattr(validity, name, value)
    monkeypatch.setattr(peers, "version", lambda library: None)
    with pytest.raises(SystemExit) as ended:
        validity.main(["--runs", "30", "--out", str(tmp_path / "V.md")])
    text = (tmp_path / "V.md").read_text(encoding="utf-8")
    assert ended.value.code == (bet is Generous)
    assert ("Too few runs to certify anything." in text) == (bet == "simple-jumper")
    assert ("PROMISES WERE BROKEN" in text) == (bet is Generous)
    for part in ("## Entry points", "### Not promised", "## By kind of data", "### cusum", "## Mean time"):
        assert part in text
    for part in ("## Side by side", "crepes: not installed here."):
        assert part in text


def always(rng: np.random.Generator) -> float:
    return 0.01


@pytest.mark.parametrize("broken", [False, True])
def test_the_entry_points_alone(broken: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    chosen = next(one for one in SCENARIOS if one.entry == "`fleet.e_bh(joined=)`")
    monkeypatch.setattr(validity, "SCENARIOS", [chosen._replace(play=always) if broken else chosen])
    monkeypatch.setattr(validity, "TEMPTING", [])
    monkeypatch.setattr(validity, "WORKERS", 1)
    document = tmp_path / "V.md"
    document.write_text(
        "# All\n\n## Entry points\n\nstale\n\n### Not promised\n\nstale\n\n## By kind of data\n\nkept\n"
    )
    with pytest.raises(SystemExit) as ended:
        validity.main(["--only", "entry-points", "--runs", "30", "--out", str(document)])
    assert ended.value.code == broken
    text = document.read_text()
    assert text.startswith("# All\n\n## Entry points\n\nWhat users call")
    assert "stale" not in text
    assert text.endswith("\n\n## By kind of data\n\nkept\n")
    assert ("BROKEN" in text) == broken
