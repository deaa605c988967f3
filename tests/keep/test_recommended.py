"""`auditor filter --recommended`: its limits, a stricter limit of the user, and audits that lack an estimate."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from auditor.cli import cli
from auditor.keep.recommended import LOSS
from auditor.keep.thresholds import ThresholdError
from auditor.python_api import Audit
from tests.support.synthetic import write_audit


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_audit(tmp_path_factory.mktemp("audit"), 3000)


def preview(audit: Path, *options: str) -> dict[str, Any]:
    result = CliRunner().invoke(cli, ["filter", str(audit), "--recommended", "--dry-run", "--json", *options])
    assert result.exit_code == 0, result.output
    assert "recommended: p_mismatch <= 0.5, uncertainty_text <= " in result.stderr
    effects: dict[str, Any] = json.loads(result.stdout)
    return effects


def test_it_limits_p_mismatch_and_the_loss_by_uncertainty(audit: Path) -> None:
    with Audit(audit) as opened:
        rules = opened.recommend_rules()
        cut = opened.measure_cuts("uncertainty_text", [rules["max_uncertainty_text"]])[0]
        kept = opened.keep(**rules).to_pandas(["p_mismatch", "uncertainty_text"])
        naive = opened.count(
            "status = 'ok' AND coalesce(p_mismatch <= 0.5, TRUE) "
            f"AND coalesce(uncertainty_text <= CAST({rules['max_uncertainty_text']} AS FLOAT), TRUE)"
        )
    assert cut.removed and cut.lost_high is not None and cut.lost_high <= LOSS
    assert len(kept) == naive == preview(audit)["kept"] and kept["p_mismatch"].max() <= 0.5


def test_a_stricter_limit_of_the_user_stays(audit: Path) -> None:
    with Audit(audit) as opened:
        rules = opened.recommend_rules()
        strict = opened.keep(**{**rules, "max_p_mismatch": 0.1}).count
    assert preview(audit, "--max-p-mismatch", "10%")["kept"] == strict < preview(audit)["kept"]
    assert preview(audit, "--max-p-mismatch", "0.9")["kept"] == preview(audit)["kept"]


def test_rows_that_the_encoder_cannot_judge_stay(tmp_path: Path) -> None:
    [file] = (write_audit(tmp_path, 500) / "samples").iterdir()
    table = pq.read_table(file)
    place = table.schema.get_field_index("p_mismatch")
    nothing = pa.nulls(len(table), pa.float32())
    pq.write_table(table.set_column(place, table.schema.field(place), nothing), file)
    with Audit(tmp_path) as opened:
        rules = opened.recommend_rules()
        clear = opened.count(f"status = 'ok' AND uncertainty_text <= CAST({rules['max_uncertainty_text']} AS FLOAT)")
        assert opened.keep(**rules).count == clear > 0


def test_an_audit_without_failures_is_limited_by_p_mismatch_only(audit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ThresholdError("no row has uncertainty_text and better_media")

    monkeypatch.setattr("auditor.keep.recommended.choose_uncertainty_cut", refuse)
    with Audit(audit) as opened:
        assert opened.recommend_rules() == {"max_p_mismatch": 0.5}
