"""Settings of scoring, as a manifest keeps them."""

from dataclasses import asdict

from auditor.score.score_config import ScoreConfig


def test_the_settings_of_an_audit_come_back_from_its_manifest() -> None:
    config = ScoreConfig(reference=100, prototypes=4)
    assert ScoreConfig.from_manifest({"score": asdict(config)}) == config
    assert ScoreConfig.from_manifest({}) == ScoreConfig()
