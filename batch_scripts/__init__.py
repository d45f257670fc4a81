"""Templates of batch scripts, and what is known of sites; `fleet submit` fills them in."""
