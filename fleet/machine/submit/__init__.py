"""Batch scripts: what a site wants, filled into a template, and handed to its scheduler."""

from fleet.machine.submit.placing import place
from fleet.machine.submit.script import Script, render
from fleet.machine.submit.shape import NodeShape, WallTime
from fleet.machine.submit.site import Site, SiteError, UnknownSiteError, read_site
from fleet.machine.submit.submission import SubmissionError, submit

__all__ = [
    "NodeShape",
    "Script",
    "Site",
    "SiteError",
    "SubmissionError",
    "UnknownSiteError",
    "WallTime",
    "place",
    "read_site",
    "render",
    "submit",
]
