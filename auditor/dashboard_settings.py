"""The settings that `auditor dashboard` passes to the dashboard as JSON in one environment variable."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass

VARIABLE = "AUDITOR_DASHBOARD"


@dataclass(frozen=True)
class Settings:
    audits: tuple[str, ...] = ()
    corpus: str | None = None  # the present location of the corpus of the first audit
    results: str | None = None  # folder with results of `auditor evaluate`
    password: str | None = None  # required before any page is shown

    def environment(self) -> dict[str, str]:
        return {VARIABLE: json.dumps(asdict(self))}


def read_settings(environment: Mapping[str, str] = os.environ) -> Settings:
    values = json.loads(environment.get(VARIABLE) or "{}")
    return Settings(**{**values, "audits": tuple(values.get("audits", ()))})
