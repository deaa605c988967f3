"""One writer per audit: a second run on the same folder is refused while the first is alive.

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
from auditor.store.folder import Folder

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
    os.makedirs(folder.root, exist_ok=True)
    descriptor = os.open(folder.path(".lock"), os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            held = os.pread(descriptor, 4096, 0).decode(errors="replace").strip()
            raise LockedError(f"another run is writing {folder.url} ({held or 'owner unknown'}); wait for it") from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"pid {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _remote(folder: Folder) -> Iterator[None]:
    mine = _owner()
    if folder.exists("lock.json"):
        held = folder.read_json("lock.json")
        if time.time() - float(held["time"]) < STALE:
            raise LockedError(
                f"another run is writing {folder.url} (pid {held['pid']} on {held['host']}); wait for it, or a minute "
                "after it died"
            )
    folder.write_json("lock.json", mine)
    stop = threading.Event()

    def renew() -> None:
        while not stop.wait(RENEW):
            folder.write_json("lock.json", {**mine, "time": time.time()})

    keeper = threading.Thread(target=renew, daemon=True, name="audit-lock")
    keeper.start()
    try:
        yield
    finally:
        stop.set()
        keeper.join()
        folder.remove("lock.json")
