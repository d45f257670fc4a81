"""Examples of the scheduling tests may take long on a busy machine."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "scheduling", deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
settings.load_profile("scheduling")
