"""What the dashboard was started with. `auditor dashboard` hands it over in one environment variable, as JSON."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass

VARIABLE = "AUDITOR_DASHBOARD"


@dataclass(frozen=True)
class Settings:
    audits: tuple[str, ...] = ()
    corpus: str | None = None  # where the corpus of the first audit is now
    results: str | None = None  # folder of results of `auditor evaluate`
    password: str | None = None  # without it no page is shown

    def environment(self) -> dict[str, str]:
        return {VARIABLE: json.dumps(asdict(self))}


def read_settings(environment: Mapping[str, str] = os.environ) -> Settings:
    given = json.loads(environment.get(VARIABLE) or "{}")
    return Settings(tuple(given.get("audits") or ()), given.get("corpus"), given.get("results"), given.get("password"))
