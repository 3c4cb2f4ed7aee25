"""Bytes of a growing JSON-lines file → records. Torn, damaged and giant lines are counted, never fatal."""

from typing import Generic, TypeVar

import msgspec

from engine.rundir.records import MAX_LINE, Event, LossLine, SampleLine

R = TypeVar("R", LossLine, SampleLine, Event)


class LineDecoder(Generic[R]):
    """Feed it the file's bytes in any pieces; it keeps an unfinished last line for the next piece."""

    def __init__(self, kind: type[R]) -> None:
        self.bad = 0  # lines that don't parse
        self._decoder: msgspec.json.Decoder[R] = msgspec.json.Decoder(kind)
        self._rest = b""
        self._in_giant = False  # within a line that is longer than MAX_LINE: drop up to its newline

    @property
    def unfinished(self) -> int | None:
        """Bytes of the last line so far; None within one that is too long to be kept."""
        return None if self._in_giant else len(self._rest)

    def feed(self, data: bytes) -> list[R]:
        # Only b"\n" ends a line: splitlines() would also split at U+2028 and friends.
        head, newline, rest = data.rpartition(b"\n")
        if not newline:
            self._keep(data)
            return []
        block = self._rest + head
        self._rest = b""
        if self._in_giant:
            self._in_giant = False
            block = block.partition(b"\n")[2]
        self._keep(rest)
        return self._decode(block)

    def _keep(self, rest: bytes) -> None:
        if self._in_giant:
            return
        self._rest += rest
        if len(self._rest) > MAX_LINE:
            self._rest, self._in_giant = b"", True
            self.bad += 1

    def _decode(self, block: bytes) -> list[R]:
        try:
            records: list[R] = self._decoder.decode_lines(block)
            return records
        except (msgspec.MsgspecError, ValueError, RecursionError):
            pass  # at least one bad line: find out which
        out = []
        for line in block.split(b"\n"):
            if not line.strip():
                continue
            try:
                if len(line) > MAX_LINE:
                    raise ValueError("giant line")
                out.append(self._decoder.decode(line))
            except (msgspec.MsgspecError, ValueError, RecursionError):
                self.bad += 1
        return out
