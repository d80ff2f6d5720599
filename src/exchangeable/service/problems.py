"""Refusals: a status, a code for programs, and one sentence for people."""

from __future__ import annotations

from typing import Any


class Problem(Exception):  # noqa: N818 - a refusal is no error of ours
    """What a request is answered with when it is refused.

    >>> Problem(409, "gap", "seq must be 5, got 9", expected_seq=5).body
    {'error': 'gap', 'message': 'seq must be 5, got 9', 'expected_seq': 5}
    """

    def __init__(self, status: int, code: str, message: str, **extra: Any) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.extra = extra

    @property
    def body(self) -> dict[str, Any]:
        """The reply, as JSON would hold it."""
        return {"error": self.code, "message": self.message, **self.extra}
