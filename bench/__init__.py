"""Measurements, each as a ratio to a yardstick taken in the same run: ``./do bench``."""
