"""Runs policies over predicted machines: the second driver of the policies that drive live runs.

Shared with live runs are the transitions of jobs, `State` and `Plan`, when a policy is asked (`PolicyTrigger`), what
stands around it (`driven`), the check of what a job is given (`check_given`), and who reads a lane together. Of its own
are the calendar and the books: an event costs what it changes, and not what there is, since a million jobs are played
in a minute. So devices are checked as they are given, where a live run looks at the whole of each plan first.
"""
