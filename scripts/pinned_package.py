"""Packages of PyPI that third_party/manifests/pypi.txt pins."""
import hashlib
import os
import subprocess
import sys

MANIFEST = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "third_party", "manifests",
                        "pypi.txt")


def pinned(package):
    """version and sha256"""
    with open(MANIFEST, encoding="utf-8") as lines:
        for line in lines:
            if line.split()[:1] == [package]:
                return line.split()[1:3]
    raise SystemExit("%s is not pinned in %s" % (package, MANIFEST))


def fetch(package, folder, options=(), file=None):
    """The path of the pinned file: downloaded into `folder` by pip with `options`, or `file`, which must be that one."""
    version, sha256 = pinned(package)
    if file is None:
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *options, "--dest", folder,
                        "%s==%s" % (package, version)], check=False)
        names = os.listdir(folder)
        if len(names) != 1:
            raise SystemExit("pip did not download %s %s" % (package, version))
        file = os.path.join(folder, names[0])
    with open(file, "rb") as content:
        if hashlib.sha256(content.read()).hexdigest() != sha256:
            raise SystemExit("%s is not the file that %s pins (sha256 differs)" % (file, MANIFEST))
    return file
