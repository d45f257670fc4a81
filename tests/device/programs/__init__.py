"""What tests do on the rig, each in a process of its own (see `tests.device.rig`)."""
