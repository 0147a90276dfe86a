#!/usr/bin/env python3
"""Verifies the hash chain of a sallyport trace: verify_trace.py FILE [PREV].

A record ends in ,"prev":"<64 hex>","hash":"<64 hex>"} where hash is the
SHA-256 of the line's bytes before ,"hash":" and prev is the hash of the
record before: 64 zeros in the first, or for a file that goes on after a roll
the last hash of that roll (taken from the line itself unless PREV is given,
and told at the end).

A seal beside the file is held against it, but for its signature: sallyportctl
trace --verify checks that, too.
"""
import hashlib
import json
import os
import sys

if len(sys.argv) not in (2, 3) or sys.argv[1] in ("-h", "--help"):
    sys.exit("usage: verify_trace.py FILE [PREV]")
trace = os.path.realpath(sys.argv[1])  # the seal lies beside the file itself
seal = {}
first = "0" * 64
name = trace.removesuffix(".jsonl") + ".seal"
if os.path.exists(name):
    with open(name, "rb") as f:
        seal = json.load(f)
size = 0
prev = sys.argv[2] if len(sys.argv) > 2 else None
with open(trace, "rb") as f:
    for number, line in enumerate(f, 1):
        if not line.endswith(b"\n"):
            print(f"line {number}: torn, skipped")
            break
        body, end = line[:-76], line[-76:-1]
        digest = hashlib.sha256(body).hexdigest()
        if number == 1 and end[:9] != b',"hash":"':
            sys.exit("line 1: it begins no chain: it does not end in prev "
                     "and hash")
        if end != b',"hash":"%s"}' % digest.encode():
            sys.exit(f"line {number}: its bytes are not those that were "
                     "hashed")
        record = json.loads(line)
        if prev is not None and record["prev"] != prev:
            sys.exit(f"line {number}: it does not follow the line before")
        if number == 1:
            first = record["prev"]
        prev = digest
        size += len(line)
        if number == seal.get("turns") and (
                (size, digest) != (seal["bytes"], seal["last_hash"])):
            sys.exit(f"line {number}: its end is not what {name} says")
if size < seal.get("bytes", 0):
    sys.exit(f"it is shorter than {name} says")
if len(sys.argv) < 3 and first != "0" * 64:
    print("line 1: it begins no chain: it goes on from a file that ends in "
          f"{first}")
print(f"good: {prev}")
