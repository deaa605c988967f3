"""Settings of scoring, as a manifest keeps them."""

from dataclasses import asdict

from auditor.score.score_config import HeadFitConfig, ScoreConfig


def test_the_settings_of_an_audit_come_back_from_its_manifest() -> None:
    config = ScoreConfig(reference=100, prototypes=4)
    assert ScoreConfig.from_manifest({"score": asdict(config)}) == config
    assert ScoreConfig.from_manifest({}) == ScoreConfig()


def test_a_fitted_head_has_the_defaults_of_every_head() -> None:
    from model.prototypes import HeadConfig

    head, fit = asdict(HeadConfig(dim=4)), asdict(HeadFitConfig())
    assert {name: fit[name] for name in head.keys() & fit.keys() if name != "prototypes"} == {
        name: head[name] for name in ("init", "evidence", "tau", "scale")
    }
