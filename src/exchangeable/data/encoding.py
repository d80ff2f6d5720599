"""Decode the text of a file, in any encoding, into blocks of UTF-8 with \\n line endings."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import IO

from exchangeable.data.errors import ColumnError, DataError
from exchangeable.validation import format_value

BLOCK = 1 << 24  # bytes that are read at a time
_MARKS = {  # byte order marks, the longer ones first
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
    codecs.BOM_UTF8: "utf-8",
}
_CONTROLS = re.compile(rb"[\x00-\x08\x0e-\x1f\x7f\x81\x8d\x8f\x90\x9d]")  # not in text encoded as cp1252


def find_encoding(content: IO[bytes], encoding: str | None = None) -> str:
    """Return the given encoding, or detect it: by a byte order mark, else UTF-8 if all bytes are valid, else cp1252.

    cp1252 is common in older Western spreadsheets. It is assumed only if all bytes are valid and hardly any of them are
    UTF-8. Otherwise the error names the first byte that is not UTF-8. O(size), in blocks.
    """
    if encoding is not None:
        try:
            "a".encode(encoding)
        except (LookupError, ValueError, TypeError):
            known = "one that Python knows, such as utf-8, latin-1 or utf-16"
            raise ColumnError(f"encoding must be {known}, got {format_value(encoding)}") from None
        return encoding
    content.seek(0)
    start = content.read(4)
    for mark, marked in _MARKS.items():
        if start.startswith(mark):
            return marked
    try:
        for _ in _decode(content, "utf-8"):
            pass
    except DataError:
        if not _is_cp1252(content):
            raise
        return "cp1252"
    return "utf-8"


def text_blocks(content: IO[bytes], encoding: str) -> Iterator[bytes]:
    r"""Yield the text as UTF-8, in blocks of complete characters, with \n as the only line ending.

    A \r on its own ends a line only if there is no \n in the first block.
    """
    held, old = b"", None  # held: a \r, after which a \n may follow; old: whether lines end with \r
    for block in _decode(content, encoding):
        if old is None:
            block = block.removeprefix(codecs.BOM_UTF8)
            old = b"\r" in block and b"\n" not in block
        block = held + block
        held = b"\r" if block.endswith(b"\r") and not old else b""
        block = block[: len(block) - len(held)]
        yield block.replace(b"\r", b"\n") if old else block.replace(b"\r\n", b"\n") if b"\r" in block else block
    yield held


def _decode(content: IO[bytes], encoding: str) -> Iterator[bytes]:
    """Yield the text in UTF-8; raise DataError, with the position, if it cannot be decoded."""
    content.seek(0)
    decoder = codecs.getincrementaldecoder(encoding)()
    plain, lines = codecs.lookup(encoding).name == "utf-8", 1
    while True:
        block = content.read(BLOCK)
        try:
            if plain and block.isascii() and not decoder.getstate()[0]:
                text = block
            else:
                text = decoder.decode(block, final=not block).encode()
        except UnicodeError as error:
            raise DataError(_describe(error, encoding, content.tell(), lines)) from None
        if b"\0" in text:
            line = lines + text[: text.index(b"\0")].count(b"\n")
            rule = "if this is a text file, give its encoding, such as utf-16-le"
            raise DataError(f"line {line:,}: the text contains a NUL character; {rule}")
        lines += text.count(b"\n")
        yield text
        if not block:
            return


def _describe(error: UnicodeError, encoding: str, position: int, lines: int) -> str:
    """Describe where the text cannot be decoded. The input of the decoder ends at ``position``."""
    rule = "if this is a text file, give its encoding, such as latin-1"
    if "BOM" in str(error):
        return f"the text has no byte order mark; give the encoding, such as {encoding}-le"
    if not isinstance(error, UnicodeDecodeError):
        return f"the text is not valid {encoding}; {rule}"
    offset = max(0, position - len(error.object) + error.start)
    line = lines + error.object[: error.start].count(b"\n")
    place = f"byte 0x{error.object[error.start]:02x} at offset {offset:,}, line {line:,}"
    return f"the text is not valid {encoding} ({place}); {rule}"


def _is_cp1252(content: IO[bytes]) -> bool:
    """Return whether the bytes are text in cp1252, and not a mixture with UTF-8."""
    content.seek(0)
    decoder = codecs.getincrementaldecoder("utf-8")("ignore")
    size, kept, multibyte = 0, 0, 0
    while block := content.read(BLOCK):
        if _CONTROLS.search(block):
            return False
        valid = decoder.decode(block).encode()
        size, kept = size + len(block), kept + len(valid)
        multibyte += len(valid) - len(valid.decode())
    return 20 * multibyte <= size - kept
