"""The programs that may run unasked because they only read, each with the options it may have.

An option that is missing here writes, executes, follows links, reads names from a file, never
ends, or was simply not needed: the command is then asked about. Letters are those on which GNU,
BSD and macOS agree or where the other meaning is harmless too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Operands: TypeAlias = Literal["paths", "texts", "pattern"]
"""`pattern`: the first operand is text, the others are paths."""


@dataclass(frozen=True, slots=True)
class Plain:
    """What one program may be given.

    `flags`: short options without a value; `valued`: short options with one; `long` and
    `long_valued` alike, spelled out. All option values are plain text, never paths.
    """

    flags: str = ""
    valued: str = ""
    long: frozenset[str] = frozenset()
    long_valued: frozenset[str] = frozenset()
    operands: Operands = "paths"
    least: int = 0
    most: int = 10_000
    has_number: bool = False
    """`-5` means five lines."""
    shows_content: bool = True
    """False: only names, sizes and dates are shown, so `.env` may be named."""
    takes_directories: bool = True
    """False: given a directory it would read what is in it, so only files are plain."""
    recursive: str = ""
    """Short options and `--long` ones with which it reads whole trees."""
    is_recursive: bool = False


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_LINES: Final = Plain(
    "qvz",
    "nc",
    long=_words("quiet silent verbose zero-terminated"),
    long_valued=_words("lines bytes"),
    has_number=True,
)
_SUMS: Final = Plain("bt", long=_words("binary text tag"))
_TEXT_ONLY: Final = Plain(operands="texts", shows_content=False)
_GREP: Final = Plain(
    "EFGPiyvwxcloLnHhsqabzrITuV",
    "emABC",
    long=_words(
        "extended-regexp fixed-strings basic-regexp perl-regexp ignore-case no-ignore-case "
        "invert-match word-regexp line-regexp count color colour files-with-matches "
        "files-without-match only-matching quiet silent no-messages byte-offset with-filename "
        "no-filename line-number initial-tab null text recursive version help"
    ),
    long_valued=_words(
        "regexp max-count after-context before-context context include exclude exclude-dir "
        "color colour label binary-files"
    ),
    operands="pattern",
    has_number=True,
    recursive="r --recursive",
)

PLAIN: Final[dict[str, Plain]] = {
    # Names and places
    "ls": Plain(
        "1aAbBcCdFgGhHiklmnNopqQrRsStuUvxX",
        long=_words(
            "all almost-all author escape directory classify full-time group-directories-first "
            "no-group human-readable si inode size numeric-uid-gid file-type literal reverse "
            "recursive color version help"
        ),
        long_valued=_words("color sort time time-style format ignore hide block-size width"),
        shows_content=False,
    ),
    "pwd": Plain("LP", operands="texts", most=0, shows_content=False),
    "cd": Plain("LP", most=1, least=1, shows_content=False),
    "stat": Plain(
        "Lt",
        "c",
        long=_words("dereference terse version help"),
        long_valued=_words("format printf"),
        shows_content=False,
    ),
    "file": Plain(
        "bihLN0",
        long=_words("brief mime mime-type mime-encoding dereference no-pad print0 version help"),
    ),
    "du": Plain(
        "abchHkmlsSxi0",
        "dtB",
        long=_words(
            "all apparent-size bytes total summarize human-readable si separate-dirs "
            "one-file-system inodes null version help"
        ),
        long_valued=_words("max-depth threshold exclude block-size time time-style"),
        shows_content=False,
    ),
    "df": Plain(
        "ahHiklmPT",
        long=_words("all human-readable si inodes local portability print-type total"),
        shows_content=False,
    ),
    "tree": Plain(
        "adfpsugDhCFNQqrtvUASin",
        "LPI",
        long=_words("dirsfirst noreport inodes device prune du si version help"),
        long_valued=_words("filelimit charset"),
        shows_content=False,
    ),
    "basename": Plain("az", "s", operands="texts", shows_content=False),
    "dirname": Plain("z", operands="texts", shows_content=False),
    "realpath": Plain("emLPsqz", shows_content=False),
    "readlink": Plain("femnqsvz", shows_content=False),
    "which": Plain("a", operands="texts", shows_content=False),
    "type": Plain("atpP", operands="texts", shows_content=False),
    # Content
    "cat": Plain("AbeEnstTuv", long=_words("number number-nonblank show-all squeeze-blank")),
    "head": _LINES,
    "tail": _LINES,
    "wc": Plain("clmLw", long=_words("bytes chars lines max-line-length words")),
    "nl": Plain("p", "bdfhilnsvw"),
    "tac": Plain("b"),
    "rev": Plain(),
    "fold": Plain("bs", "w"),
    "paste": Plain("sz", "d"),
    "cut": Plain(
        "snz",
        "bcdf",
        long=_words("only-delimited complement zero-terminated"),
        long_valued=_words("bytes characters delimiter fields output-delimiter"),
    ),
    "comm": Plain("123z", long=_words("total check-order nocheck-order"), least=2, most=2),
    "join": Plain("i", "12aejotv", least=2, most=2),
    "sort": Plain(
        "bdfghinrRsuVcCmMz",
        "kt",
        long=_words(
            "ignore-leading-blanks dictionary-order ignore-case general-numeric-sort "
            "human-numeric-sort numeric-sort version-sort month-sort reverse stable unique check "
            "merge zero-terminated"
        ),
        long_valued=_words("key field-separator"),
    ),
    "uniq": Plain(
        "cdDuiz",
        "fsw",
        long=_words("count repeated unique ignore-case zero-terminated"),
        long_valued=_words("skip-fields skip-chars check-chars"),
        most=1,  # a second one is written
    ),
    "column": Plain("tx", "sc"),
    "tr": Plain("cCdst", operands="texts", least=1, most=2, shows_content=False),
    "diff": Plain(
        "uqwBbiaNyspdtT",
        "UCW",
        long=_words(
            "unified brief ignore-all-space ignore-space-change ignore-blank-lines ignore-case "
            "text new-file side-by-side report-identical-files show-c-function minimal "
            "suppress-common-lines color version help"
        ),
        long_valued=_words("unified context width color label"),
        least=2,
        most=2,
        takes_directories=False,
    ),
    "cmp": Plain("bls", "n", long=_words("print-bytes verbose quiet silent"), least=1, most=2),
    "md5sum": _SUMS,
    "sha1sum": _SUMS,
    "sha256sum": _SUMS,
    "sha512sum": _SUMS,
    "b2sum": _SUMS,
    "cksum": Plain(),
    "shasum": Plain("bt", "a"),
    "od": Plain("bcdoxv", "AjNt"),
    "hexdump": Plain("Cbcdovx", "ns"),
    "xxd": Plain("aCeEiup", "clsg", most=1),  # a second one is written
    "grep": _GREP,
    "egrep": _GREP,
    "fgrep": _GREP,
    "rg": Plain(
        "inclHIvwxSsFNoqUP0ap",
        "egtTmABCMjr",
        long=_words(
            "ignore-case line-number no-line-number count count-matches files "
            "files-with-matches files-without-match with-filename no-filename invert-match "
            "word-regexp line-regexp smart-case case-sensitive fixed-strings only-matching quiet "
            "multiline multiline-dotall pcre2 null text heading no-heading column vimgrep json "
            "stats trim pretty no-config type-list passthru no-messages version help"
        ),
        long_valued=_words(
            "regexp glob iglob type type-not max-count after-context before-context context "
            "max-columns max-depth max-filesize color colors sort sortr threads replace "
            "context-separator engine"
        ),
        operands="pattern",
        is_recursive=True,
    ),
    # The machine
    "true": _TEXT_ONLY,
    "false": _TEXT_ONLY,
    ":": _TEXT_ONLY,
    "whoami": Plain(operands="texts", most=0, shows_content=False),
    "id": Plain("unGgrz", operands="texts", most=1, shows_content=False),
    "groups": Plain(operands="texts", most=1, shows_content=False),
    "uname": Plain("amnrspvio", operands="texts", most=0, shows_content=False),
    "hostname": Plain("fs", operands="texts", most=0, shows_content=False),  # an operand sets it
    "nproc": Plain(long=_words("all"), operands="texts", most=0, shows_content=False),
    "arch": Plain(operands="texts", most=0, shows_content=False),
    "uptime": Plain("ps", operands="texts", most=0, shows_content=False),
    "free": Plain("bkmghltw", operands="texts", most=0, shows_content=False),
}
"""Program -> what it may be given. Wrappers, interpreters, pagers, git and everything that can
reach the network are not here on purpose."""

FIND_TESTS: Final = _words(
    "-true -false -empty -print -print0 -ls -prune -depth -mount -xdev -daystart -not -a -and -o "
    "-or ! ( ) , -readable -writable -executable -nouser -nogroup -quit"
)
FIND_VALUED: Final = _words(
    "-name -iname -path -ipath -wholename -iwholename -regex -iregex -regextype -type -xtype "
    "-size -maxdepth -mindepth -mtime -mmin -atime -amin -ctime -cmin -perm -user -group -uid "
    "-gid -links -inum -printf"
)
TEST_OPERATORS: Final = _words(
    "-a -o ! = == != ( ) -b -c -d -e -f -g -h -k -L -n -p -r -s -S -u -w -x -z "
    "-eq -ne -lt -le -gt -ge -nt -ot -ef"
)
"""`-v` and `-R` are missing: they run a command hidden in an array subscript."""

SED_PRINT: Final = r"(?:(?:\d+|\$)(?:,(?:\d+|\$))?p)(?:;(?:\d+|\$)(?:,(?:\d+|\$))?p)*"
"""The one form of sed that can do nothing but print lines."""

PRINTF_FORMAT: Final = r"(?:[^%]|%%|%[-+ #0]*\d*(?:\.\d+)?[sdiouxXeEfgGcbq])*"
"""A format without `%n`, which assigns to a variable."""

SYSTEM_DIRECTORIES: Final = (
    "/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin", "/usr/local/sbin",
)  # fmt: skip
"""Where a program named by its path may lie and still be the one its name says."""
