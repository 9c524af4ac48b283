"""Ways out of the sandbox that were tried elsewhere: each leaves a mark where it must not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.test_appeal import Desk, Person, base, desk, pytestmark

__all__ = ["base", "desk", "pytestmark"]

ESCAPES = [
    "cd /proc/1/root{base} && echo x > mark",
    "cd /proc/self/cwd/../ && echo x > mark",
    "for fd in /proc/*/fd/*; do echo x > $fd/mark; echo x > $fd/../mark; done 2>/dev/null",
    "umount -l {base}; umount -l /; umount /run; echo x > {base}/mark",
    "mount -t tmpfs none {root}/.git; echo x > {root}/.git/mark",
    "mount --move {root} /mnt; echo x > {base}/mark",
    "unshare -r -m sh -c 'mount --bind / /mnt; "
    "mount -o remount,rw,bind /mnt; echo x > /mnt{base}/mark'",
    "unshare -U -r -p -f --mount-proc sh -c 'echo x > /proc/1/root{base}/mark'",
    "unshare -r chroot / sh -c 'echo x > {base}/mark'",
    'python3 -c \'import os; os.chroot("."); os.chdir("../../.."); open("{base}/mark","w")\'',
    "bwrap --bind / / --dev /dev sh -c 'echo x > {base}/mark'",
    "bwrap --dev-bind / / --unshare-user --uid 0 sh -c 'echo x > {base}/mark'",
    "setpriv --reuid=0 --clear-groups sh -c 'echo x > {base}/mark'; su -c 'echo x > {base}/mark'",
    "sudo -n sh -c 'echo x > {base}/mark'; pkexec sh -c 'echo x > {base}/mark'",
    "echo '|/bin/sh -c \"echo x > {base}/mark\"' > /proc/sys/kernel/core_pattern; kill -SEGV $$",
    "echo {base}/evil > /proc/sys/kernel/modprobe; echo {base}/evil > /sys/kernel/uevent_helper",
    "mkdir /sys/fs/cgroup/x; echo 1 > /sys/fs/cgroup/x/notify_on_release; echo x > {base}/mark",
    "mknod disk b 8 0 || mknod disk b 253 0; dd if=disk of=mark count=1; cp mark {base}/mark",
    "ln -s {base} out; echo x > out/mark; rm out",
    "mkdir d; ln -s {base}/mark d/l; cp /etc/hostname d/l; tee d/l < /etc/hostname",
    "mv .git gone; mkdir .git; echo x > .git/mark; "
    "ln -s {base} .git/objects; echo x > .git/objects/mark",
    "rm -rf .git; git init -q .; echo x > .git/mark",
    "echo x > .GIT/mark; mkdir -p .git/hooks && echo x > .git/hooks/mark",
    "gdb -p 1 -batch -ex 'call system(\"echo x > {base}/mark\")'; strace -p 1 -o {base}/mark",
    "kill -9 $PPID; (sleep 0.2; echo x > {base}/mark) & disown",
    "(setsid nohup sh -c 'sleep 0.3; echo x > {base}/mark' >/dev/null 2>&1 &)",
    "perl -e 'ioctl(STDIN, 0x5412, \"x\")'; script -qc 'echo x > {base}/mark' /dev/null",
    "curl --unix-socket /var/run/docker.sock -X POST http://x/containers/create -o {base}/mark",
    "systemd-run --user sh -c 'echo x > {base}/mark'; busctl list > {base}/mark",
    "chmod 777 {base}; chown 0 {base}; setfacl -m o::rwx {base}; touch {base}/mark",
    "ip link set lo up; nsenter -t 1 -a sh -c 'echo x > {base}/mark'; "
    "nsenter -t $PPID -m touch {base}/mark",
]


@pytest.mark.timeout(30)
@pytest.mark.parametrize("command", ESCAPES)
async def test_no_way_out_leaves_a_mark(command: str, desk: Desk) -> None:
    before = snapshot(desk.base)

    await desk.run(command.format(base=desk.base, root=desk.root), Person([]), timeout_seconds=8)

    assert snapshot(desk.base) == before


def snapshot(place: Path) -> dict[str, tuple[int, bytes]]:
    """Everything that no command of the sandbox may change: modes and contents."""
    inside = place / "work"
    found: dict[str, tuple[int, bytes]] = {}
    for path in (place, *place.rglob("*")):
        is_free = path.is_relative_to(inside) and not path.is_relative_to(inside / ".git")
        if is_free or path.is_relative_to(place / ".cache/keen"):
            continue
        content = path.read_bytes() if path.is_file() else b""
        found[str(path)] = (path.lstat().st_mode, content)
    return found
