"""A user's own functions behind `script.py`: found, called with what they ask for, their faults and results made presentable.

`functions` loads them, `context` is what they may ask for, `defaults` stands in for missing ones, `stacking` joins their
inputs, `answers` writes their results, `faults` words their exceptions.
"""
