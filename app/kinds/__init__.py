"""The kinds of sequence: what an id is made of, how it is read back, and what each kind promises.

Nothing here does I/O or reads a clock. The caller passes the time in.
"""
