"""Minimum satisfactory shares and promises (ElasticFlow, ASPLOS'23)."""
