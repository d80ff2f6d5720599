"""Run a command under the system call filter of a systemd unit: ``python restricted.py UNIT COMMAND...``.

systemd itself cannot start a service in a test. This builds the same seccomp filter: the groups of ``SystemCallFilter``
come from `systemd-analyze syscall-filter`, the numbers from the kernel's headers. With ``MemoryDenyWriteExecute``,
memory that can be written must not become executable. Forbidden calls fail with EPERM, as the unit says. Only x86-64.
"""

from __future__ import annotations

import ctypes
import os
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

HEADER = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
ARCHITECTURE = 0xC000003E  # AUDIT_ARCH_X86_64
LOAD, AND, EQUAL, RETURN = 0x20, 0x54, 0x15, 0x06  # instructions of classic BPF
ALLOW, EPERM, KILL = 0x7FFF0000, 0x00050001, 0x80000000
WRITE, EXECUTE = 2, 4  # protections of memory


def groups() -> dict[str, list[str]]:
    """Return the groups of system calls that systemd knows."""
    text = subprocess.run(["systemd-analyze", "syscall-filter"], capture_output=True, text=True, check=True).stdout
    parts = re.findall(r"^(@[\w-]+)\n((?: {4}.*\n)*)", re.sub("\x1b\\[[0-9;]*m", "", text), re.MULTILINE)
    return {name: [line.strip() for line in body.splitlines() if "#" not in line] for name, body in parts}


def expand(names: list[str], known: dict[str, list[str]]) -> Iterator[str]:
    """Yield the system calls of groups and single calls."""
    for name in names:
        yield from expand(known[name], known) if name.startswith("@") else [name]


def allowed(unit: str) -> set[str]:
    """Return the system calls that a unit allows; systemd always adds the group @default."""
    known = groups()
    calls = set(expand(["@default"], known))
    for line in re.findall(r"^SystemCallFilter=(.+)$", unit, re.MULTILINE):
        named = set(expand(line.removeprefix("~").split(), known))
        calls = calls - named if line.startswith("~") else calls | named
    return calls


def instructions(numbers: dict[str, int], calls: set[str], *, deny_write_execute: bool) -> bytes:
    """Return the program of the filter."""
    program = [(LOAD, 0, 0, 4), (EQUAL, 1, 0, ARCHITECTURE), (RETURN, 0, 0, KILL), (LOAD, 0, 0, 0)]
    if deny_write_execute:
        for call, forbidden in (("mmap", WRITE | EXECUTE), ("mprotect", EXECUTE), ("pkey_mprotect", EXECUTE)):
            program += [(EQUAL, 0, 5, numbers[call]), (LOAD, 0, 0, 32), (AND, 0, 0, forbidden)]
            program += [(EQUAL, 0, 1, forbidden), (RETURN, 0, 0, EPERM), (RETURN, 0, 0, ALLOW)]
    for call in sorted(calls & numbers.keys()):
        program += [(EQUAL, 0, 1, numbers[call]), (RETURN, 0, 0, ALLOW)]
    return b"".join(struct.pack("HBBI", *one) for one in [*program, (RETURN, 0, 0, EPERM)])


def restrict(program: bytes) -> None:
    """Install the filter in this process."""
    code = ctypes.create_string_buffer(program, len(program))
    filter_ = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in ((38, 1, 0, 0, 0), (22, 2, filter_, 0, 0)):  # PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP
        if libc.prctl(*arguments):
            raise OSError(ctypes.get_errno(), "prctl")


def main() -> None:
    """Install the filter of the unit and become the command."""
    unit = Path(sys.argv[1]).read_text("utf-8")
    numbers = {name: int(number) for name, number in re.findall(r"__NR_(\w+) (\d+)", HEADER.read_text("utf-8"))}
    program = instructions(numbers, allowed(unit), deny_write_execute="MemoryDenyWriteExecute=yes" in unit)
    restrict(program)
    os.execv(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
