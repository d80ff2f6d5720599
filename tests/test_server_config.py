"""The operator's settings: read or refused in one sentence, and nothing secret shown."""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path

import pytest

from exchangeable.service.alerts import Webhook
from exchangeable.service.server_config import Limits, Retention, Settings

SECRET = "s3cr3t-of-the-pager"
FULL = """
snapshot_every = 100
live_streams = 7
hosts = ["Monitor.Example.org", "10.0.0.7", "[2001:DB8::0001]"]
external_url = "https://monitor.example.org:8443/watch/"

[limits]
body_bytes = 65536
batch = 12

[retention]
observations = 5

[[webhooks]]
name = "pager"
url = "https://example.org/hook/T000/B000"
token_env = "PAGER"
timeout = 2

[[webhooks]]
name = "local"
url = "http://127.0.0.1:9093/x"
allow_private = true
"""

HOOK = '[[webhooks]]\nname = "a"\nurl = "https://a.b"\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "operator.toml"


def refusal(file: Path, text: str, **environment: str) -> str:
    file.write_text(text)
    with pytest.raises(ValueError, match=re.escape(str(file))) as raised:
        Settings.read(file, environment=environment)
    sentence = str(raised.value)
    assert "\n" not in sentence
    assert sentence.startswith(f"{file}: ")
    assert raised.value.__suppress_context__
    return sentence.removeprefix(f"{file}: ")


def test_the_defaults_are_those_of_the_documentation() -> None:
    assert dataclasses.asdict(Settings()) == {
        "limits": {
            "body_bytes": 16 * 2**20,
            "configuration_bytes": 8 * 2**20,
            "body_seconds": 20,
            "batch": 10_000,
            "width": 4_096,
            "string": 256,
            "json_depth": 8,
            "streams": 100_000,
            "waiting": 100_000,
            "reference": 100_000,
            "reference_cells": 5_000_000,
            "nearest": 50_000,
            "queue_rows": 200_000,
            "queue_requests": 1_000,
            "events_readers": 500,
            "database_bytes": 0,
            "reserve_bytes": 16 * 2**20,
            "connections": 1_000,
            "head_seconds": 10,
            "bodies_bytes": 128 * 2**20,
            "client_bodies_bytes": 64 * 2**20,
            "wrong_tokens": 30,
            "requests_per_second": 0,
            "observations_per_second": 0,
        },
        "retention": {"observations": 1_000_000, "rollups": 100_000_000},
        "snapshot_every": 8_192,
        "live_streams": 100_000,
        "live_bytes": 1 << 30,
        "metrics_streams": 2_000,
        "fleet_size": None,
        "hosts": (),
        "metrics_hosts": (),
        "access_log": False,
        "external_url": None,
        "webhooks": (),
        "apprise": (),
    }


def test_an_empty_file_is_the_defaults(file: Path) -> None:
    file.write_text("")
    assert Settings.read(file) == Settings()


def test_all_of_a_file_is_read(file: Path) -> None:
    file.write_text(FULL)
    settings = Settings.read(file, environment={"PAGER": SECRET})
    assert settings.snapshot_every == 100
    assert settings.live_streams == 7
    assert settings.hosts == ("monitor.example.org", "10.0.0.7", "2001:db8::1")
    assert settings.trusted == {"monitor.example.org", "10.0.0.7", "2001:db8::1"}
    assert settings.limits == Limits(body_bytes=65_536, batch=12)
    assert settings.retention == Retention(observations=5)
    assert settings.webhooks == (
        Webhook("pager", "https://example.org/hook/T000/B000", token=SECRET, timeout=2),
        Webhook("local", "http://127.0.0.1:9093/x", allow_private=True),
    )


def test_the_name_in_the_external_url_is_trusted() -> None:
    assert Settings(external_url="https://Watch.example.org/").trusted == {"watch.example.org"}
    assert Settings(external_url="http://[2001:DB8:0::1]:80/").trusted == {"2001:db8::1"}


def test_a_token_may_lie_in_a_file(file: Path, tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text(SECRET + "\n")
    file.write_text(f'[[webhooks]]\nname="a"\nurl="https://example.org"\ntoken_file={str(secret)!r}')
    assert Settings.read(file).webhooks[0].token == SECRET


def test_the_environment_is_that_of_the_process(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGER", SECRET)
    file.write_text(FULL)
    assert Settings.read(file).webhooks[0].token == SECRET


def test_settings_cannot_be_changed() -> None:
    settings = Settings()
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.snapshot_every = 3  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.limits.batch = 3  # type: ignore[misc]


def test_no_secret_is_shown(file: Path) -> None:
    file.write_text(FULL)
    settings = Settings.read(file, environment={"PAGER": SECRET})
    for shown in (repr(settings), str(settings), repr(settings.webhooks), f"{settings.webhooks[0]}"):
        assert SECRET not in shown
        assert "T000" not in shown  # the addresses of webhooks are secrets too


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("limit = 1", "the file must have keys among limits, retention, snapshot_every, live_streams, live_bytes"),
        ("[limits]\nbodybytes = 1", "limits must have keys among body_bytes, configuration_bytes"),
        ("[retention]\ndays = 1", "retention must have keys among observations, rollups, got 'days'"),
        ("limits = 3", "limits must be a table, got an integer"),
        ("retention = 2020-01-01", "retention must be a table, got a date or time"),
        ("[limits]\nbatch = 0", "limits.batch must be an integer from 1 to 1000000, got 0"),
        ("[limits]\nbatch = true", "limits.batch must be an integer from 1 to 1000000, got True"),
        ("[limits]\nbatch = 10.0", "limits.batch must be an integer from 1 to 1000000, got 10.0"),
        ("[limits]\nbatch = 1e400", "limits.batch must be an integer from 1 to 1000000, got inf"),
        ("[limits]\nbatch = nan", "limits.batch must be an integer from 1 to 1000000, got nan"),
        ('[limits]\nbatch = "9"', "limits.batch must be an integer from 1 to 1000000, got '9'"),
        ("[limits]\nbody_bytes = -1", "limits.body_bytes must be an integer from 1024 to 1073741824, got -1"),
        ("[retention]\nobservations = -1", "retention.observations must be an integer from 0 to"),
        ("snapshot_every = 0", "snapshot_every must be an integer from 1 to 10000000, got 0"),
        ("live_streams = false", "live_streams must be an integer from 1 to 1000000, got False"),
        ('hosts = "localhost"', "hosts must be a list of names, got a string"),
        ("webhooks = {}", "webhooks must be a list of tables: [[webhooks]], got a table"),
        ("webhooks = [1]", "webhooks[1] must be a table, got an integer"),
        ('[[webhooks]]\nurl = "https://a.b"', "webhooks[1].name must be given"),
        ('[[webhooks]]\nname = "a"', "webhooks[1].url must be given"),
        ("batch = ", "it must be TOML: invalid value (at end of document)"),
        ("a = 1\na = 2", "it must be TOML: cannot overwrite a value (at "),
        ("a = " + "[" * 100_000, "it is nested too deeply"),
    ],
)
def test_a_refusal_names_the_file_the_key_and_the_law(file: Path, text: str, sentence: str) -> None:
    assert refusal(file, text).startswith(sentence)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("secret = 1", " must have keys among name, url, allow_private, token_file, token_env, timeout, got 'secret'"),
        ("timeout = 0", ".timeout must lie in (0, 300] seconds, got 0"),
        ("timeout = inf", ".timeout must lie in (0, 300] seconds, got inf"),
        ("allow_private = 1", ".allow_private must be true or false, got 1"),
        ('token_env = "X"', ".token_env must name an environment variable that is set, got 'X'"),
        ('token_env = ""', ".token_env must be a non-empty string, got a string"),
        ("token_file = 7", ".token_file must be a non-empty string, got an integer"),
        ('token_file = "/no"', ".token_file must be readable, got /no: it must be readable, but no such file"),
        ('token_file = "a"\ntoken_env = "b"', ".token_file and token_env must not both be given"),
    ],
)
def test_a_refusal_names_the_webhook(file: Path, text: str, sentence: str) -> None:
    other = HOOK.replace('"a"', '"b"')
    assert refusal(file, HOOK + other + text).startswith("webhooks[2]" + sentence)


@pytest.mark.parametrize("name", ['"A b"', '"../a"', '""', "7"])
def test_the_name_of_a_webhook_is_plain(file: Path, name: str) -> None:
    assert refusal(file, HOOK.replace('"a"', name)).startswith("webhooks[1].name must match ^")


@pytest.mark.parametrize("url", ['"ftp://a.b"', '"https://u:p@a.b"', "3", '"file:///etc/passwd"', '"a.b"'])
def test_the_url_of_a_webhook_is_one(file: Path, url: str) -> None:
    assert refusal(file, HOOK.replace('"https://a.b"', url)).startswith("webhooks[1].url must be")


@pytest.mark.parametrize(
    "host",
    [
        "*",
        "*.example.org",
        "a b",
        "http://a.b",
        "a.b:80",
        "a.b/",
        "",
        "a..b",
        ".a",
        "-a",
        "a.b.",
        "é.org",
        7,
        "::1%lo",
        "a" * 254,
    ],
)
def test_hosts_are_names(file: Path, host: object) -> None:
    text = f"hosts = [{host!r}]" if isinstance(host, int) else f'hosts = ["{host}"]'
    assert refusal(file, text).startswith("hosts must hold names or addresses without scheme, port or path, got")


@pytest.mark.parametrize(
    "url",
    [
        "monitor.example.org",
        "ftp://a.b/",
        "https://",
        "https://user:pass@a.b/",
        "https://a.b:0/",
        "https://a.b:99999/",
        "https://a.b/?x=1",
        "https://a.b/#x",
        "https://a b/",
        "https://a.b\\\\c/",
        "https://[::1/",
        "javascript:alert(1)",
        "https://é.org/",
    ],
)
def test_the_external_url_is_one(file: Path, url: str) -> None:
    sentence = refusal(file, f'external_url = "{url}"')
    assert sentence == "external_url must be an http or https address without user, password, query and fragment"


def test_two_webhooks_of_one_name_are_refused(file: Path) -> None:
    assert refusal(file, HOOK + HOOK) == "webhooks must have different names, got 'a' twice"


@pytest.mark.parametrize("bad", [f"{SECRET} {SECRET}", f"{SECRET}\n{SECRET}", "", SECRET * 300, f"{SECRET}é"])
def test_a_bad_secret_is_refused_and_not_shown(file: Path, tmp_path: Path, bad: str) -> None:
    (tmp_path / "token").write_text(bad)
    for where in ('token_env = "PAGER"', f'token_file = "{tmp_path}/token"'):
        sentence = refusal(file, HOOK + where, PAGER=bad)
        assert "must contain one line of printable ASCII" in sentence
        assert SECRET not in sentence


def test_a_secret_in_place_of_a_path_is_the_only_thing_shown_of_a_file(file: Path) -> None:
    assert SECRET not in refusal(file, HOOK + f'token = "{SECRET}"')
    assert SECRET not in refusal(file, HOOK.replace("a.b", f"user:{SECRET}@a.b"))


def test_a_file_that_is_not_there_or_not_text_is_one_sentence(file: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"nowhere.toml: it must be readable, but no such file or directory$"):
        Settings.read(tmp_path / "nowhere.toml")
    with pytest.raises(ValueError, match=r"it must be readable, but is a directory$"):
        Settings.read(tmp_path)
    file.write_bytes("hosts = []".encode("utf-16"))
    with pytest.raises(ValueError, match=r"operator.toml: it must be UTF-8 text$"):
        Settings.read(file)
    file.write_bytes(b"#" * (2**20 + 1))
    with pytest.raises(ValueError, match=r"operator.toml: it must hold at most 1048576 bytes$"):
        Settings.read(file)


@pytest.mark.skipif(os.name != "posix", reason="names with control characters")
def test_control_characters_of_a_path_are_not_printed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^[ -~]+$"):
        Settings.read(tmp_path / "a\x1b[2J\nb.toml")


def test_values_given_in_python_obey_the_same_laws() -> None:
    with pytest.raises(ValueError, match=r"^batch must be an integer from 1 to 1000000, got True$"):
        Limits(batch=True)
    with pytest.raises(ValueError, match=r"^observations must be an integer"):
        Retention(observations=-1)
    with pytest.raises(ValueError, match=r"^hosts must hold names"):
        Settings(hosts=("a b",))
