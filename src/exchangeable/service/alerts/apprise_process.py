"""The process that delivers one alert through apprise: JSON on stdin, its result as JSON on stdout.

An audit hook, which cannot be removed, sees every connection of this process just before it is made, and refuses
addresses that are not public. The address is the resolved one, so the spelling of a name and DNS rebinding have no
effect. Redirects are not followed, and no other program is started.
"""

from __future__ import annotations

import json
import sys
from typing import Any

FORBIDDEN = ("socket.sendto", "socket.sendmsg", "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn")


class Guard:
    """The audit hook. After one refusal it refuses everything, like the check of a webhook's addresses."""

    def __init__(self, *, allow_private: bool) -> None:
        from exchangeable.service.addresses import is_public

        self.refused: str | None = None
        self._allow_private = allow_private
        self._is_public = is_public

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Raise if an event of the interpreter is not allowed."""
        if event in FORBIDDEN:
            raise PermissionError(f"{event} is not allowed")
        if event == "socket.connect":
            self._check(arguments[1])

    def _check(self, address: object) -> None:
        host = str(address[0]) if isinstance(address, tuple) else "a socket of this machine"
        try:
            allowed = self.refused is None and (self._is_public(host) or self._allow_private)
        except ValueError:  # not an address
            allowed = False
        if not allowed:
            self.refused = self.refused or host
            raise PermissionError("this address is not allowed")


def main() -> None:
    """Deliver the alert on stdin."""
    message = json.load(sys.stdin)
    import apprise
    import requests

    requests.Session.get_redirect_target = lambda self, response: None
    target = apprise.Apprise.instantiate(message["url"], suppress_exceptions=True)
    guard = Guard(allow_private=message["allow_private"])
    sys.addaudithook(guard)
    delivered = bool(target) and target.notify(
        title=message["title"], body=message["body"], notify_type=apprise.NotifyType(message["kind"])
    )
    json.dump({"delivered": bool(delivered), "refused": guard.refused}, sys.stdout)


if __name__ == "__main__":
    main()
