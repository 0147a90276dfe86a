#!/bin/sh
# The oracle of the counter: it sees a copy of the workspace, and nobody sees it.
[ "$(cat /workspace/counter)" = 3 ] && echo solved && exit 0
echo "the counter is $(cat /workspace/counter)"
exit 1
