"""The exit codes of fleet's commands and ranks; scripts and schedulers rely on them. It imports nothing."""

DONE = 0
FAILED = 1  # something went wrong; the report or the message says what
BAD_INPUT = 2  # a person can mend it; the message says how
LOST = 70  # ranks or a node were lost; the same command goes on
STOPPED = 75  # stopped early, on purpose; the same command goes on
