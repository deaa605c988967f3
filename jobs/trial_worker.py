"""The worker of jobs/encoders.py; importing it imports torch and Ray."""

import threading

import torch

from auditor.corpus.open_corpus import Corpus
from auditor.errors import AuditError
from auditor.run.audit_config import AuditConfig
from auditor.run.compare_encoders import EncoderTrial, try_encoders
from auditor.run.ray_engine import BlockWorker


class TrialWorker(BlockWorker):
    """Tries one model at a time, so that their speeds can be compared."""

    def __init__(self, corpus: Corpus, config: AuditConfig, count: int, threads: int):
        torch.set_num_threads(threads)
        self.corpus, self.config, self.count, self.lock = corpus, config, count, threading.Lock()

    def run(self, model: str) -> EncoderTrial:
        with self.lock:
            [(_, trial, failure)] = try_encoders(self.corpus, self.config, [model], self.count)
        if trial is None:
            raise AuditError(failure)
        return trial
