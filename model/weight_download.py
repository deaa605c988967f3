"""Quiet and quick about fetching weights: no retries for a minute, and no log lines, where there is no network."""

import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit
from urllib.request import getproxies


@contextmanager
def fetching(remote: bool) -> Iterator[None]:
    """Around a load: the libraries' own chatter is muted, and without a network the hub's cache is all there is."""
    root, hub = logging.getLogger(), logging.getLogger("huggingface_hub")
    mute = logging.NullHandler()  # without any handler the root logger would install one that prints
    level = hub.level
    root.addHandler(mute)
    hub.setLevel(logging.CRITICAL)
    try:
        with offline_hub() if remote and not network() else nothing():
            yield
    finally:
        root.removeHandler(mute)
        hub.setLevel(level)


@contextmanager
def nothing() -> Iterator[None]:
    yield


def network() -> bool:
    """Whether the hub's name resolves; behind a proxy that is the proxy's business."""
    from huggingface_hub import constants

    if getproxies() or constants.HF_HUB_OFFLINE:
        return True
    try:
        socket.getaddrinfo(urlsplit(constants.ENDPOINT).hostname, 443)
    except OSError:
        return False
    return True


@contextmanager
def offline_hub() -> Iterator[None]:
    """The hub library in its offline mode: cached files work, others fail at once instead of after a minute."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before
