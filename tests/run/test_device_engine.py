"""Several devices sweep every shard once, write the files of one process, and survive a process that dies."""

import os
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest

from auditor.audit_folder.embeddings import name_embeddings_file
from auditor.audit_folder.folder import Folder
from auditor.corpus.open_corpus import open_corpus
from auditor.corpus.shard import OpenShard
from auditor.errors import AuditError
from auditor.run import device_engine
from auditor.run.audit_config import AuditConfig
from auditor.run.device_engine import make_device_engine, parse_devices
from auditor.run.engine import LocalEngine
from auditor.sweep.sweep_config import SweepConfig
from model.checkpoint import load_model
from tests.support.corpora import write_corpus


@dataclass(frozen=True)
class Deadly:
    """A shard that kills its process."""

    name: str = "deadly"

    def fingerprint(self) -> str:
        return "none"

    def open(self) -> AbstractContextManager[OpenShard]:
        os._exit(9)


def test_two_processes_write_what_one_writes_and_outlive_a_deadly_shard(
    tmp_path: Path, random_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_engine, "TRIES", 2)  # once with a neighbour, once alone
    corpus = write_corpus(tmp_path / "corpus", shards=3, size=4)
    shards = [*open_corpus(str(corpus)).shards, Deadly()]
    config = AuditConfig(str(corpus), str(tmp_path / "out"), random_model, sweep=SweepConfig(exact_pixels=True))
    backbone = load_model(random_model).backbone
    engine = make_device_engine(["cpu", "cpu"], Folder(config.out), backbone, config)
    heard: list[int] = []
    reports = {r.shard: r for r in engine.sweep(shards, lambda rows, errors: heard.append(rows))}
    assert sorted(reports) == ["00000", "00001", "00002", "deadly"] and sum(heard) >= 12
    assert "died" in (reports["deadly"].failure or "")
    one = Folder(tmp_path / "one")
    list(LocalEngine(one, backbone, config.sweep).sweep(shards[:3], lambda rows, errors: None))
    for name in ("00000", "00001", "00002"):
        assert (
            Folder(config.out).read_table(name_embeddings_file(name)).equals(one.read_table(name_embeddings_file(name)))
        )


def test_devices_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse_devices("cpu, cpu") == ["cpu", "cpu"]
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert parse_devices("all") == ["cuda:0", "cuda:1"]
    assert parse_devices("cuda:1,cuda:1") == ["cuda:1", "cuda:1"]
    for wrong in ("cuda:2", "nonsense", ","):
        with pytest.raises(AuditError, match="there are 2 GPUs"):
            parse_devices(wrong)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    with pytest.raises(AuditError, match="has no GPU"):
        parse_devices("all")
