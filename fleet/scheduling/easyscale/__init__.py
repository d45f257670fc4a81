"""Devices of several kinds within a job and between jobs (EasyScale, SC'23)."""
