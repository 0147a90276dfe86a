"""Links that an agent leaves for whoever grades: scripts for its workspace."""
LINKS = r"""
import os
os.chdir("/workspace")
def link(to, *names):
    for n in names:
        os.symlink(to, n)
A = "/openenvd/assets"
# what stays
link("hello", "s-file"); link("/workspace/dir", "s-dir")
link("/usr/bin/python3", "s-python"); link("dir/new", "s-none")
link("/usr/none", "s-none2"); link("none/../none2", "s-none3")
link("s-file", "s-chain"); link("/dev/null", "s-null")
os.makedirs("sub/deep"); link("../../hello", "sub/deep/s-up")
link("../hello", "sub/s-up"); link("/usr/lib", "s-lib")
# what does not
link(A + "/solution.txt", "x-direct"); link("x-direct", "x-chain")
link("../openenvd/assets/solution.txt", "x-up")
link("../../../../../.." + A, "x-dir"); link("x-dir/solution.txt", "w-via")
link("/", "x-root"); link("..", "x-above"); link("/openenvd", "x-openenvd")
link("/proc/self/root" + A + "/solution.txt", "x-magic")
link("/proc/self/fd/3", "x-fd"); link("/dev/fd/3", "x-devfd")
link("/dev/stdin", "x-stdin"); link("/dev", "x-dev"); link("/proc", "x-proc")
link("/proc/self/cwd/hello", "x-cwd"); link("x-loop", "x-loop")
link("/tmp/made", "x-tmp"); link("/tmp", "x-tmp2"); link("/home", "x-home")
link("/home/oracle/made", "x-home2"); link("/dev/shm/made", "x-shm")
link("none/../../openenvd/assets/solution.txt", "x-later")
link("hello/../../openenvd/assets/solution.txt", "x-file")
link("s-lib/../../openenvd/assets/solution.txt", "x-lib")
link("../openenvd/assets/solution.txt", "sub/s-copied")
link("../proc", "sub/s-proc")
link("n" * 300, "x-long"); link("gone-1/../../tmp/x", "x-gone")
link(A + "/none", "x-none"); link(A, b"x-\xff\n")
os.makedirs("sub/shut"); link(A, "sub/shut/x-shut"); os.chmod("sub/shut", 0)
os.rename("gone", "kept"); link(A + "/solution.txt", "gone")
"""

# Each is none when it is looked at, and the oracle makes it one.
LATER = r"""
set -e; cd /workspace
mkdir -p p/q/r; ln -s p/q/r build; ln -s build/../.. up
ln -s up/openenvd/assets/solution.txt rebuilt
mkdir -p project/sub; ln -s ../.. project/sub/up
ln -s sub/up/openenvd/assets/solution.txt project/copied
mkdir t; ln -s /openenvd/assets/solution.txt t/unpacked
ln -s /openenvd t/all; tar cf t.tar t; rm -r t
"""
