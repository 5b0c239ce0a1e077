"""Coverage-guided fuzzing of everything that turns a caller's bytes into records: `python -m fuzz`, or `make fuzz`.

``bodies`` and ``wire`` say what must hold for any bytes, ``targets`` is the table of both, ``corpus`` keeps the inputs that
reached something new; tests/unit replays them without a fuzzer.
"""
