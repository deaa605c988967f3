"""One writer per folder (an audit, a run, an export): a second one is refused while the first is alive.

On disk the kernel holds the lock (flock) and drops it with the process, however it dies. An object store has no locks:
there the owner renews a small file every few seconds, and a file not renewed for a minute is taken over.
"""

import contextlib
import fcntl
import os
import socket
import threading
import time
from collections.abc import Iterator

from auditor.errors import AuditorError
from auditor.store.folder import Folder, StorageError, reason

LOCK = ".lock"  # on disk
REMOTE_LOCK = "lock.json"
RENEW = 10.0
STALE = 60.0


class LockedError(AuditorError):
    """Another run is writing this audit."""


@contextlib.contextmanager
def exclusive(folder: Folder) -> Iterator[None]:
    """Hold the audit folder; raise LockedError if another process does."""
    with _local(folder) if folder.local else _remote(folder):
        yield


def _owner() -> dict[str, object]:
    return {"host": socket.gethostname(), "pid": os.getpid(), "time": time.time()}


@contextlib.contextmanager
def _local(folder: Folder) -> Iterator[None]:
    descriptor = _acquire(folder)
    try:
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
    mine = _owner()
    if folder.exists(REMOTE_LOCK):
        held = folder.read_json(REMOTE_LOCK)
        if time.time() - float(held["time"]) < STALE:
            raise LockedError(
                f"another run is writing {folder.url} (pid {held['pid']} on {held['host']}); wait for it, or a minute "
                "after it died"
            )
    folder.write_json(REMOTE_LOCK, mine)
    stop = threading.Event()

    def renew() -> None:
        while not stop.wait(RENEW):
            folder.write_json(REMOTE_LOCK, {**mine, "time": time.time()})

    keeper = threading.Thread(target=renew, daemon=True, name="audit-lock")
    keeper.start()
    try:
        yield
    finally:
        stop.set()
        keeper.join()
        folder.remove(REMOTE_LOCK)
