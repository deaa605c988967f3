"""Settings of scoring, as a manifest keeps them."""

from dataclasses import asdict

from auditor.score.corpus_statistics import ScoreConfig


def test_settings_of_an_audit_come_back_and_u_of_older_ones_followed_h() -> None:
    config = ScoreConfig(reference=100, prototypes=4)
    assert ScoreConfig.of(asdict(config)) == config
    older = {name: value for name, value in asdict(config).items() if name != "target"}
    assert ScoreConfig.of({**older, "forgotten": 1}).target == "h"
    assert ScoreConfig.of({}) == ScoreConfig()
