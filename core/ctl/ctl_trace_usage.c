#include "config.h"

#include "ctl/ctl_trace_usage.h"

const char ctl_trace_usage[] =
    "usage: sallyportctl trace [--all | --train | --json] [--stats] "
    "[--verify]\n"
    "                          [--state-dir DIR] FILE | ID\n";
