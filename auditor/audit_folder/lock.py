"""Lock a folder (an audit, a run, an export) for one writer; a second writer is refused while the first is alive.

On disk, the kernel holds the lock and releases it when the process ends for any reason. An object store has no locks:
the owner creates a small file, which the store allows only once, and renews it. Another run takes over a lock that is
not renewed. Clocks of machines differ, so it first watches the lock for a while.
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

from auditor.audit_folder.folder import Folder, StorageError, describe_os_error
from auditor.audit_folder.hub import HUB
from auditor.errors import AuditorError
from auditor.regular_files import open_regular, parse_json

LOCK = ".lock"  # on disk
REMOTE_LOCK = "lock.json"
RENEW = 10.0
STALE = 60.0
LONG_DEAD = 1800.0  # seconds; stores refuse machines whose clock is off by that much
WATCHED = 3  # missed renewals after which an owner counts as dead
SETTLE = 0.5  # seconds after which two writers of the same lock see which one won
ATOMIC = {"s3", "gs", "memory"}  # stores that refuse to create a file twice


class LockedError(AuditorError):
    """Another run holds the lock of this folder."""


def hold_folder_lock(folder: Folder) -> contextlib.AbstractContextManager[None]:
    """Hold the lock of a folder. Raises LockedError if another process holds it."""
    if folder.url.startswith(HUB):
        raise StorageError(f"{folder.url}: each write would be a commit on the hub; write to a folder and upload it")
    return _lock_local_folder(folder) if folder.local else _lock_remote_folder(folder)


@contextlib.contextmanager
def _lock_local_folder(folder: Folder) -> Iterator[None]:
    descriptor = _acquire_file_lock(folder)
    try:
        with contextlib.suppress(OSError):  # a full disk: the owner's name is optional
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"pid {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(folder.path(LOCK))  # while the lock is held: see _acquire_file_lock
        os.close(descriptor)


def _acquire_file_lock(folder: Folder) -> int:
    """Return a descriptor that locks the present lock file; the last owner may have just removed an older one."""
    while True:
        try:
            os.makedirs(folder.root, exist_ok=True)
            descriptor = open_regular(folder.path(LOCK), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            raise StorageError(f"cannot write {folder.url}: {describe_os_error(error)}") from None
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
def _lock_remote_folder(folder: Folder) -> Iterator[None]:
    owner = {"host": socket.gethostname(), "pid": os.getpid(), "token": uuid.uuid4().hex, "time": time.time()}
    _claim_remote_lock(folder, owner)
    renewer = _LockRenewer(folder, owner)
    renewer.start()
    try:
        yield
    except KeyboardInterrupt:
        if not renewer.lost:
            raise
    finally:
        renewer.end()
    if renewer.lost:
        raise LockedError(
            f"another run has taken over {folder.url} because this one did not renew its lock; that run continues"
        )


def _claim_remote_lock(folder: Folder, owner: dict[str, Any]) -> None:
    if _create_remote_lock(folder, owner):
        protocols = folder.fs.protocol
        if ATOMIC.intersection([protocols] if isinstance(protocols, str) else protocols):
            return
    else:
        held = _read_owner(folder)
        if held is not None and not _is_owner_dead(folder, held):
            raise _build_refusal(folder, held)
        folder.remove(REMOTE_LOCK)
        if not _create_remote_lock(folder, owner):
            raise _build_refusal(folder, _read_owner(folder))
    time.sleep(SETTLE)
    current = _read_owner(folder)
    if not current or current.get("token") != owner["token"]:
        raise _build_refusal(folder, current)


def _create_remote_lock(folder: Folder, owner: dict[str, Any]) -> bool:
    """Return False if the lock exists already."""
    path = folder.path(REMOTE_LOCK)
    try:
        folder.fs.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
        folder.fs.pipe_file(path, json.dumps(owner).encode(), mode="create")
    except FileExistsError:
        return False
    except OSError as error:
        if folder.exists(REMOTE_LOCK):  # S3 reports only a failed precondition
            return False
        raise StorageError(f"cannot write {folder.url}: {describe_os_error(error)}") from None
    return True


def _read_owner(folder: Folder) -> dict[str, Any] | None:
    """Return the owner of the lock, empty if it is unreadable, or None if there is no lock."""
    try:
        owner = parse_json(folder.read_bytes(REMOTE_LOCK))
    except FileNotFoundError:
        return None
    except ValueError:
        return {}
    return owner if isinstance(owner, dict) else {}


def _is_owner_dead(folder: Folder, owner: dict[str, Any]) -> bool:
    """Return whether the owner is dead: not if the lock is fresh, yes if it is very old, else after watching it."""
    written = owner.get("time")
    age = time.time() - written if isinstance(written, int | float) else STALE
    if 0 <= age < STALE:
        return False
    if age > LONG_DEAD:
        return True
    time.sleep(WATCHED * RENEW)
    return _read_owner(folder) in (owner, None)


def _build_refusal(folder: Folder, owner: dict[str, Any] | None) -> LockedError:
    name = f"pid {owner.get('pid')} on {owner.get('host')}" if owner else "owner unknown"
    return LockedError(f"another run is writing {folder.url} ({name}); wait until it ends, or one minute after it died")


class _LockRenewer:
    """Renews the lock in a thread, and interrupts the main thread if another run has taken over the lock."""

    def __init__(self, folder: Folder, owner: dict[str, Any]) -> None:
        self.folder, self.owner = folder, owner
        self.lost = self.ignored = False
        self.ended = threading.Event()
        self.interrupts = threading.current_thread() is threading.main_thread()
        self.thread = threading.Thread(target=self.renew, daemon=True, name="audit-lock")

    def start(self) -> None:
        """If SIGINT is ignored, as in the background of a script, handle it so that a lost lock stops the run."""
        self.ignored = self.interrupts and signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        if self.ignored:
            signal.signal(signal.SIGINT, self.stop_if_lost)
        self.thread.start()

    def stop_if_lost(self, *_: object) -> None:
        if self.lost:
            raise KeyboardInterrupt

    def renew(self) -> None:
        while not self.ended.wait(RENEW):
            with contextlib.suppress(Exception):  # a failed request: the next renewal may succeed
                if self.is_owned():
                    self.folder.write_json(REMOTE_LOCK, {**self.owner, "time": time.time()})
                    continue
                self.lost = True
                if self.interrupts and not self.ended.is_set():
                    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
                return

    def is_owned(self) -> bool:
        return bool((_read_owner(self.folder) or {}).get("token") == self.owner["token"])

    def end(self) -> None:
        self.ended.set()
        self.thread.join()
        if self.ignored:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        with contextlib.suppress(Exception):
            if not self.lost and self.is_owned():
                self.folder.remove(REMOTE_LOCK)
