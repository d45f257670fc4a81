"""Batch scripts: what a site wants, filled into a template, and handed to its scheduler."""

from fleet.submit.script import Script, render
from fleet.submit.shape import NodeShape, WallTime
from fleet.submit.site import Site, SiteError, read_site
from fleet.submit.submission import SubmissionError, submit

__all__ = [
    "NodeShape",
    "Script",
    "Site",
    "SiteError",
    "SubmissionError",
    "WallTime",
    "read_site",
    "render",
    "submit",
]
