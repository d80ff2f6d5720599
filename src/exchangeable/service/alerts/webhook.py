"""The receivers of alerts, as the operator configures them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import httpcore2
import httpx2

from exchangeable.validation import check_interval

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
SECRET = re.compile(r"[!-~]{1,4096}")  # what a header can carry
SECRET_RULE = "printable ASCII without spaces, of at most 4096 characters"  # noqa: S105 (not a secret)
URL_RULE = (
    "url must be an http or https address without user, password and fragment, with a port from 1 to 65535 if any"
)


@dataclass(frozen=True)
class Webhook:
    """A receiver of alerts. Its URL and its token are secrets, so no message contains them.

    >>> Webhook("pager", "https://example.org/hook?key=1", token="secret")
    Webhook(name='pager', allow_private=False, timeout=10.0)
    """

    name: str
    url: str = field(repr=False)
    allow_private: bool = False  # whether the receiver may be on this machine or in a private network
    token: str | None = field(default=None, repr=False)  # for `Authorization: Bearer`
    timeout: float = 10.0  # seconds for the complete request

    def __post_init__(self) -> None:
        check_receiver(self.name, self.allow_private, self.timeout)
        if self.token is not None and not (isinstance(self.token, str) and SECRET.fullmatch(self.token)):
            raise ValueError(f"token must be {SECRET_RULE}")
        if not isinstance(self.url, str) or set(self.url) & set("#\\ ") or not _is_valid_url(self.url):
            raise ValueError(URL_RULE)

    @property
    def target(self) -> httpcore2.URL:
        """The URL in the form that httpcore sends."""
        url = httpx2.URL(self.url)
        return httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)


def check_receiver(name: object, allow_private: object, timeout: float) -> None:
    """Check what all kinds of receivers have in common."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ValueError(f"name must match ^{NAME.pattern}$, got {name!r}")
    if not isinstance(allow_private, bool):
        raise ValueError(f"allow_private must be true or false, got {allow_private!r}")
    check_interval("timeout", timeout, 0.0, 300.0, "(0, 300] seconds")


def _is_valid_url(text: str) -> bool:
    try:
        url = httpx2.URL(text)
    except httpx2.InvalidURL:
        return False
    has_user = "@" in re.split("[/?]", text.partition("://")[2])[0]  # even an empty one
    valid_port = url.port is None or 0 < url.port < 65_536
    return url.scheme in ("http", "https") and bool(url.host) and valid_port and not has_user
