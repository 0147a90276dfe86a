"""TAP for the integration tests."""
import sys

count = 0
failed = 0


def ok(good, what, detail=None):
    global count, failed
    count += 1
    print("ok" if good else "not ok", count, "-", what, flush=True)
    if not good:
        failed += 1
        # prove shows what goes there
        diag(f"failed: {what}", sys.stderr)
        if detail is not None:
            diag(detail, sys.stderr)
    return bool(good)


def eq(got, want, what):
    return ok(got == want, what, f"     got: {got!r}\nexpected: {want!r}")


def none(problems, what):
    """Passes when the list is empty; else shows its first forty."""
    more = [f"and {len(problems) - 40} more"] if len(problems) > 40 else []
    return ok(not problems, what, "\n".join(problems[:40] + more))


def skip(what, why):
    global count
    count += 1
    print("ok", count, "-", what, "# SKIP", why, flush=True)


def skip_all(why):
    print("1..0 # SKIP", why)
    sys.exit(0)


def diag(text, to=None):
    for line in str(text)[:4000].splitlines():
        print("#", line, file=to, flush=True)


def done():
    print(f"1..{count}", flush=True)
    sys.exit(1 if failed else 0)
