"""The rig: an accelerator for tests, which lives in the host's memory, is as late as it may be, and forgives nothing.

`building` compiles it; with its folder on PYTHONPATH, `import torch` knows the device "rig" (see `package`).
"""
