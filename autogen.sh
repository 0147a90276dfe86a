#!/bin/sh
# Makes configure from configure.ac; needed once in a checkout from git.
set -eu
cd "$(dirname "$0")"
mkdir -p m4
exec autoreconf --install --force --warnings=all
