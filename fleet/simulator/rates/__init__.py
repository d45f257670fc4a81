"""Measured rates as simulations read them."""
