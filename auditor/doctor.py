"""Checks of an installation: packages, decoders that really decode, GPU, disk, memory, and the way to hub weights.

Each check is a function that returns `Finding`s and never raises. `ok` and `note` are fine (a note says what cannot be
done here, and how to change that); `broken` is for what has to be repaired.
"""

import contextlib
import importlib.metadata
import io
import os
import platform
import shutil
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

NEEDED = ("charset-normalizer", "click", "duckdb", "fsspec", "jinja2", "numpy", "pillow", "pyarrow", "rich", "scipy")
EXTRAS = {
    "model": (
        "av",
        "decord",
        "faiss-cpu",
        "open_clip_torch",
        "py3langid",
        "safetensors",
        "simplejpeg",
        "torch",
        "webdataset",
    ),
    "ray": ("ray",),
    "dashboard": ("altair", "pandas", "plotly", "safetensors", "streamlit"),
    "s3": ("s3fs",),
}
IMAGE_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
LOW_DISK = 5 << 30
NO_DISK = 200 << 20


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    status: Literal["ok", "note", "broken"]
    detail: str


def examine() -> Iterator[Finding]:
    """Every check, one after the other; a check that fails in an unforeseen way is itself a finding."""
    checks: list[Callable[[], Iterator[Finding]]] = [
        python,
        packages,
        image_decoders,
        video_decoders,
        gpu,
        ray_token,
        memory,
        disk,
        network,
    ]
    for check in checks:
        try:
            yield from check()
        except Exception as error:  # a broken installation breaks in any way it likes
            yield Finding(check.__name__.replace("_", " "), "broken", f"{type(error).__name__}: {error}")


def python() -> Iterator[Finding]:
    fine = sys.version_info >= (3, 11)
    yield Finding(
        "python", "ok" if fine else "broken", f"{platform.python_version()} on {platform.platform(terse=True)}"
    )


def packages() -> Iterator[Finding]:
    for name in NEEDED:
        version = version_of(name)
        yield Finding(name, "ok" if version else "broken", version or "not installed; pip install pau-auditor")
    seen: set[str] = set()
    for extra, names in EXTRAS.items():
        for name in names:
            if name in seen:  # wanted by two extras
                continue
            seen.add(name)
            version = version_of(name)
            hint = f"not installed; pip install 'pau-auditor[{extra}]'"
            yield Finding(name, "ok" if version else "note", version or hint)


def version_of(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def image_decoders() -> Iterator[Finding]:
    """Each format written here and decoded in a decoder process, as an audit does it."""
    from auditor.workers.decoder_pool import Decoded, DecoderPool, PixelSpec

    with DecoderPool(PixelSpec(size=(8, 8)), workers=1) as pool:
        results = list(pool.map((form, tiny_image(form), "image") for form in IMAGE_FORMATS))
    for form, result in results:
        if isinstance(result, Decoded):
            continue
        yield Finding(f"decode {form}", "broken", result.message)
    fine = [form for form, result in results if isinstance(result, Decoded)]
    yield Finding("decode images", "ok" if fine else "broken", ", ".join(fine) or "no format decodes")


def tiny_image(form: str) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.new("RGB", (16, 16), (200, 30, 90)).save(buffer, form)
    return buffer.getvalue()


def video_decoders() -> Iterator[Finding]:
    """A clip made here, decoded in a decoder process, and by each library on its own."""
    if version_of("av") is None:
        yield Finding("decode video", "note", "needs PyAV; pip install 'pau-auditor[model]'")
        return
    from auditor.workers.decoder_pool import Decoded, DecoderPool, PixelSpec

    data = tiny_clip()
    with DecoderPool(PixelSpec(size=(8, 8)), frames=2, workers=1) as pool:
        ((_, result),) = pool.map([(None, data, "video")])
    if isinstance(result, Decoded):
        yield Finding("decode video", "ok", f"{len(result.pixels)} frames of {result.width} x {result.height}")
    else:
        yield Finding("decode video", "broken", result.message)
    yield by_decord_alone(data)


def by_decord_alone(data: bytes) -> Finding:
    from model.pixels import Limits
    from model.video.video_decode import Source, by_decord
    from model.video.video_formats import as_path, read_header

    try:
        with as_path(data) as path:
            by_decord(Source(path, data[:16], read_header(path, Limits()), None), 2)
    except Exception as error:
        return Finding(
            "decode by decord", "note", f"does not decode ({type(error).__name__}): PyAV has no second opinion"
        )
    return Finding("decode by decord", "ok", "it works")


def tiny_clip() -> bytes:
    import av
    import numpy as np

    codecs = set(av.codecs_available)
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as container:
        stream: Any = container.add_stream("libx264" if "libx264" in codecs else "mpeg4", rate=8)
        stream.width = stream.height = 32
        stream.pix_fmt = "yuv420p"
        for level in range(4):
            frame = av.VideoFrame.from_ndarray(np.full((32, 32, 3), 50 * level, dtype=np.uint8), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return buffer.getvalue()


def gpu() -> Iterator[Finding]:
    if version_of("torch") is None:
        yield Finding("gpu", "note", "torch is not installed: audits can be read here, not made")
        return
    import torch

    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(index)
            yield Finding(f"gpu {index}", "ok", f"{properties.name}, {gigabytes(properties.total_memory)}")
    elif torch.backends.mps.is_available():
        yield Finding("gpu", "ok", "Apple Metal")
    else:
        yield Finding("gpu", "note", f"none: models run on the CPU with {torch.get_num_threads()} threads")


def ray_token() -> Iterator[Finding]:
    """Whether a job that is submitted from here would show a cluster the token that Ray 2.60 asks for."""
    if version_of("ray") is None:
        return
    from auditor.run.ray_tokens import MODE, token_state

    state = token_state()
    if state.sent:
        yield Finding("ray token", "ok", f"clusters are shown the token of {state.source}")
    elif state.mode == "token" or (state.source and not state.mode):
        yield Finding("ray token", "note", f"a cluster that asks for a token refuses jobs from here: {state.hint}")
    else:
        off = f"{MODE}={state.mode}" if state.mode else "none yet"
        yield Finding("ray token", "ok", f"{off}: only clusters without token authentication can be joined")


def memory() -> Iterator[Finding]:
    with contextlib.suppress(OSError, ValueError, AttributeError):  # not on every system
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        low = total < 4 << 30
        yield Finding("memory", "note" if low else "ok", gigabytes(total) + (": take few workers" if low else ""))


def disk() -> Iterator[Finding]:
    """Where audits are written by default, and where model weights are kept."""
    weights = Path(os.environ.get("HF_HOME", Path.home() / ".cache"))
    for name, folder in (("disk here", Path.cwd()), ("disk for weights", weights)):
        while not folder.exists():
            folder = folder.parent
        free = shutil.disk_usage(folder).free
        status: Literal["ok", "note", "broken"] = "ok" if free > LOW_DISK else "note" if free > NO_DISK else "broken"
        yield Finding(name, status, f"{gigabytes(free)} free at {folder}")


def network(seconds: float = 3.0) -> Iterator[Finding]:
    """Whether weights can be fetched from the hub; a short look, since an audit with local weights needs none."""
    if os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"):
        yield Finding("hub weights", "note", "HF_HUB_OFFLINE is set: only local weights")
        return
    address = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    answers: list[str] = []
    # In a thread, for a name server that does not answer is waited for much longer than `seconds`.
    asking = threading.Thread(target=lambda: answers.append(ask(address, seconds)), daemon=True)
    asking.start()
    asking.join(seconds + 1)
    trouble = answers[0] if answers else "no answer"
    if trouble:
        yield Finding("hub weights", "note", f"{address}: {trouble}; pass local weights with --model local-dir:PATH")
    else:
        yield Finding("hub weights", "ok", f"{address} answers")


def ask(address: str, seconds: float) -> str:
    """Empty where the address answers, whatever it says; else why not."""
    try:
        urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=seconds).close()
    except urllib.error.HTTPError:
        return ""
    except (OSError, ValueError) as error:
        return str(getattr(error, "reason", error)) or type(error).__name__
    return ""


def gigabytes(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"
