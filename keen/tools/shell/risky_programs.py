"""The programs that must never run unasked, and why; what is in no table is simply asked about."""

from __future__ import annotations

from typing import Final


def _because(reason: str, names: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), reason)


NEVER: Final[dict[str, str]] = {
    **_because("deletes", "rm unlink shred srm truncate"),
    **_because(
        "writes to disks",
        "dd fdisk sfdisk parted wipefs mkswap blkdiscard mkfs mke2fs hdparm losetup cryptsetup",
    ),
    **_because("ends processes", "kill pkill killall killall5 xkill skill"),
    **_because(
        "controls the machine's services",
        "shutdown reboot halt poweroff init telinit systemctl service launchctl initctl rc-service "
        "loginctl update-rc.d chkconfig",
    ),
    **_because(
        "runs with other rights",
        "sudo su doas pkexec runuser setpriv run0 gosu chroot nsenter unshare capsh",
    ),
    **_because("stays after this session", "crontab at batch atd systemd-run"),
    **_because(
        "reaches the network",
        "curl wget ssh scp sftp rsync nc ncat netcat socat telnet ftp tftp lftp ping ping6 fping "
        "dig nslookup host drill whois traceroute tracepath mtr nmap aria2c http https xh w3m "
        "lynx links elinks websocat rclone s3cmd mail mailx sendmail mosh openssl getent",
    ),
    **_because(
        "changes the system",
        "mount umount swapon swapoff modprobe insmod rmmod sysctl iptables ip6tables nft ufw "
        "useradd userdel usermod groupadd passwd chsh chfn chpasswd visudo setcap timedatectl "
        "hostnamectl update-alternatives ldconfig",
    ),
    **_because(
        "holds or shows secrets",
        "gpg gpg2 security secret-tool pass keyring ssh-add ssh-keygen ssh-agent op bw vault "
        "env printenv",
    ),
    **_because(
        "changes what later words mean",
        "alias unalias hash enable bind complete compopt shopt set fc declare typeset "
        "readonly export local unset",
    ),
    **_because("runs text as a command", "eval exec trap builtin coproc parallel"),
    **_because("is a pager or browser that runs commands", "xdg-open osascript"),
}
"""Program -> the end of the sentence "NAME …"."""

SOURCES: Final = frozenset({"source", "."})
RUN_TEXT: Final = frozenset({"su", "script", "flock", "runuser"})
"""Beside shells: with `-c` they run a text."""
FIND_RUNS: Final = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
SHELLS: Final = frozenset({
    "sh", "bash", "dash", "zsh", "ksh", "mksh", "fish", "ash", "csh", "tcsh", "rbash", "pwsh",
})  # fmt: skip
INTERPRETERS: Final = frozenset({
    "python", "python2", "python3", "perl", "ruby", "node", "nodejs", "deno", "bun", "php", "lua",
    "awk", "gawk", "mawk", "nawk", "tclsh", "R", "Rscript", "julia", "osascript", "irb", "ghci",
    "vim", "vi", "nvim", "ex", "ed", "emacs", "nano", "gdb", "lldb", "make", "gmake", "sqlite3",
    "psql", "mysql", "jq",
})  # fmt: skip
"""Never suggested as a prefix to be allowed."""

PACKAGE_RUNNERS: Final = frozenset({
    "npx", "pnpx", "bunx", "uvx", "pipx", "uv", "poetry", "pdm", "pipenv", "hatch", "docker",
    "podman",
})  # fmt: skip
RUNNING_WORDS: Final = frozenset({"exec", "x", "dlx", "create", "init", "run-script"})
"""Second words that make a package manager run what is named next."""

WRAPPERS: Final[dict[str, str]] = {
    "env": "uCS",
    "nice": "n",
    "ionice": "cnpPu",
    "nohup": "",
    "setsid": "",
    "stdbuf": "ioe",
    "timeout": "ks",
    "gtimeout": "ks",
    "time": "of",
    "gtime": "of",
    "command": "",
    "builtin": "",
    "exec": "a",
    "xargs": "adEeIiLlnPs",
    "watch": "ndq",
    "strace": "eopsuaOSIE",
    "ltrace": "eopsu",
    "taskset": "",
    "chrt": "",
    "caffeinate": "tw",
    "unbuffer": "",
    "sudo": "ugpChrtT",
    "doas": "uC",
    "busybox": "",
    "toybox": "",
    "flock": "wE",
    "coproc": "",
    "unshare": "SGR",
    "chroot": "",
    "parallel": "jSNLnI",
}
"""Programs that run the command in their arguments -> their short options that take a value."""

WRAPPER_LONG: Final = frozenset({
    "--adjustment", "--chdir", "--class", "--classdata", "--error", "--group", "--host", "--input",
    "--kill-after", "--max-args", "--output", "--signal", "--unset", "--user",
})  # fmt: skip
"""Long options of wrappers whose value is the next word, where it is not behind a `=`."""

WRAPPER_OPERANDS: Final = {
    "timeout": 1, "gtimeout": 1, "taskset": 1, "chrt": 1, "flock": 1, "chroot": 1,
}  # fmt: skip
"""Words of their own that stand before the command."""

DANGEROUS_OPTIONS: Final[dict[str, tuple[str, ...]]] = {
    "find": (
        "-delete", "-exec", "-execdir", "-ok", "-okdir", "-fprint", "-fprint0", "-fprintf", "-fls",
    ),
    "sort": ("-o", "--output", "--compress-program"),
    "rg": ("--pre", "--hostname-bin"),
    "tree": ("-o", "-R"),
    "man": ("-P", "-H", "--pager", "--html"),
    "date": ("-s", "--set"),
    "chmod": ("-R", "--recursive"),
    "chown": ("-R", "--recursive"),
    "chgrp": ("-R", "--recursive"),
    "tar": ("--to-command", "--checkpoint-action", "-I", "--use-compress-program", "--rsh-command"),
    "zip": ("-T", "-TT", "--unzip-command"),
    "npm": ("publish", "unpublish", "login", "token"),
    "yarn": ("publish",),
    "pnpm": ("publish",),
    "cargo": ("publish", "login", "yank"),
    "twine": ("upload",),
    "gh": ("delete", "token", "secret"),
}  # fmt: skip
"""Words after the name that make it dangerous; long options count in each abbreviation."""

GIT_EXECUTES: Final = (
    "--output", "--ext-diff", "--textconv", "--upload-pack", "--receive-pack", "--exec", "--upload",
    "--config-env", "--git-dir", "--work-tree", "--exec-path", "--open-files-in-pager",
)  # fmt: skip
GIT_HARMLESS_GLOBALS: Final = frozenset({
    "--no-pager", "-P", "-p", "--paginate", "--no-replace-objects", "--literal-pathspecs",
    "--no-optional-locks", "--no-lazy-fetch", "--icase-pathspecs", "--glob-pathspecs",
    "--noglob-pathspecs", "--no-advice",
})  # fmt: skip
GIT_SHOWS: Final = frozenset({
    "annotate", "blame", "diff", "grep", "hash-object", "log", "show", "whatchanged",
})  # fmt: skip
"""Subcommands that bring what is in files before the model."""
GIT_NEVER: Final[dict[str, str]] = {
    **_because("deletes or discards work", "clean rm restore filter-branch filter-repo prune gc"),
    **_because("can change what git runs", "config"),
    **_because("rewrites references", "update-ref symbolic-ref replace"),
    **_because("runs commands", "difftool mergetool daemon instaweb send-email credential"),
}
GIT_NEVER_WORDS: Final[dict[str, tuple[str, ...]]] = {
    "stash": ("drop", "clear"),
    "reset": ("--hard", "--merge", "--keep"),
    "branch": ("-d", "-D", "--delete", "-f", "--force", "-M"),
    "tag": ("-d", "--delete", "-f", "--force"),
    "push": ("-f", "--force", "--force-with-lease", "--mirror", "--delete", "-d", "--prune"),
    "checkout": ("-f", "--force", "--", ".", "--ours", "--theirs", "-p"),
    "switch": ("-f", "--force", "--discard-changes", "-C"),
    "reflog": ("expire", "delete"),
    "worktree": ("remove", "prune"),
    "remote": ("remove", "rm", "set-url"),
    "submodule": ("foreach", "deinit"),
    "bisect": ("run",),
    "rebase": ("-x", "--exec", "--skip"),
    "grep": ("-O",),
    "clone": ("-u", "-c", "--config", "--template"),
    "fetch": ("-f", "--force", "--prune", "-p"),
    "notes": ("remove", "prune"),
    "commit": ("--amend",),
    "apply": ("--unsafe-paths",),
}
"""Words of a subcommand that make it discard work or execute."""

WRITERS: Final = frozenset({
    "cp", "mv", "ln", "install", "tee", "touch", "mkdir", "rmdir", "chmod", "chown", "chgrp",
    "patch", "tar", "unzip", "rsync", "sed", "truncate", "rm", "unlink", "shred", "dd",
    "mktemp", "mkfifo", "split", "csplit",
})  # fmt: skip
"""Programs that change the files they are given."""
