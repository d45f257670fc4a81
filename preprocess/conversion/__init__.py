"""Conversion of data sets into this project's HDF5 layout."""
