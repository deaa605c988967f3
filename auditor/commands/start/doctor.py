"""`auditor doctor`: check the installation.

Each check is a function that yields `CheckResult`s. `ok` and `note` are fine (a note says what does not work here and
how to change that); `broken` must be repaired.
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
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Literal

import click

from auditor.commands.options import json_option
from auditor.terminal import print_line

NEEDED = [
    "braceexpand", "charset-normalizer", "click", "duckdb", "fsspec", "jinja2", "numpy", "pillow", "pyarrow", "rich",
    "scipy",
]  # fmt: skip
EXTRAS = {
    "model": ["av", "decord", "faiss-cpu", "open_clip_torch", "py3langid", "safetensors", "simplejpeg", "torch",
              "webdataset"],
    "ray": ["ray"],
    "dashboard": ["pandas", "plotly", "safetensors", "streamlit"],
    "s3": ["s3fs"],
}  # fmt: skip
IMAGE_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
LOW_DISK = 5 << 30
NO_DISK = 200 << 20


@dataclass(frozen=True, slots=True)
class CheckResult:
    check: str
    status: Literal["ok", "note", "broken"]
    detail: str


def run_checks() -> Iterator[CheckResult]:
    """Run all checks; a check that raises counts as broken."""
    checks: list[Callable[[], Iterator[CheckResult]]] = [
        check_python, check_packages, check_image_decoders, check_video_decoders, check_gpu, check_ray_token,
        check_memory, check_disk, check_hub,
    ]  # fmt: skip
    for check in checks:
        try:
            yield from check()
        except Exception as error:  # a broken installation can raise anything
            name = check.__name__.removeprefix("check_").replace("_", " ")
            yield CheckResult(name, "broken", f"{type(error).__name__}: {error}")


def check_python() -> Iterator[CheckResult]:
    version = f"{platform.python_version()} on {platform.platform(terse=True)}"
    yield CheckResult("python", "ok" if sys.version_info >= (3, 11) else "broken", version)


def check_packages() -> Iterator[CheckResult]:
    for name in NEEDED:
        version = find_version(name)
        yield CheckResult(name, "ok" if version else "broken", version or "not installed; pip install pau-auditor")
    extras = {name: extra for extra in reversed(EXTRAS) for name in EXTRAS[extra]}  # the first extra that needs it
    for name in dict.fromkeys(chain(*EXTRAS.values())):
        version = find_version(name)
        hint = f"not installed; pip install 'pau-auditor[{extras[name]}]'"
        yield CheckResult(name, "ok" if version else "note", version or hint)


def find_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def check_image_decoders() -> Iterator[CheckResult]:
    """Write each format and decode it in a decoder process, as an audit does."""
    from auditor.workers.decoder_pool import Decoded, DecoderPool, PixelSpec

    with DecoderPool(PixelSpec(size=(8, 8)), workers=1) as pool:
        results = list(pool.map((form, make_tiny_image(form), "image") for form in IMAGE_FORMATS))
    fine = []
    for form, result in results:
        if isinstance(result, Decoded):
            fine.append(form)
        else:
            yield CheckResult(f"decode {form}", "broken", result.message)
    yield CheckResult("decode images", "ok" if fine else "broken", ", ".join(fine) or "no format decodes")


def make_tiny_image(form: str) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.new("RGB", (16, 16), (200, 30, 90)).save(buffer, form)
    return buffer.getvalue()


def check_video_decoders() -> Iterator[CheckResult]:
    """Write a clip and decode it in a decoder process, and by decord alone."""
    if find_version("av") is None:
        yield CheckResult("decode video", "note", "needs PyAV; pip install 'pau-auditor[model]'")
        return
    from PIL import Image

    from auditor.demo.scene_clips import encode_mp4
    from auditor.demo.scenes import SIDE
    from auditor.workers.decoder_pool import Decoded, DecoderPool, PixelSpec

    data = encode_mp4(Image.new("RGB", (SIDE, SIDE), (50 * level,) * 3) for level in range(4))
    with DecoderPool(PixelSpec(size=(8, 8)), frames=2, workers=1) as pool:
        ((_, result),) = pool.map([(None, data, "video")])
    if isinstance(result, Decoded):
        yield CheckResult("decode video", "ok", f"{len(result.pixels)} frames of {result.width} x {result.height}")
    else:
        yield CheckResult("decode video", "broken", result.message)
    yield check_decord(data)


def check_decord(data: bytes) -> CheckResult:
    from model.pixels import DecodeLimits
    from model.video.video_decode import VideoSource, decode_with_decord
    from model.video.video_formats import open_as_path, read_video_header

    try:
        with open_as_path(data) as path:
            decode_with_decord(VideoSource(path, data[:16], read_video_header(path, DecodeLimits()), None), 2)
    except Exception as error:
        problem = f"does not decode ({type(error).__name__}): only PyAV decodes videos"
        return CheckResult("decode by decord", "note", problem)
    return CheckResult("decode by decord", "ok", "it works")


def check_gpu() -> Iterator[CheckResult]:
    if find_version("torch") is None:
        yield CheckResult("gpu", "note", "torch is not installed: this machine can read audits but not make them")
        return
    import torch

    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(index)
            yield CheckResult(f"gpu {index}", "ok", f"{properties.name}, {format_gigabytes(properties.total_memory)}")
    elif torch.backends.mps.is_available():
        yield CheckResult("gpu", "ok", "Apple Metal")
    else:
        yield CheckResult("gpu", "note", f"none: models run on the CPU with {torch.get_num_threads()} threads")


def check_ray_token() -> Iterator[CheckResult]:
    """Check whether a job submitted from this machine would send the token that Ray 2.60 requires."""
    if find_version("ray") is None:
        return
    from auditor.run.ray_tokens import MODE, find_token

    state = find_token()
    if state.sent:
        yield CheckResult("ray token", "ok", f"jobs send the token of {state.source}")
    elif state.mode == "token" or (state.source and not state.mode):
        problem = f"a cluster that requires a token refuses jobs from this machine: {state.hint}"
        yield CheckResult("ray token", "note", problem)
    else:
        off = f"{MODE}={state.mode}" if state.mode else "none yet"
        yield CheckResult("ray token", "ok", f"{off}: jobs can use only clusters without token authentication")


def check_memory() -> Iterator[CheckResult]:
    with contextlib.suppress(OSError, ValueError, AttributeError):  # not on every system
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        low = total < 4 << 30
        hint = ": use few workers" if low else ""
        yield CheckResult("memory", "note" if low else "ok", f"{format_gigabytes(total)}{hint}")


def check_disk() -> Iterator[CheckResult]:
    weights = Path(os.environ.get("HF_HOME", Path.home() / ".cache"))
    for name, folder in (("disk here", Path.cwd()), ("disk for weights", weights)):
        while not folder.exists():
            folder = folder.parent
        free = shutil.disk_usage(folder).free
        status: Literal["ok", "note", "broken"] = "ok" if free > LOW_DISK else "note" if free > NO_DISK else "broken"
        yield CheckResult(name, status, f"{format_gigabytes(free)} free at {folder}")


def check_hub(seconds: float = 3.0) -> Iterator[CheckResult]:
    """Check whether weights can be downloaded; the check is short, because local weights need no hub."""
    if os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"):
        yield CheckResult("hub weights", "note", "HF_HUB_OFFLINE is set: only local weights")
        return
    address = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    answers: list[str] = []
    # In a thread, because a name server that does not answer blocks for much longer than `seconds`.
    probe = threading.Thread(target=lambda: answers.append(probe_address(address, seconds)), daemon=True)
    probe.start()
    probe.join(seconds + 1)
    if problem := answers[0] if answers else "no answer":
        hint = "pass local weights with --model local-dir:PATH"
        yield CheckResult("hub weights", "note", f"{address}: {problem}; {hint}")
    else:
        yield CheckResult("hub weights", "ok", f"{address} answers")


def probe_address(address: str, seconds: float) -> str:
    """Return why the address does not answer, or an empty text if it does."""
    try:
        with contextlib.suppress(urllib.error.HTTPError):  # an answer
            urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=seconds).close()
    except (OSError, ValueError) as error:
        return str(getattr(error, "reason", error)) or type(error).__name__
    return ""


def format_gigabytes(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"


@click.command()
@json_option()
@click.pass_context
def command(context: click.Context, as_json: bool) -> None:
    """Check the installation: packages, decoders, GPU, memory, free disk, network for hub weights.

    Exits non-zero if something required is broken.

    \b
    auditor doctor
    auditor doctor --json
    """
    from auditor.console import print_rows

    results = list(run_checks())
    print_rows([asdict(result) for result in results], json=as_json)
    broken = [result.check for result in results if result.status == "broken"]
    if not as_json:
        print_line(f"to repair: {', '.join(broken)}" if broken else "everything required works")
    if broken:
        context.exit(1)
