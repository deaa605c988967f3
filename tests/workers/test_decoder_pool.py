"""The pool of decoder processes under real faults: hangs, crashes, kills, memory, bombs, hostile files."""

import contextlib
import io
import math
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from auditor.corpus.sample import Kind, Span
from auditor.workers.decode_worker import MessageSocket
from auditor.workers.decoder_pool import (
    BATCH_FILES,
    Decoded,
    DecodeLimits,
    DecoderError,
    DecoderPool,
    PixelSpec,
    Problem,
    SpanStream,
)
from auditor.workers.decoder_process import Decoder, DecodeTask
from auditor.workers.fork_server import ForkServer
from auditor.workers.pixel_slots import HALF
from model import fast_pixels, pixels
from model.video.video_decode import decode_frames
from tests.support.clips import make_clip, make_numbered_clip, make_photo, read_number
from tests.support.decoders import signal_decoder_at

SPEC = PixelSpec(size=(32, 32))
ROOT = Path(__file__).resolve().parents[2]


def tasks(*files: bytes) -> list[tuple[int, bytes, Kind]]:
    return [(number, data, "image") for number, data in enumerate(files)]


def noise(width: int, height: int, form: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(width).integers(0, 256, (height, width, 3), dtype=np.uint8)).save(
        buffer, form
    )
    return buffer.getvalue()


def wait_for(condition: Callable[[], bool]) -> None:
    for _ in range(1000):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("it did not come about")


def running(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


@pytest.fixture(scope="module")
def pool() -> Iterator[DecoderPool]:
    with DecoderPool(SPEC, frames=4, workers=2, exact=False) as pool:
        yield pool


@pytest.fixture
def fork_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ForkServer]:
    """A separate fork server for a test that breaks it."""
    fresh = ForkServer()
    monkeypatch.setattr("auditor.workers.decoder_process.FORK_SERVER", fresh)
    yield fresh
    fresh.close()


def only(pool: DecoderPool, data: bytes) -> Decoded | Problem:
    ((_, result),) = pool.map(tasks(data))
    return result


# ------------------------------------------------------------------------------------------------------- good files


def test_results_come_in_order_and_equal_decoding_here(pool: DecoderPool) -> None:
    files = [noise(20 + i, 300 - 7 * i, "JPEG" if i % 2 else "PNG") for i in range(30)]
    check_order(pool, files, fast_pixels.decode_and_fit)
    with DecoderPool(SPEC, workers=2) as exact:
        check_order(exact, files, pixels.decode_and_fit)


def check_order(
    pool: DecoderPool, files: list[bytes], decode: Callable[..., tuple[pixels.Pixels, tuple[int, int]]]
) -> None:
    results = list(pool.map(tasks(*files), lookahead=5))
    assert [tag for tag, _ in results] == list(range(len(files)))
    for data, (_, result) in zip(files, results, strict=True):
        assert isinstance(result, Decoded) and result.kind == "image" and result.times is None
        expected, size = decode(data, SPEC, DecodeLimits())
        assert (result.width, result.height) == size
        np.testing.assert_array_equal(result.pixels, expected[None])


def test_videos(pool: DecoderPool) -> None:
    data = make_clip(frames=48)
    result = only(pool, data)
    expected = decode_frames(data, 4, spec=SPEC)
    assert isinstance(result, Decoded) and result.kind == "video"
    np.testing.assert_array_equal(result.pixels, np.stack(expected.images))
    assert (result.times, result.duration) == (expected.times, expected.duration)
    assert (result.width, result.height) == (64, 48)


def test_content_decides_not_the_name(pool: DecoderPool) -> None:
    files: list[tuple[str, bytes, Kind]] = [("image", make_photo(), "video"), ("video", make_clip(frames=8), "image")]
    for kind, result in pool.map(files):
        assert isinstance(result, Decoded) and result.kind == kind


def test_what_has_no_file_comes_back_in_its_turn(pool: DecoderPool) -> None:
    gone = Problem("missing_media", "gone")
    files: list[tuple[int, bytes | Problem | None, Kind]] = [
        (0, make_photo(), "image"),
        (1, None, "image"),
        (2, gone, "video"),
        (3, make_photo(), "image"),
    ]
    found = list(pool.map(files, lookahead=1))
    assert [tag for tag, _ in found] == [0, 1, 2, 3]
    assert found[1][1] is None and found[2][1] is gone
    assert isinstance(found[0][1], Decoded) and isinstance(found[3][1], Decoded)


def test_side_work_gets_each_file_before_its_result_comes(pool: DecoderPool) -> None:
    files = [make_photo(), b"no picture", make_photo() + bytes(HALF), make_clip(), b""] * 5
    done: dict[int, bytes] = {}
    for number, _ in pool.map(
        ((number, data, "image") for number, data in enumerate(files)), side_work=done.setdefault
    ):
        assert done[number] == files[number]
    assert len(done) == len(files)


def test_results_do_not_wait_for_more_files(pool: DecoderPool) -> None:
    tags: list[int] = []

    def files() -> Iterator[tuple[int, bytes | None, Kind]]:
        yield from ((number, make_photo(), "image") for number in range(9))  # a batch and the next one
        for number in range(9, 200):
            if tags:
                return
            time.sleep(0.1)
            yield number, None, "image"
        raise AssertionError("no result came")

    for tag, _ in pool.map(files()):
        tags.append(tag)
    assert tags == list(range(len(tags)))


def test_reading_ahead_is_bounded(pool: DecoderPool) -> None:
    taken = []

    def endless() -> Iterator[tuple[int, bytes, Kind]]:
        for number in range(1_000_000):
            taken.append(number)
            yield number, make_photo(8, 8), "image"

    results = pool.map(endless(), lookahead=6)
    for number in range(10):
        assert next(results)[0] == number
        assert len(taken) <= number + 1 + 6
    results.close()  # type: ignore[attr-defined]
    assert isinstance(only(pool, make_photo()), Decoded)


def test_reading_ahead_is_bounded_in_bytes(pool: DecoderPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("auditor.workers.decoder_pool.HELD_BYTES", 50_000)
    taken: list[int] = []

    def large() -> Iterator[tuple[int, bytes, Kind]]:
        for number in range(20):
            taken.append(number)
            yield number, bytes(20_000), "image"

    for number, _ in pool.map(large(), lookahead=100):
        assert len(taken) - number <= 3


def test_two_maps_share_a_pool(pool: DecoderPool) -> None:
    counts: dict[str, int] = {}

    def run(name: str, colour: int) -> None:
        files = tasks(*[make_photo(16, 16, "PNG", (colour, 0, 0))] * 20)
        counts[name] = sum(isinstance(r, Decoded) and r.pixels[0, 0, 0, 0] == colour for _, r in pool.map(files))

    threads = [threading.Thread(target=run, args=(str(c), c)) for c in (50, 150)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == {"50": 20, "150": 20}


# ----------------------------------------------------------------------------------------------------------- faults


def test_bad_files_cost_only_themselves(pool: DecoderPool) -> None:
    bomb = io.BytesIO()
    Image.new("1", (13_000, 13_000)).save(bomb, "PNG")
    files = [make_photo(), b"", b"junk", make_photo()[:-300], bomb.getvalue(), make_clip()[:900], make_photo()]
    statuses = [r.status if isinstance(r, Problem) else "ok" for _, r in pool.map(tasks(*files))]
    assert statuses == ["ok", "corrupt", "corrupt", "corrupt", "too_large", "corrupt", "ok"]


def test_a_hang_is_a_timeout_and_the_pool_heals(monkeypatch: pytest.MonkeyPatch) -> None:
    signal_decoder_at(monkeypatch, {b"endless": signal.SIGSTOP})  # as a decoder that loops for ever
    with DecoderPool(SPEC, workers=1, limits=DecodeLimits(seconds=1.0)) as pool:
        assert isinstance(only(pool, make_photo()), Decoded)
        (first,) = pool.pids
        results = dict(pool.map(tasks(make_photo(), b"endless", make_photo())))
        assert results[1] == Problem("timeout", "not decoded within 1 seconds")
        assert isinstance(results[0], Decoded) and isinstance(results[2], Decoded)
        assert not running(first) and pool.pids != [first]


def test_a_death_costs_neither_its_batch_nor_the_one_sent_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    signal_decoder_at(monkeypatch, {b"crasher": signal.SIGSEGV})
    colours = range(0, 240, 10)
    files = [make_photo(40, 40, "PNG", (level, 0, 0)) for level in colours]
    with DecoderPool(SPEC, workers=1) as pool:
        found = dict(pool.map(tasks(*files[:5], b"crasher", *files[5:])))
    assert found.pop(5) == Problem("corrupt", "decoder died of SIGSEGV")
    levels = [int(r.pixels[0, 0, 0, 0]) for r in found.values() if isinstance(r, Decoded)]
    assert levels == list(colours)


def test_after_a_death_files_go_in_batches_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is sent ahead while the files of a dead process are decoded one by one: the answers would be mixed."""
    signal_decoder_at(monkeypatch, {b"crasher": signal.SIGSEGV})
    forks, alone = [], []
    fork, decode = ForkServer.fork, Decoder.decode
    monkeypatch.setattr(ForkServer, "fork", lambda self, *rest: (forks.append(rest), fork(self, *rest))[1])
    monkeypatch.setattr(Decoder, "decode", lambda self, task: (alone.append(task), decode(self, task))[1])
    with DecoderPool(SPEC, workers=1) as pool:
        results = dict(pool.map(tasks(b"crasher", *[make_photo()] * 200)))
    assert results.pop(0) == Problem("corrupt", "decoder died of SIGSEGV")
    assert all(isinstance(result, Decoded) for result in results.values())
    assert len(forks) <= 5  # the first process, and one after each death: of the batch and twice of the file alone
    assert len(alone) <= 2 * BATCH_FILES


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSEGV])
def test_one_kill_from_outside_blames_nobody(blow: signal.Signals) -> None:
    with DecoderPool(SPEC, workers=1) as pool:
        assert isinstance(only(pool, make_photo()), Decoded)
        (pid,) = pool.pids
        os.kill(pid, signal.SIGSTOP)
        future = pool.submit(make_photo())
        wait_for(future.running)
        os.kill(pid, blow)
        os.kill(pid, signal.SIGCONT)
        assert isinstance(future.result(60), Decoded)
        assert not running(pid) and len(pool.pids) == 1


def test_a_kill_between_files_is_not_noticed() -> None:
    with DecoderPool(SPEC, workers=1) as pool:
        for _ in range(3):
            assert isinstance(only(pool, make_photo()), Decoded)
            (pid,) = pool.pids
            os.kill(pid, signal.SIGKILL)
            wait_for(lambda pid=pid: not running(pid))  # type: ignore[misc]


def test_a_file_that_crashes_twice_is_corrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    signal_decoder_at(monkeypatch, {b"crasher": signal.SIGSEGV})
    with DecoderPool(SPEC, workers=2) as pool:
        found = dict(pool.map(tasks(make_photo(), b"crasher", make_photo(), b"crasher", make_photo())))
        assert found[1] == found[3] == Problem("corrupt", "decoder died of SIGSEGV")
        assert all(isinstance(found[i], Decoded) for i in (0, 2, 4))


def test_memory_is_limited_and_given_back() -> None:
    with DecoderPool(SPEC, workers=1, limits=DecodeLimits(memory=40 << 20)) as pool:
        large, small = make_photo(4000, 4000, "PNG"), noise(60, 60)
        found = [r for _, r in pool.map(tasks(small, large, small, large, small))]
        assert [isinstance(r, Decoded) for r in found] == [True, False, True, False, True]
        assert isinstance(found[1], Problem) and found[1].status == "too_large" and "memory" in found[1].message
    with DecoderPool(SPEC, workers=1) as pool:
        assert isinstance(only(pool, large), Decoded)


def test_files_above_the_limit_are_never_sent() -> None:
    with DecoderPool(SPEC, workers=1, limits=DecodeLimits(max_bytes=100)) as pool:
        result = only(pool, make_photo())
        assert isinstance(result, Problem) and result.status == "too_large"


@pytest.mark.parametrize(
    "lie",
    [
        *(b"no json", b"[]", b"[" * 100_000, b'{"spent": 0, "shape": [99, 32, 32, 3]}', b'{"shape": [1, 9, 9, 3]}'),
        *(b'{"spent": 0, "width": 1e999, "height": 9}', b'{"spent": 0, "width": 9, "height": 9, "thumbnail": "00"}'),
        b'{"spent": 0, "width": 9, "height": 9, "note": {}, "duration": "long"}',
    ],
)
def test_a_decoder_that_talks_nonsense_is_replaced(lie: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"pixels": {"size": [32, 32]}, "frames": 1, "limits": {}, "exact": True, "measure": False}
    decoder = Decoder(settings, (1, 32, 32, 3), seconds=20)
    receive = MessageSocket.receive_bytes

    def corrupted(self: MessageSocket, size: int) -> bytearray:
        true = receive(self, size)
        return true if size == 4 or b"ready" in true else bytearray(lie)

    monkeypatch.setattr(MessageSocket, "receive_bytes", corrupted)
    result = decoder.decode(DecodeTask(make_photo()))
    decoder.close()
    assert isinstance(result, Problem) and result.status == "corrupt"


def test_hostile_files(shared: Path) -> None:
    """Every file ends in a result; a bad file never in pixels. Three odd files are not media at all."""
    files = sorted((shared / "data" / "hostile").iterdir())
    named: list[tuple[str, bytes, Kind]] = [(file.name, file.read_bytes(), "image") for file in files]
    with DecoderPool(SPEC, workers=2) as pool:
        found = dict(pool.map(named))
    assert list(found) == [file.name for file in files]
    assert not [name for name, result in found.items() if name.startswith("bad__") and isinstance(result, Decoded)]
    undecoded = {name for name, result in found.items() if name.startswith("odd__") and isinstance(result, Problem)}
    assert undecoded == {f"odd__pixelprobe__valid.{form}" for form in ("3gp", "m4v", "mpg")}  # error pages and a name
    assert all(result.message for result in found.values() if isinstance(result, Problem))


# ---------------------------------------------------------------------------------------------- starting and ending


def test_close_leaves_nothing_even_in_the_middle_of_work() -> None:
    pool = DecoderPool(SPEC, workers=2)
    assert isinstance(only(pool, make_photo()), Decoded)
    wait_for(lambda: len(pool.pids) == 2)
    threads = threading.active_count()
    pids = pool.pids
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    futures = [pool.submit(make_photo()) for _ in range(6)]
    wait_for(lambda: sum(future.running() for future in futures) == 2)
    pool.close()
    assert not any(running(pid) for pid in pids) and pool.pids == []
    assert threading.active_count() == threads - 2
    assert all(future.done() for future in futures)
    with pytest.raises(DecoderError, match="closed"):
        pool.submit(make_photo())
    pool.close()


def run_script(body: str, folder: Path) -> "subprocess.Popen[str]":
    script = folder / "script.py"
    script.write_text(textwrap.dedent(body))
    return subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


START = """
    import time
    from auditor.workers.decoder_pool import DecoderPool, PixelSpec, Problem
    pool = DecoderPool(PixelSpec(), workers=2)
    print([r for _, r in pool.map([(0, b"junk", "image")] * 4)][0].status, *pool.pids, flush=True)
"""


def test_children_die_with_a_killed_parent(tmp_path: Path) -> None:
    with run_script(START + "    time.sleep(600)\n", tmp_path) as parent:
        assert parent.stdout
        status, *pids = parent.stdout.readline().split()
        assert status == "corrupt" and len(pids) == 2
        parent.kill()
    wait_for(lambda: not any(running(int(pid)) for pid in pids))


def test_a_script_without_main_guard_and_with_its_own_model_works(tmp_path: Path) -> None:
    """Spawned processes neither run the user's script again nor import a `model.py` beside it."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "model.py").write_text("raise RuntimeError('not this one')")
    with run_script("    import os; os.chdir('elsewhere')\n" + START, tmp_path) as parent:
        output, _ = parent.communicate(timeout=120)
    assert parent.returncode == 0 and output.startswith("corrupt"), output


def test_exact_decoders_never_import_torch_and_none_says_anything(
    fork_server: ForkServer, shared: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    chatty = [file.read_bytes() for file in sorted((shared / "data" / "hostile").glob("bad__pillow__crash*.tif"))]
    for exact in (True, False):
        with DecoderPool(SPEC, workers=1, exact=exact) as pool:
            list(pool.map(tasks(*chatty, make_clip()[:900], make_clip(frames=5))))
            maps = Path(f"/proc/{pool.pids[0]}/maps").read_text()
        assert "decord" in maps and ("torch" in maps) is not exact
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("executable", "reason"), [("/bin/false", "doctor"), ("/nowhere/python", "started")])
def test_a_broken_installation_is_an_error_not_a_row(
    fork_server: ForkServer, monkeypatch: pytest.MonkeyPatch, executable: str, reason: str
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    with DecoderPool(SPEC, workers=1) as pool, pytest.raises(DecoderError, match=reason):
        only(pool, make_photo())


def test_a_fork_server_that_is_prepared_serves_the_pool(fork_server: ForkServer) -> None:
    fork_server.prepare(exact=True)
    child = fork_server._child
    with DecoderPool(SPEC, workers=1, exact=True) as pool:
        assert isinstance(only(pool, make_photo()), Decoded)
    assert child is not None and fork_server._child is child and child.is_alive


def test_a_killed_fork_server_is_replaced(fork_server: ForkServer) -> None:
    with DecoderPool(SPEC, workers=2, exact=True) as pool:
        assert isinstance(only(pool, make_photo()), Decoded)
        wait_for(lambda: len(pool.pids) == 2)
        stat = Path(f"/proc/{pool.pids[0]}/stat").read_text()
        os.kill(int(stat.rsplit(")", 1)[1].split()[1]), signal.SIGKILL)  # the parent of a decoder
        found = [r for _, r in pool.map(tasks(*[make_photo()] * 6))]
        assert all(isinstance(result, Decoded) for result in found)


def test_a_decoder_adds_little_memory_of_its_own(pool: DecoderPool) -> None:
    list(pool.map(tasks(*[noise(1000, 800, "JPEG")] * 20)))
    for pid in pool.pids:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        private = sum(int(rollup.split(f"Private_{kind}:")[1].split()[0]) for kind in ("Clean", "Dirty"))
        assert private < 150 * 1024  # kB


# ------------------------------------------------------------------------------------------------------------ spans


def stream_of(pool: DecoderPool, data: bytes, spans: list[Span | None], context: float = 0.0) -> SpanStream:
    ((_, found),) = pool.map([(0, SpanStream(data, spans, context), "video")])
    assert isinstance(found, SpanStream)
    return found


def test_frames_of_spans_come_in_parts() -> None:
    data = make_numbered_clip("h264", "mp4", 250)
    spans = [Span(k / 10, k / 10 + 1.0) for k in range(90)] + [None, Span(5, 4), Span(math.nan, 1)]
    with DecoderPool(PixelSpec(size=(64, 96), resize_mode="squash"), frames=8, workers=2) as pool:
        stream = stream_of(pool, data, spans, context=4.0)
        parts = list(stream)
        result = stream.result()
    assert isinstance(result, Decoded) and result.span_frames is not None and result.times is not None
    assert len(parts) > 1 and all(len(part) <= 64 for part in parts)
    pixels = np.concatenate(parts)
    assert [read_number(image) for image in pixels] == [round(time * 25) % 128 for time in result.times]
    assert len(set(result.times)) == len(result.times) == len(pixels)  # each once, however many spans share it
    for span, places in zip(spans[:90], result.span_frames.by_span[:90], strict=True):
        assert span is not None and not isinstance(places, str)
        assert all(span.start - 0.04 <= result.times[place] <= span.end for place in places) and len(places) == 8
    assert len(result.span_frames.by_span[90]) == 8 and "reversed" in result.span_frames.by_span[91]
    assert "not a time" in result.span_frames.by_span[92] and len(result.span_frames.context) == 5


def test_one_span_at_once_and_reasons_instead() -> None:
    data = make_numbered_clip("h264", "mp4", 100)
    with DecoderPool(SPEC, frames=3, workers=1) as pool:
        found = stream_of(pool, data, [Span(1.0, 2.0)]).collect()
        assert isinstance(found, Decoded) and found.pixels.shape == (3, 32, 32, 3)
        assert stream_of(pool, data, [Span(9.0, 12.0)]).collect() == Problem(
            "bad_span", "the span 9 to 12 s is outside the video of 4.00 s"
        )
        broken = stream_of(pool, b"junk", [Span(1.0, 2.0)]).collect()
        assert isinstance(broken, Problem) and broken.status == "corrupt"
        image = stream_of(pool, make_photo(), [Span(1.0, 2.0)]).collect()
        assert isinstance(image, Decoded) and image.kind == "image" and len(image.pixels) == 1


def test_a_stream_goes_on_after_its_decoder_was_killed() -> None:
    data = make_numbered_clip("h264", "mp4", 250)
    with DecoderPool(PixelSpec(size=(64, 96), resize_mode="squash"), frames=250, workers=1) as pool:
        stream = stream_of(pool, data, [None])
        parts = [next(iter(stream))]
        os.kill(pool.pids[0], signal.SIGKILL)
        parts += list(stream)
        result = stream.result()
    assert isinstance(result, Decoded) and result.times is not None and len(result.times) == 250
    assert [read_number(image) for image in np.concatenate(parts)] == [number % 128 for number in range(250)]


def test_a_stream_nobody_reads_does_not_hold_the_pool() -> None:
    data = make_numbered_clip("h264", "mp4", 250)
    with DecoderPool(SPEC, frames=250, workers=1) as pool:
        left = stream_of(pool, data, [None])
        left.close()
        assert isinstance(only(pool, make_photo()), Decoded)
        stream_of(pool, data, [None])  # closing the pool does not wait for it either


def test_pictures_before_a_stream_do_not_wait_for_it() -> None:
    """The reader takes the picture first, and the decoder of the stream waits until its parts are read."""
    data = make_numbered_clip("h264", "mp4", 250)
    with DecoderPool(SPEC, frames=250, workers=1) as pool:
        results = pool.map([(0, make_photo(), "image"), (1, SpanStream(data, [None]), "video")])
        watchdog = threading.Timer(60, pool.close)
        watchdog.start()
        assert isinstance(next(results)[1], Decoded)
        stream = next(results)[1]
        assert isinstance(stream, SpanStream) and sum(map(len, stream)) == 250
        watchdog.cancel()
