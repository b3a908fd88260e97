"""The operation log: every operation that changed something, in order, appended and never changed.

One JSON object a line. An operation first writes its intent (what it is about to do, with the ids it has planned),
then acts, then writes what came of it under the same number. An intent without an outcome was cut off; going on with it
writes its intent anew, under the same number and with one more pass, and that line is the one that counts.

A log that has grown is cut: the file as it was stays beside it until the next time, and a mark says in the new one what
the operations that it no longer holds had come to.
"""

import contextlib
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal

import msgspec

from ckpt_protocol.structs import WirePath
from ckptd.errors import DomainError, from_os_error
from ckptd.shadow.objects.durable import TEMP_PREFIX
from ckptd.shadow.objects.failpoint import reach
from ckptd.shadow.objects.syncing import Unsynced, fsync_dir, sync_together

__all__ = ["NO_MARK", "Dropped", "Intent", "Mark", "OperationLog", "Outcome", "Part", "Pass", "Verb"]

_logger = logging.getLogger(__name__)

Verb = Literal["open", "save", "reset", "rollback", "undo", "redo", "drop", "thin", "tag", "untag"]


# A daemon may know hundreds of thousands of these. They refer to nothing that could refer to them, so that the garbage
# collector need not look at them, nor at their tuples, as it would at lists.
class Pass(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A restore that was cut off and gone on with: what stood there by then, and which paths were still to change."""

    safety: str
    paths: tuple[WirePath, ...]


class Part(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Paths of a restore that come from another checkpoint than its target."""

    checkpoint: str
    paths: tuple[WirePath, ...]


class Dropped(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A checkpoint that is dropped."""

    seq: int
    id: str


class Intent(msgspec.Struct, frozen=True, kw_only=True, tag="intent", omit_defaults=True, gc=False):
    """What an operation is about to do. ``before`` and ``after`` are heads; ``paths`` those that a restore changes.

    ``target`` is the checkpoint whose content a restore writes, ``safety`` the one that holds what it overwrites,
    ``undoes`` the number of the operation that an undo or redo reverses. Of a save: ``tag`` is to point to it, and
    ``files`` counts what is in it. ``resumed``: how a restore went on after it had been cut off, oldest first;
    ``paths`` and ``safety`` stay those of its first pass; ``parts`` are those of the paths that do not come from
    ``target``. Of a drop: the checkpoints that go, the tags and the notes of
    copies that go with them, the operations that nobody can go on with afterwards, and the ``answer`` to give.
    """

    n: int
    verb: Verb
    time: str
    token: str
    client: str
    session: str | None = None
    next_seq: int
    before: str | None = None
    after: str | None = None
    id: str | None = None
    target: str | None = None
    safety: str | None = None
    undoes: int | None = None
    paths: tuple[WirePath, ...] = ()
    tag: str | None = None
    files: int = 0
    resumed: tuple[Pass, ...] = ()
    parts: tuple[Part, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    untagged: tuple[str, ...] = ()
    uncopied: tuple[str, ...] = ()
    given_up: tuple[int, ...] = ()
    answer: msgspec.Raw = msgspec.Raw(b"null")


class Outcome(msgspec.Struct, frozen=True, kw_only=True, tag="outcome", omit_defaults=True, gc=False):
    """What came of intent ``n``: the answer as it was given, so that a retried request gets it again.

    ``done`` false: the operation was given up, and nothing of it holds. ``paths`` are those that a restore really
    changed. ``head_stays``: head is still what it was before, for the restore was stopped before its end.
    ``incomplete``: some paths could not be changed, and are as they were; another try may do it.
    """

    n: int
    done: bool = True
    result: msgspec.Raw = msgspec.Raw(b"null")
    paths: tuple[WirePath, ...] | None = None
    head_stays: bool = False
    incomplete: bool = False


class Mark(msgspec.Struct, frozen=True, kw_only=True, tag="mark", omit_defaults=True, gc=False):
    """Where a log was cut: ``n`` the last number, ``next_seq`` and ``head`` as they were then.

    ``older`` are operations that were kept from before; what they did to head is in ``head`` already.
    """

    n: int = 0
    next_seq: int = 1
    head: str | None = None
    older: frozenset[int] = frozenset()


NO_MARK: Final = Mark()


class OperationLog:
    """The log of one store; used by its writer alone.

    Opening reads the whole file. Its last line may be cut by a crash: it is dropped, for nobody was answered.
    """

    def __init__(self, path: bytes) -> None:
        self._path: Final = path
        self._decoder = msgspec.json.Decoder(Intent | Outcome | Mark)
        self._encoder = msgspec.json.Encoder()
        self.intents: Final[dict[int, Intent]] = {}
        self.outcomes: Final[dict[int, Outcome]] = {}
        self._by_token: dict[str, int] = {}
        self._last_number = 0
        self._next_seq = 1
        self.mark = NO_MARK
        self.damaged_lines = 0
        self._owed: Final[list[Intent | Outcome]] = []
        self._fd = self._open()
        self._read()

    @property
    def next_number(self) -> int:
        """The number of the next operation."""
        return self._last_number + 1

    @property
    def next_seq(self) -> int:
        """A sequence number above every one that an intent has ever planned."""
        return self._next_seq

    def answered(self, token: str, *verbs: Verb) -> Outcome | None:
        """Give the outcome that was recorded for a request's token.

        Raises DomainError ``bad_option`` where it was the token of another kind of operation than ``verbs`` (none
        given: any).
        """
        number = self._by_token.get(token)
        if number is not None and verbs and self.intents[number].verb not in verbs:
            raise DomainError("bad_option", "this request's token was used for another operation")
        outcome = self.outcomes.get(number) if number is not None else None
        return outcome if outcome is not None and outcome.done else None

    def unanswered(self, token: str) -> Intent | None:
        """Give the intent of a request that was cut off before it could be answered."""
        number = self._by_token.get(token)
        return self.intents[number] if number is not None and number not in self.outcomes else None

    def write(self, line: Intent | Outcome, *, durable: bool = True) -> None:
        """Append a line; raises DomainError where the disk refuses.

        ``durable`` false is for an outcome that opening the store can find out again.
        """
        with self.writing(line) as unsynced:
            if durable:
                sync_together([unsynced])

    @contextlib.contextmanager
    def writing(self, line: Intent | Outcome) -> Iterator[Unsynced]:
        """Append a line that counts from the end of the block on; give what is to be synced in it, where it has to be.

        A DomainError of the block takes the line back, and goes through. Raises DomainError where the disk refuses.
        """
        with self._appending(line) as unsynced:
            yield unsynced
        self._note(line)

    @contextlib.contextmanager
    def _appending(self, *lines: Intent | Outcome) -> Iterator[Unsynced]:
        """Append lines behind those that the disk has refused before."""
        owed = [*self._owed]
        try:
            start = os.lseek(self._fd, 0, os.SEEK_END)
            try:
                try:
                    self._put([*owed, *lines])
                except OSError as error:
                    can_wait = bool(owed and lines) and all(isinstance(line, Outcome) for line in owed)
                    if not can_wait or from_os_error(error, "write the operation log", self._path).kind != "no_space":
                        raise
                    # An outcome may be long: what comes now is not to be refused for it.
                    os.ftruncate(self._fd, start)
                    os.lseek(self._fd, start, os.SEEK_SET)
                    owed.clear()
                    self._put(lines)
                reach("log-written")
                yield Unsynced(self._fd, "write the operation log", self._path)
            except (OSError, DomainError):
                # A half line would swallow the next one.
                os.ftruncate(self._fd, start)
                raise
        except OSError as error:
            raise from_os_error(error, "write the operation log", self._path) from error
        reach("log-durable")
        del self._owed[: len(owed)]

    def _put(self, lines: Sequence[Intent | Outcome]) -> None:
        view = memoryview(self._encoded(lines))
        while view:
            view = view[os.write(self._fd, view) :]

    def conclude(self, outcome: Intent | Outcome, *, durable: bool = True) -> bool:
        """Write an outcome of what is done already: where the disk refuses it, it still holds for this process.

        It comes with the next line that the disk takes; until then opening the store finds it out again, as after a
        crash. False tells that it is not on disk.
        """
        try:
            self.write(outcome, durable=durable)
        except DomainError as error:
            _logger.warning("%s", error)
            self._owed.append(outcome)
            self._note(outcome)
            return False
        return True

    def catch_up(self) -> None:
        """Write what the disk has refused before, if it takes it by now."""
        if self._owed:
            with contextlib.suppress(DomainError), self._appending() as unsynced:
                sync_together([unsynced])

    def _encoded(self, lines: Iterable[Intent | Outcome | Mark]) -> bytes:
        return b"".join(self._encoder.encode(line) + b"\n" for line in lines)

    @property
    def size_bytes(self) -> int:
        """The length of the file."""
        return os.fstat(self._fd).st_size

    def sizes(self) -> dict[int, int]:
        """Give the bytes that the lines of each operation take, in order."""
        encode = self._encoder.encode
        return {number: sum([len(encode(line)) + 1 for line in self._lines(number)]) for number in self.intents}

    def cut(self, old: Sequence[int], newest: Sequence[int], head: str | None) -> None:
        """Go on with these operations alone; ``head`` is what it was before the first of the ``newest``.

        Raises DomainError where the disk refuses: then all is as it was, or the new file's name may not be durable. The
        file as it was is kept as ``log.old``.
        """
        older = frozenset(number for number in old if number in self.outcomes)
        mark = Mark(n=self._last_number, next_seq=self._next_seq, head=head, older=older)
        lines: list[Intent | Outcome | Mark] = [mark]
        for number in (*old, *newest):
            lines += self._lines(number)
        _keep_beside(self._path)
        reach("log-kept")
        try:
            self._replace(self._encoded(lines))
            self._owed.clear()
            self._forget()
            for line in lines:
                self._note(line)
            reach("file-named", self._path)
            fsync_dir(os.path.dirname(self._path))
        except OSError as error:
            raise from_os_error(error, "cut the operation log", self._path) from error
        reach("log-cut")

    def _replace(self, data: bytes) -> None:
        """Put another file in the place of the log, and go on in that one.

        It is open before it gets the name: from then on the old file is another one, and a line that went there would
        be lost.
        """
        temp = os.path.join(os.path.dirname(self._path), TEMP_PREFIX + os.urandom(8).hex().encode())
        fd = os.open(temp, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            os.fsync(fd)
            reach("file-written", self._path)
            os.rename(temp, self._path)
        except OSError:
            os.close(fd)
            with contextlib.suppress(OSError):
                os.unlink(temp)
            raise
        before, self._fd = self._fd, fd
        os.close(before)

    def _lines(self, number: int) -> list[Intent | Outcome]:
        lines: list[Intent | Outcome] = [self.intents[number]]
        if number in self.outcomes:
            lines.append(self.outcomes[number])
        return lines

    def _forget(self) -> None:
        self.intents.clear()
        self.outcomes.clear()
        self._by_token.clear()

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def _open(self) -> int:
        try:
            fresh = not os.path.exists(self._path)
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            if fresh:
                fsync_dir(os.path.dirname(self._path))
        except OSError as error:
            raise from_os_error(error, "open the operation log", self._path) from error
        return fd

    def _read(self) -> None:
        """Line by line: a log may have megabytes, and a call that goes through all of them holds everybody up."""
        whole = 0
        try:
            with open(self._fd, "rb", closefd=False) as file:
                for text in file:
                    if not text.endswith(b"\n"):
                        os.ftruncate(self._fd, whole)
                        break
                    whole += len(text)
                    self._take(text)
        except OSError as error:
            raise from_os_error(error, "read the operation log", self._path) from error

    def _take(self, text: bytes) -> None:
        try:
            self._note(self._decoder.decode(text))
        except msgspec.MsgspecError:
            self.damaged_lines += 1

    def _note(self, line: Intent | Outcome | Mark) -> None:
        # Outcomes count too: of a damaged line's operation the outcome may be all that is left.
        self._last_number = max(self._last_number, line.n)
        if isinstance(line, Mark):
            self.mark = line
            self._next_seq = max(self._next_seq, line.next_seq)
        elif isinstance(line, Intent):
            # One that is gone on with comes after whatever was done in between.
            again = self.intents.pop(line.n, None) is not None
            self.outcomes.pop(line.n, None)
            self.intents[line.n] = line
            if again and line.n in self.mark.older:
                self.mark = msgspec.structs.replace(self.mark, older=self.mark.older - {line.n})
            self._by_token[line.token] = line.n
            self._next_seq = max(self._next_seq, line.next_seq)
        else:
            self.outcomes[line.n] = line


def _keep_beside(path: bytes) -> None:
    """Keep the file that is about to be replaced under another name; it is for people, so it may fail."""
    temp = os.path.join(os.path.dirname(path), TEMP_PREFIX + b"log.old")
    with contextlib.suppress(OSError):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temp)
        os.link(path, temp)
        os.rename(temp, path + b".old")
        # A rename of one of two names of a file to the other does nothing: so it is after a cut that was cut off.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temp)
