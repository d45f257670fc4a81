"""The simulator tests' own modules stand in support/; their examples may take long on a busy machine."""

import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent / "support"))

settings.register_profile("simulator", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("simulator")
