"""Alerts through apprise, to real receivers on 127.0.0.1: SMTP, Mattermost over HTTP, Teams over TLS."""

from __future__ import annotations

import asyncio
import email
import email.policy
import json
import logging
import shutil
import sqlite3
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, closing, suppress
from email.message import EmailMessage
from pathlib import Path
from typing import Any, TypeVar

import pytest

pytest.importorskip("apprise")

from exchangeable.service import alerts
from exchangeable.service.alerts import AppriseTarget, Details, Sender, enqueue, list_alerts
from exchangeable.service.alerts.apprise_process import Guard
from exchangeable.service.alerts.trial import transact_on
from exchangeable.service.server_config import Settings
from exchangeable.service.store import open_database

T = TypeVar("T")
DETAILS = Details("ville", "The promise.", alarm_at=120, changepoint=95, log10_martingale=2.3125)
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


def play(scene: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(scene, 60.0))


@pytest.fixture
def box() -> Iterator[sqlite3.Connection]:
    with closing(open_database(":memory:")) as connection:
        yield connection


@asynccontextmanager
async def listening(handler: Handler, context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Serve on 127.0.0.1; the value is the port."""

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await handler(reader, writer)
        writer.close()

    server = await asyncio.start_server(meet, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


class MailServer:
    """As much of SMTP as a client needs. It rejects the first ``refusals`` messages with a passing error."""

    def __init__(self, refusals: int = 0) -> None:
        self.mails: list[EmailMessage] = []
        self.refusals = refusals

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 test ESMTP\r\n")
        while line := await reader.readline():
            verb = line.split()[0].upper()
            if verb == b"DATA":
                writer.write(b"354 go on\r\n")
                data = await reader.readuntil(b"\r\n.\r\n")
                if self.refusals:
                    self.refusals -= 1
                    writer.write(b"451 later\r\n")
                    continue
                mail = email.message_from_bytes(data[:-3], policy=email.policy.default)
                assert isinstance(mail, EmailMessage)
                self.mails.append(mail)
            writer.write(b"221 bye\r\n" if verb == b"QUIT" else b"250 ok\r\n")
            await writer.drain()
            if verb == b"QUIT":
                return


class Web:
    """An HTTP server that sends these replies in order, and then 200."""

    def __init__(self, *replies: bytes) -> None:
        self.replies = list(replies)
        self.heard: list[tuple[str, Any]] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line, *fields = (await reader.readuntil(b"\r\n\r\n")).decode().rstrip().split("\r\n")
        headers = {key.lower(): value for key, value in (field.split(": ", 1) for field in fields)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self.heard.append((line, json.loads(body or b"null")))
        reply = self.replies.pop(0) if self.replies else b"200 OK"
        writer.write(b"HTTP/1.1 " + reply + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()


def mail_url(port: int) -> str:
    return f"mailto://127.0.0.1:{port}/?mode=insecure&from=monitor@example.org&to=team@example.org"


def target(url: str, **rest: Any) -> AppriseTarget:
    return AppriseTarget("team", url, **{"allow_private": True, **rest})


async def deliver(box: sqlite3.Connection, receiver: AppriseTarget, **rest: Any) -> None:
    for status in ("firing", "resolved"):
        enqueue(box, [receiver], "payments", status, DETAILS, 1_700_000_000.0)
    options = {"first": 0.01, "longest": 0.04, "external_url": "https://monitor.example.org", **rest}
    await Sender([receiver], transact_on(box), **options).drain()


def test_mail(box: sqlite3.Connection) -> None:
    """Rejected once, so sent again; "resolved" after its "firing"."""
    server = MailServer(refusals=1)

    async def scene() -> None:
        async with listening(server) as port:
            await deliver(box, target(mail_url(port)))

    play(scene())
    firing, resolved = server.mails
    assert firing["subject"] == "[FIRING] Stream payments is no longer exchangeable."
    assert firing["to"] == "team@example.org"
    text = firing.get_body(("plain", "html"))
    assert text is not None
    for part in ("at example 120", "The promise.", "https://monitor.example.org/streams/payments"):
        assert part in text.get_content()
    assert resolved["subject"] == "[RESOLVED] Stream payments: the alarm is over."
    assert [(row["state"], row["attempts"]) for row in list_alerts(box)["alerts"]] == [("sent", 1), ("sent", 2)]


def test_chat(box: sqlite3.Connection, caplog: pytest.LogCaptureFixture) -> None:
    """Mattermost's webhooks are those of Slack. No message has a part of the URL."""
    server = Web(b"500 No", b"200 OK", b"404 Gone", b"404 Gone")

    async def scene() -> None:
        async with listening(server) as port:
            await deliver(box, target(f"mmost://127.0.0.1:{port}/s3cr3ts3cr3ts3cr3t"), attempts=2)

    with caplog.at_level(logging.DEBUG):
        play(scene())
    assert [line for line, _ in server.heard] == ["POST /hooks/s3cr3ts3cr3ts3cr3t HTTP/1.1"] * 4
    assert "Stream payments is no longer exchangeable." in json.dumps(server.heard[0][1])
    dead, sent = list_alerts(box)["alerts"]
    assert (dead["state"], dead["error"]) == ("dead", "apprise could not deliver it by mmost")
    assert (sent["state"], sent["attempts"]) == ("sent", 2)
    assert "could not deliver" in caplog.text
    assert "s3cr3t" not in caplog.text


def test_teams_over_tls(box: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The certificate is checked: at first it is unknown."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl makes the certificate for this test, and is not installed")
    words = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
    words += " -keyout key.pem -out cert.pem"
    subprocess.run([openssl, *words.split()], cwd=tmp_path, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    server = Web()

    async def scene() -> None:
        async with listening(server, context) as port:
            url = f"workflows://127.0.0.1:{port}/workflow/signature"
            before = await alerts.test_alert([target(url)])
            assert (before[0].delivered, server.heard) == (False, [])
            monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "cert.pem"))
            assert (await alerts.test_alert([target(url)]))[0].delivered

    play(scene())
    assert len(server.heard) == 2
    assert "This is a test" in json.dumps(server.heard[0][1])


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize(
    "url", ["mmost://{host}:{port}/s3cr3ts3cr3ts3cr3t", "mailto://{host}:{port}/?mode=insecure&from=a@b.co&to=a@b.co"]
)
def test_private_addresses_are_refused(url: str, host: str) -> None:
    reached = []

    async def touch(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.append(1)

    async def scene() -> None:
        async with listening(touch) as port:
            (outcome,) = await alerts.test_alert([target(url.format(host=host, port=port), allow_private=False)])
        rule = "the request failed: the host must have public addresses only unless allow_private is set, got "
        assert outcome.error in (f"{rule}127.0.0.1", f"{rule}::1")

    play(scene())
    assert reached == []


def test_redirects_and_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither is followed."""
    proxy, inner = Web(), Web()

    async def scene() -> None:
        async with listening(proxy) as proxy_port, listening(inner) as inner_port:
            outer = Web(*[b"302 On\r\nLocation: http://127.0.0.1:%d/" % inner_port] * 2)
            for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
                monkeypatch.setenv(name, f"http://127.0.0.1:{proxy_port}")
            async with listening(outer) as port:
                (outcome,) = await alerts.test_alert([target(f"mmost://127.0.0.1:{port}/s3cr3ts3cr3ts3cr3t")])
            assert not outcome.delivered
            assert len(outer.heard) == 2

    play(scene())
    assert proxy.heard == inner.heard == []


def test_silence_ends_with_the_timeout_and_its_process() -> None:
    async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.read() != b""  # until the other side is gone

    async def scene() -> None:
        async with listening(silence) as port:
            (outcome,) = await alerts.test_alert([target(f"mmost://127.0.0.1:{port}/s3cr3ts3cr3ts3cr3t", timeout=1.5)])
        assert outcome.error == "there was no answer within 1.5 s"

    play(scene())


def test_guard_refuses_all_but_connections_to_addresses() -> None:
    guard = Guard(allow_private=True)
    guard("socket.connect", (None, ("10.0.0.1", 25)))
    for event, arguments in [
        ("socket.connect", (None, "/run/docker.sock")),
        ("socket.connect", (None, ("10.0.0.1", 25))),  # after a refusal
        ("socket.sendto", (None, ("1.1.1.1", 53))),
        ("subprocess.Popen", ("ls",)),
    ]:
        with pytest.raises(PermissionError):
            guard(event, arguments)
    with pytest.raises(PermissionError):
        Guard(allow_private=True)("socket.connect", (None, ("example.org", 25)))  # not resolved


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(
    "url",
    ["", "https://example.org/", "json://example.org", "file:///etc/passwd", "syslog://", "slack://s3cr3t", "mailto://",
     "mailto://s3cr3t\nx@example.org", 7],
)  # fmt: skip
def test_invalid_url(url: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), pytest.raises(ValueError, match=r"^url must be an address that apprise") as e:
        target(url)
    assert "s3cr3t" not in str(e.value) + caplog.text


SLACK = "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#alerts"


def test_settings(tmp_path: Path) -> None:
    (tmp_path / "url").write_text(f"{SLACK}\n")
    file = tmp_path / "c.toml"
    file.write_text(
        '[[webhooks]]\nname = "pager"\nurl = "https://a.b"\n[[apprise]]\nname = "mail"\nurl_env = "MAIL"\n'
        f'allow_private = true\n[[apprise]]\nname = "slack"\nurl_file = "{tmp_path / "url"}"\ntimeout = 5'
    )
    settings = Settings.read(file, environment={"MAIL": mail_url(25)})
    mail, slack = AppriseTarget("mail", mail_url(25), allow_private=True), AppriseTarget("slack", SLACK, timeout=5)
    assert settings.apprise == (mail, slack)
    assert [receiver.name for receiver in settings.receivers] == ["pager", "mail", "slack"]
    assert "T1JJ" not in repr(settings)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('url_env = "X"', "apprise[1].name must be given"),
        ('name = "a"', "apprise[1].url_file or url_env must be given"),
        (f'name = "a"\nurl = "{SLACK}"', "apprise[1] must have keys among name, url_file, url_env"),
        ('name = "a"\nurl_env = "NONE"', "apprise[1].url_env must name an environment variable that is set"),
        ('name = "a"\nurl_env = "X"', "apprise[1].url must be an address that apprise understands"),
        ('name = "a"\nurl_env = "S"\n[[apprise]]\nname = "a"\nurl_env = "S"', "must have different names, got 'a'"),
        ('name = "A"\nurl_env = "S"', "apprise[1].name must match"),
        ('name = "a"\nurl_env = "S"\ntimeout = 0', "apprise[1].timeout must lie in"),
    ],
)
def test_invalid_settings(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "c.toml"
    file.write_text(f"[[apprise]]\n{text}")
    with pytest.raises(ValueError, match=r"c\.toml: ") as error:
        Settings.read(file, environment={"X": "s3cr3t://T1JJ", "S": SLACK})
    assert message in str(error.value)
    assert "T1JJ" not in str(error.value)


def test_the_command(tmp_path: Path) -> None:
    server = MailServer()

    async def scene() -> None:
        async with listening(server) as port:
            (tmp_path / "url").write_text(mail_url(port))
            (tmp_path / "c.toml").write_text('[[apprise]]\nname = "mail"\nurl_file = "url"\nallow_private = true')
            program = (sys.executable, "-m", "exchangeable", "alert", "test", "--config", "c.toml")
            process = await asyncio.create_subprocess_exec(*program, cwd=tmp_path, stdout=subprocess.PIPE)
            assert (await process.communicate())[0] == b"mail: delivered\n"
            assert process.returncode == 0

    play(scene())
    assert len(server.mails) == 2
