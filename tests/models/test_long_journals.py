"""A run whose journal is long leaves a snapshot beside it, from which `fleet status` goes on."""

from __future__ import annotations

import json
from pathlib import Path

from fleet.report.journal_scan import LEAST_BYTES, NAME, read_snapshot
from fleet.report.standing import Look
from tests.live.support.ensembles import mlp, write_ensemble
from tests.live.support.processes import FLEET, run


def test_a_long_journal_has_a_snapshot_that_status_goes_on_from(tmp_path: Path) -> None:
    ensemble = write_ensemble(tmp_path, [mlp()])
    assert run(ensemble.plain("run"), tmp_path).code == 0
    journal = tmp_path / "run" / "journal.jsonl"
    assert not journal.with_name(NAME).exists(), "it is short"
    last = json.loads(journal.read_bytes().splitlines()[-1])
    line = json.dumps({"t": last["t"], "unix": last["unix"], "event": "of_another_version", "text": "x" * 100_000})
    with open(journal, "a") as file:
        file.writelines(f"{line}\n" for _ in range(LEAST_BYTES // 100_000 + 1))
    long = journal.stat().st_size
    ended = run([*FLEET, "extend", str(journal.parent), "mlp", "--epochs", "3"], tmp_path)
    assert ended.code == 0, ended.output
    snapshot = read_snapshot(journal)
    assert snapshot is not None and long < snapshot.offset <= journal.stat().st_size
    with_it = Look(journal.parent, lambda: 2e9).standing(whole=True)
    journal.with_name(NAME).unlink()
    assert with_it is not None and with_it == Look(journal.parent, lambda: 2e9).standing(whole=True)
    assert with_it.others[0].epochs == 3
