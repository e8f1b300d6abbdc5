"""Tests of `scripts/real-power-cut` and `scripts/real-disk`, without hardware."""
