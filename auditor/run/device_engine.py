"""Sweeps on several devices of one machine, without Ray: a process for each device, shards assigned as they finish.

`--devices all` uses every GPU; `cuda:0,cuda:0` runs two processes on one GPU. A process runs the same Sweeper as every
other engine; scoring stays in the calling process. If a process dies, its shards are tried again, each alone, and then
reported as failed, so that each shard ends in exactly one report.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from auditor.audit_folder.folder import Folder
from auditor.cores import count_cores
from auditor.corpus.shard import Shard
from auditor.errors import AuditError, AuditorError
from auditor.run.audit_config import AuditConfig
from auditor.run.engine import AuditEngine, LocalEngine
from auditor.run.run_audit import DEFAULT_MODEL, make_local_engine
from auditor.sweep.corpus_model import CorpusModel
from auditor.sweep.sweep import Sweeper
from auditor.sweep.sweep_events import ShardReport, Watch
from auditor.workers.process_pool import ProcessPool
from model.checkpoint import load_model
from model.model_errors import ModelError

TOGETHER = 2  # shards that a process has at once: one is opened while the other is encoded
TRIES = 3  # of a shard whose process died: the first beside another shard, the others alone


def parse_devices(text: str) -> list[str]:
    count = torch.cuda.device_count()
    if text == "all":
        if not count:
            raise AuditError("--devices all: this machine has no GPU that torch can use; leave the option out")
        return [f"cuda:{number}" for number in range(count)]
    names = [name.strip() for name in text.split(",") if name.strip()]
    try:
        devices = [torch.device(name) for name in names]
    except RuntimeError:
        devices = []
    if not devices or any(device.type == "cuda" and (device.index or 0) >= count for device in devices):
        raise AuditError(f"--devices {text}: there are {count} GPUs; write all, or names such as cuda:0,cuda:1")
    return names


class DeviceSweep:
    """The work of a device's process: loads the model with the first shard, then sweeps shards."""

    def __init__(self, device: str, threads: int, config: AuditConfig, fingerprint: str) -> None:
        self.device, self.threads, self.config, self.fingerprint = device, threads, config, fingerprint
        self.sweeper: Sweeper | None = None

    def __call__(self, shard: Shard, notify: Callable[[int, int], None]) -> ShardReport:
        """Sweep a shard; `notify` gets rows and errors. Only an error that concerns every shard is raised."""
        try:
            with LOAD_LOCK:
                sweeper = self.sweeper = self.sweeper or self._make_sweeper()
        except (AuditorError, ModelError) as error:
            raise AuditError(f"{self.device}: {error}") from error
        try:
            return next(iter(sweeper.sweep([shard], notify)))
        except ModelError as error:
            raise AuditError(f"{self.device}: {error}") from error
        except Exception as error:  # any other failure costs this shard only, and is reported
            return ShardReport(shard.name, failure=f"{type(error).__name__}: {error}")

    def _make_sweeper(self) -> Sweeper:
        torch.set_num_threads(self.threads)
        backbone = load_model(self.config.model or DEFAULT_MODEL, self.device).backbone
        if backbone.fingerprint != self.fingerprint:
            raise AuditError(f"{self.config.model} is another model than when the audit began")
        return Sweeper(backbone, Folder(self.config.out), self.config.sweep).__enter__()


LOAD_LOCK = threading.Lock()  # of a device's process, whose threads share the model


@dataclass(frozen=True)
class DeviceEngine(LocalEngine):
    """Sweeps in a process for each device; everything else as LocalEngine does it."""

    works: tuple[DeviceSweep, ...] = ()

    def sweep_pending(self, model: CorpusModel, shards: Sequence[Shard], watch: Watch) -> Iterator[ShardReport]:
        works = self.works[: len(shards)]
        pool = ProcessPool(len(works), concurrency=TOGETHER, tries=TRIES, environment={})
        for _, report in pool.run(works, shards, watch, report_death):
            yield report


def make_device_engine(devices: Sequence[str], folder: Folder, model: CorpusModel, config: AuditConfig) -> AuditEngine:
    """Return the engine of an audit; decoders and threads are divided among the devices."""
    if not model.encodes_media:
        return make_local_engine(folder, model, config)
    threads = max(1, count_cores() // len(devices))
    decoders = max(1, config.sweep.decoders // len(devices))
    device_config = replace(config, sweep=replace(config.sweep, decoders=decoders))
    works = tuple(DeviceSweep(device, threads, device_config, model.fingerprint) for device in devices)
    return DeviceEngine(folder, model, config.sweep, works=works)


def report_death(shard: Shard) -> ShardReport:
    return ShardReport(shard.name, failure=f"the process that swept it died {TRIES} times (out of memory, or a crash)")
