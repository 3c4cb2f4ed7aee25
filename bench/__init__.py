"""Measurements, as ratios taken side by side. `python -m bench` runs the quick ones; `bench/gpu.py` takes minutes."""
