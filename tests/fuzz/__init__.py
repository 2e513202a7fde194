"""A fuzzer of the command line: valid inputs of every kind, mutated by their structure, each run in a fork.

cd tests && python -m fuzz.runner 20000 7        # cases, seed; prints what breaks, and how to see it again
"""
