"""Starts an audit from the values of options by name, for `auditor audit` and `auditor.audit`."""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from auditor.audit_folder.manifest import Manifest
from auditor.corpus.open_corpus import Corpus, CorpusOptions, open_corpus
from auditor.corpus.stored.vector_shard import VectorShard
from auditor.errors import AuditError
from auditor.run.audit_config import AuditConfig
from auditor.schema.setting import setting, settings_in
from auditor.score.score_config import ScoreConfig
from auditor.sweep.sweep_config import SweepConfig
from auditor.workers.fork_server import FORK_SERVER
from model.model_names import check_model_name
from model.pixels import DecodeLimits

if TYPE_CHECKING:
    from model.precision import Precision

LIMITS = DecodeLimits()


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    precision: Literal["auto", "float32", "bfloat16", "float16"] = setting(
        "auto",
        "Numerical precision of the encoder. `auto` is float32 on a CPU, and 16 bits on a GPU if the first samples "
        "keep a cosine of 0.999 to float32.",
    )
    decoders: int | None = setting(None, "Number of decoder processes [default: the number of cores].")
    timeout: float = setting(LIMITS.seconds, "Time limit for a file in seconds.")
    max_pixels: int = setting(LIMITS.max_pixels, "Give larger images the status `too_large`.")
    max_bytes: int = setting(
        LIMITS.max_bytes,
        "Give larger files the status `too_large`. Each decoder holds one file in memory.",
        minimum=1,
    )


NO_ENCODER = {"device": "cpu", "precision": "float32"}  # of stored embeddings: nobody has to ask torch for a GPU
SETTINGS = (CorpusOptions, SweepConfig, DecodeOptions, ScoreConfig, AuditConfig)


def start_audit(values: Mapping[str, Any], devices: str | None = None) -> Manifest:
    """Audit, resume or extend; missing values have their defaults."""
    corpus = open_inputs(values, [values.get("model")])
    if isinstance(next(iter(corpus.shards), None), VectorShard):
        values = {**values, **NO_ENCODER}
    elif devices is None:
        FORK_SERVER.prepare(exact=bool(values.get("exact_pixels")))  # both processes import torch at the same time
    from auditor.run.extend import extend_audit
    from auditor.run.run_audit import run_audit

    run = extend_audit if values.get("extend") else run_audit
    if devices is None:
        return run(build_audit_config(values), corpus=corpus)
    from auditor.run.device_engine import make_device_engine, parse_devices

    names = parse_devices(devices)
    config = build_audit_config({**values, "device": names[0]})
    return run(config, partial(make_device_engine, names), "cpu", corpus)


def check_option_names(names: Iterable[str]) -> None:
    """Refuse keyword arguments that `auditor audit` has no option for."""
    options = ["device", "extend", *(item.name for config in SETTINGS for item in fields(config) if item.metadata)]
    for name in sorted(set(names) - set(options)):
        similar = difflib.get_close_matches(name, options, n=1) or ["`auditor audit --help`"]
        raise AuditError(f"there is no option {name!r}; see {similar[0]}")


def open_inputs(values: Mapping[str, Any], models: Iterable[str | None]) -> Corpus:
    """Open the corpus; refuse a wrong path, column or model name before torch is imported, which takes seconds."""
    for model in filter(None, models):
        check_model_name(model)
    return open_corpus(values["corpus"], CorpusOptions(**settings_in(CorpusOptions, values)))


def build_limits(options: DecodeOptions) -> DecodeLimits:
    """The limits on one file. If larger files are allowed, a decoder may use that much more memory."""
    memory = LIMITS.memory + max(0, options.max_bytes - LIMITS.max_bytes)
    return DecodeLimits(options.max_pixels, options.max_bytes, seconds=options.timeout, memory=memory)


def resolve_encoder(device: str, precision: str) -> tuple[str, "Precision"]:
    """The device and the precision that `auto` stands for; torch, which knows its GPUs, is not imported for others."""
    if (device, precision) == tuple(NO_ENCODER.values()):
        return "cpu", "float32"
    from model.backbone import resolve_device
    from model.precision import resolve_precision

    return (name := resolve_device(device)), resolve_precision(precision, name)


def build_audit_config(values: Mapping[str, Any]) -> AuditConfig:
    decoding = DecodeOptions(**settings_in(DecodeOptions, values))
    device, precision = resolve_encoder(values.get("device", "auto"), decoding.precision)
    sweep = SweepConfig(
        **settings_in(SweepConfig, values),
        precision=precision,
        limits=build_limits(decoding),
    )
    return AuditConfig(
        values["corpus"],
        values.get("out", ""),
        values.get("model"),
        CorpusOptions(**settings_in(CorpusOptions, values)),
        replace(sweep, decoders=decoding.decoders) if decoding.decoders else sweep,
        ScoreConfig(**settings_in(ScoreConfig, values)),
        device,
        **settings_in(AuditConfig, values),
    )
