"""Secrets are told as ***."""

from __future__ import annotations

import pytest

from fleet.journal.whole_files import is_secret, masked_uri


@pytest.mark.parametrize(
    "text, told",
    [
        ("http://me:pass@host:5000/x", "http://me:***@host:5000/x"),
        ("postgresql://me:p@ss/w:rd@host/db", "postgresql://me:***@host/db"),
        ("store http://me:a@b: refused by http://:c@d", "store http://me:***@b: refused by http://:***@d"),
        ("http://host/x?a=1&api_token=abc&b=2#end", "http://host/x?a=1&api_token=***&b=2#end"),
        ("http://host:5000/a@b", "http://host:5000/a@b"),
        ("file:///home/me/mlruns", "file:///home/me/mlruns"),
        ("ssh://git@host/x", "ssh://git@host/x"),
    ],
)
def test_passwords_and_tokens_of_uris_are_masked(text: str, told: str) -> None:
    assert masked_uri(text) == told


def test_secrets_are_known_by_their_names() -> None:
    secret = ("HF_TOKEN", "wandb-api-key", "DbPassword", "CLIENT_SECRET", "MYSQL_PASSWD")
    assert all(map(is_secret, secret))
    assert not any(map(is_secret, ("OMP_NUM_THREADS", "PATH", "MLFLOW_TRACKING_URI")))


def test_what_mlflow_s_store_is_told_has_no_password(capfd: pytest.CaptureFixture[str]) -> None:
    store = pytest.importorskip("fleet.report.trackers")
    from mlflow.exceptions import MlflowException

    with (
        pytest.raises(store.StoreError, match=r"http://me:\*\*\*@host: no") as caught,
        store._mendable("http://me:pw@host"),
    ):
        raise MlflowException("no http://me:pw@host")
    assert "pw" not in str(caught.value)
