"""Kinds of sequence: what an id is made of, how it is read back, and what each kind promises. No I/O and no clock of its
own: whoever asks passes the time in."""
