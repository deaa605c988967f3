"""One writer per folder (an audit, a run, an export): a second one is refused while the first is alive.

On disk the kernel holds the lock (flock) and drops it with the process, however it dies. An object store has no locks:
there the owner creates a small file, which the store lets one only do, and renews it every few seconds; one that is
not renewed is taken over. Clocks of machines differ, so its age proves nothing: it is watched for a while first.
"""

import contextlib
import fcntl
import json
import os
import signal
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

from auditor.audit_folder.folder import Folder, StorageError, reason
from auditor.errors import AuditorError

LOCK = ".lock"  # on disk
REMOTE_LOCK = "lock.json"
RENEW = 10.0
STALE = 60.0
LONG_DEAD = 1800.0  # seconds; no store serves a machine whose clock is that far off
WATCHED = 3  # renewals that a dead owner has missed before our eyes
SETTLE = 0.5  # seconds in which two that wrote the same lock would meet
ATOMIC = {"s3", "gs", "memory"}  # stores that refuse a second creator by themselves


class LockedError(AuditorError):
    """Another run is writing this audit."""


@contextlib.contextmanager
def exclusive(folder: Folder) -> Iterator[None]:
    """Hold the audit folder; raise LockedError if another process does."""
    with _local(folder) if folder.local else _remote(folder):
        yield


@contextlib.contextmanager
def _local(folder: Folder) -> Iterator[None]:
    descriptor = _acquire(folder)
    try:
        with contextlib.suppress(OSError):  # a full disk: who holds it is good to know, and no more
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"pid {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(folder.path(LOCK))  # while it is held: see _acquire
        os.close(descriptor)


def _acquire(folder: Folder) -> int:
    """A descriptor that holds the lock of the file that has the name now: its last owner may just have removed it."""
    while True:
        try:
            os.makedirs(folder.root, exist_ok=True)
            descriptor = os.open(folder.path(LOCK), os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise StorageError(f"cannot write {folder.url}: {reason(error)}") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.stat(folder.path(LOCK)), os.fstat(descriptor)):
                    return descriptor
        except BlockingIOError:
            held = os.pread(descriptor, 4096, 0).decode(errors="replace").strip()
            os.close(descriptor)
            raise LockedError(f"another run is writing {folder.url} ({held or 'owner unknown'}); wait for it") from None
        os.close(descriptor)


@contextlib.contextmanager
def _remote(folder: Folder) -> Iterator[None]:
    mine = {"host": socket.gethostname(), "pid": os.getpid(), "token": uuid.uuid4().hex, "time": time.time()}
    _claim(folder, mine)
    keeper = _Keeper(folder, mine)
    keeper.start()
    try:
        yield
    except KeyboardInterrupt:
        if not keeper.lost:
            raise
    finally:
        keeper.end()
    if keeper.lost:
        raise LockedError(f"another run has taken over {folder.url} while this one was not heard: that one goes on")


def _claim(folder: Folder, mine: dict[str, Any]) -> None:
    """Create the file, or take over that of an owner who is dead."""
    if _create(folder, mine):
        if ATOMIC.intersection(_protocols(folder)):
            return
    else:
        held = _held(folder)
        if held and not _is_dead(folder, held):
            raise _refusal(folder, held)
        folder.remove(REMOTE_LOCK)
        if not _create(folder, mine):
            raise _refusal(folder, _held(folder))
    time.sleep(SETTLE)
    now = _held(folder)
    if _parsed(now).get("token") != mine["token"]:
        raise _refusal(folder, now)


def _protocols(folder: Folder) -> list[str]:
    known = folder.fs.protocol
    return [known] if isinstance(known, str) else list(known)


def _create(folder: Folder, mine: dict[str, Any]) -> bool:
    """False where there is one already."""
    path = folder.path(REMOTE_LOCK)
    try:
        folder.fs.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
        folder.fs.pipe_file(path, json.dumps(mine).encode(), mode="create")
    except FileExistsError:
        return False
    except OSError as error:
        if folder.exists(REMOTE_LOCK):  # S3 says only that a precondition failed
            return False
        raise StorageError(f"cannot write {folder.url}: {reason(error)}") from None
    return True


def _held(folder: Folder) -> bytes:
    try:
        return folder.read_bytes(REMOTE_LOCK)
    except FileNotFoundError:
        return b""


def _parsed(held: bytes) -> dict[str, Any]:
    try:
        found = json.loads(held)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _is_dead(folder: Folder, held: bytes) -> bool:
    """Whether nobody renews it: surely if it is very old, else after it was watched; a fresh one is not."""
    written = _parsed(held).get("time")
    age = time.time() - written if isinstance(written, int | float) else STALE
    if 0 <= age < STALE:
        return False
    if age > LONG_DEAD:
        return True
    time.sleep(WATCHED * RENEW)
    return _held(folder) in (held, b"")


def _refusal(folder: Folder, held: bytes) -> LockedError:
    owner = _parsed(held)
    who = f"pid {owner.get('pid')} on {owner.get('host')}" if owner else "owner unknown"
    return LockedError(f"another run is writing {folder.url} ({who}); wait for it, or a minute after it died")


class _Keeper:
    """Renews the lock in a thread; where another run has taken it over, stops the one that held it."""

    def __init__(self, folder: Folder, mine: dict[str, Any]) -> None:
        self.folder, self.mine = folder, mine
        self.lost = self.ignored = False
        self.ended = threading.Event()
        self.interrupts = threading.current_thread() is threading.main_thread()
        self.thread = threading.Thread(target=self.renew, daemon=True, name="audit-lock")

    def start(self) -> None:
        """Where SIGINT is ignored, as in the background of a script, it is heard once the lock is lost."""
        self.ignored = self.interrupts and signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        if self.ignored:
            signal.signal(signal.SIGINT, self._stop)
        self.thread.start()

    def _stop(self, *_: object) -> None:
        if self.lost:
            raise KeyboardInterrupt

    def renew(self) -> None:
        while not self.ended.wait(RENEW):
            with contextlib.suppress(Exception):  # a store's hiccup: the next renewal counts
                if self.is_mine():
                    self.folder.write_json(REMOTE_LOCK, {**self.mine, "time": time.time()})
                    continue
                self.lost = True
                if self.interrupts and not self.ended.is_set():
                    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
                return

    def is_mine(self) -> bool:
        return bool(_parsed(_held(self.folder)).get("token") == self.mine["token"])

    def end(self) -> None:
        self.ended.set()
        self.thread.join()
        if self.ignored:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        with contextlib.suppress(Exception):
            if not self.lost and self.is_mine():
                self.folder.remove(REMOTE_LOCK)
