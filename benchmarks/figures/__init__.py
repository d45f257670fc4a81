"""ElasticFlow's Figures 9 to 12, one a file (Gu et al., ASPLOS'23)."""
