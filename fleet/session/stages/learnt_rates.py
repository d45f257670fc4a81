"""Keeps the rates that training has told, so that the run's next session and other runs begin with them."""

from __future__ import annotations

import platform
from collections.abc import Collection
from datetime import datetime, timezone

from fleet.journal.directory import RunDirectory
from fleet.journal.whole_files import RateProfile
from fleet.session.stages.opened import Opened


def keep_learnt(opened: Opened, guessed: Collection[str]) -> None:
    """Add to the run's profile the rates of those of the jobs that somebody has timed by now.

    Args:
        guessed: jobs that began with guesses.
    """
    ledger, runtime, models = opened.books.ledger, opened.rank.runtime, opened.rank.cluster.rated
    rates, names = {}, {}
    for job in (ledger.jobs[name] for name in guessed):
        for kind, curve in ({} if job.guessed else job.curves).items():
            key = runtime.fingerprint(job.name, models[kind])
            rates[key], names[key] = curve.measured, job.name
    if rates:
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        add_to_profile(RateProfile(platform.node(), now, rates, names), opened.output.directory)


def add_to_profile(profile: RateProfile, directory: RunDirectory) -> RateProfile:
    """Add rates to those that the run knows already; returns all of them."""
    if directory.profile.exists():
        profile = RateProfile.read(directory.profile).updated(profile)
    profile.write(directory.profile)
    return profile
