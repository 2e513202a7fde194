"""One file, one family: each holds `FAMILY` (see ../family.py and docs/proving.md)."""
