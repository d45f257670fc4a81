"""Policies: each module has those of one kind; `fleet.spec.policies` finds them by name."""
