"""Reads files of data sets from untrusted publishers: archives without extraction, downloads with a hash
check, pickles without code."""
