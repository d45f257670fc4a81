"""Examples of the simulator tests may take long on a busy machine."""

from hypothesis import HealthCheck, settings

settings.register_profile("simulator", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("simulator")
