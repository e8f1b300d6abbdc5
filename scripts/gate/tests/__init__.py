"""Tests of the gate itself: python3 -m unittest discover -s scripts/gate -t scripts"""
