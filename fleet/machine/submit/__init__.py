"""Batch scripts: what a site wants, filled into a template, and handed to its scheduler."""

from fleet.machine.submit.placing import placed_script
from fleet.machine.submit.script import BatchScript, script_text
from fleet.machine.submit.shape import NodeShape, WallTime
from fleet.machine.submit.site import Site, SiteError, UnknownSiteError, read_site
from fleet.machine.submit.submission import SubmissionError, submit

__all__ = [
    "NodeShape",
    "BatchScript",
    "Site",
    "SiteError",
    "SubmissionError",
    "UnknownSiteError",
    "WallTime",
    "placed_script",
    "read_site",
    "script_text",
    "submit",
]
