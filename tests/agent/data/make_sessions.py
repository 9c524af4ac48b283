"""Makes the recorded sessions with planted facts: `python -m tests.agent.data.make_sessions`.

A session is a list of 40 rounds: perhaps a message of the person's, then an answer with one call
and its result. Each of its 20 facts is a text that stands in it exactly, in the place its kind
says; the rest is the usual noise of files, listings and test runs.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from keen.core.messages import Json, JsonObject

HERE: Final = Path(__file__).parent
ROUNDS: Final = 40
_NOUNS: Final = (
    *("batch", "cursor", "entry", "frame", "handle", "index", "job", "lease", "page", "queue"),
    *("record", "shard", "slot", "stage", "token", "worker"),
)
_VERBS: Final = (
    *("apply", "build", "check", "close", "drain", "fetch", "flush", "load", "merge", "open"),
    *("parse", "read", "send", "split", "store", "wait"),
)


@dataclass(frozen=True)
class Plan:
    """One session: the task, its files, and its facts by where they are found."""

    name: str
    task: str
    files: tuple[str, ...]
    later: Mapping[int, str]
    """Messages of the person's, by the round they come before."""
    said: Mapping[int, str]
    """What the agent says in a round besides the usual."""
    shown: Mapping[int, str]
    """A line of the file that is read in a round."""
    failed: Mapping[int, str]
    """The last lines of a command that fails in a round."""
    facts: tuple[tuple[str, str], ...]
    """Kind and exact text."""


SCHEDULER: Final = Plan(
    name="scheduler",
    task=(
        "The nightly scheduler loses jobs when two workers start in the same second. Find out why "
        "and fix it. Do not touch anything under vendor/. The public function "
        "acquire_lease(job_id, ttl) must keep its signature. Python 3.9 has to keep working. "
        "Tests live in tests/sched and run with `make sched-test`."
    ),
    files=(
        "sched/lease.py",
        "sched/clock.py",
        "sched/store.py",
        "sched/worker.py",
        "sched/retry.py",
        "tests/sched/test_lease.py",
    ),
    later={
        14: "By the way: log lines must never contain the job payload, legal insists.",
        27: "Please keep the lease table's column owner_tag, another team reads it.",
    },
    said={
        4: "The cause: lease.py compares whole seconds, so two workers both see an expired lease.",
        9: "I decided to use a compare-and-swap on lease_version instead of a lock, because the "
        "store has no advisory locks.",
        17: "sched/store.py is changed: save_lease() now takes expected_version.",
        22: "Not yet solved: test_lease_handover still fails about one time in thirty.",
        31: "I rejected raising the ttl to 90 seconds, since it only hides the race.",
        38: "Next I have to update docs/scheduler.md and then run make sched-test once more.",
    },
    shown={
        2: "LEASE_TTL_SECONDS = 45",
        6: "MAX_CLOCK_SKEW_MS = 1250",
        12: "# The replica lags up to 700 ms behind; never read leases from it.",
        20: "GRACE_FACTOR = 1.35  # measured in incident 4471",
    },
    failed={
        8: "sqlite3.OperationalError: database table is locked: leases_v2",
        16: "AssertionError: lease 'job-8812' held by two owners: ['w-3', 'w-7']",
        25: "TypeError: save_lease() missing 1 required positional argument: 'expected_version'",
    },
    facts=(
        ("user", "vendor/"),
        ("user", "acquire_lease(job_id, ttl)"),
        ("user", "Python 3.9"),
        ("user", "make sched-test"),
        ("user", "log lines must never contain the job payload"),
        ("user", "owner_tag"),
        ("decision", "compares whole seconds"),
        ("decision", "compare-and-swap on lease_version"),
        ("decision", "the store has no advisory locks"),
        ("decision", "save_lease() now takes expected_version"),
        ("decision", "test_lease_handover still fails"),
        ("decision", "raising the ttl to 90 seconds"),
        ("decision", "docs/scheduler.md"),
        ("file", "LEASE_TTL_SECONDS = 45"),
        ("file", "MAX_CLOCK_SKEW_MS = 1250"),
        ("file", "lags up to 700 ms"),
        ("file", "incident 4471"),
        ("error", "database table is locked: leases_v2"),
        ("error", "lease 'job-8812' held by two owners"),
        ("error", "missing 1 required positional argument: 'expected_version'"),
    ),
)

SETTINGS: Final = Plan(
    name="settings",
    task=(
        "Move our command line tool from settings.ini to TOML. Old files must go on working for "
        "one release with a warning that names the new path. No new dependencies. Keep the exit "
        "codes as they are: 64 for bad settings. Write messages in British English."
    ),
    files=(
        "tool/config/loader.py",
        "tool/config/ini.py",
        "tool/config/schema.py",
        "tool/main.py",
        "tool/paths.py",
        "tests/test_loader.py",
    ),
    later={
        11: "One more requirement: secrets may only come from TOOL_SECRET_FILE, not from the file.",
        29: "The warning should appear once per day at most, people complained in #help-tool.",
    },
    said={
        3: "I found that loader.py reads the file twice: first for the colour, then for the rest.",
        7: "Decision: tomllib on 3.11, and the vendored copy in tool/_vendor/tomli.py before that.",
        13: "An empty [proxy] table means no proxy; a missing one means the environment decides.",
        19: "I moved the defaults to tool/config/defaults.toml and deleted DEFAULTS in schema.py.",
        24: "Open question: Windows users have %APPDATA%\\tool with mixed case, left for later.",
        33: "I did not use configparser's interpolation any more because of the percent signs.",
        37: "Remaining: the man page tool.1 and the migration note in UPGRADING.md.",
    },
    shown={
        2: "SEARCH_ORDER = ('--config', 'TOOL_CONFIG', '~/.config/tool', '/etc/tool')",
        5: "LEGACY_KEYS = {'server_url': 'endpoint', 'retries': 'attempts'}",
        15: "# Keys are case-insensitive in the old format; see ticket TOOL-913.",
        21: "MAX_FILE_BYTES = 262144",
    },
    failed={
        6: "configparser.InterpolationSyntaxError: '%' must be followed by '%' or '('",
        18: "FAILED tests/test_loader.py::test_warning_names_new_path - AssertionError: 2 == 1",
        26: "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xe9 in position 211",
    },
    facts=(
        ("user", "for one release with a warning that names the new path"),
        ("user", "No new dependencies"),
        ("user", "64 for bad settings"),
        ("user", "British English"),
        ("user", "TOOL_SECRET_FILE"),
        ("user", "once per day at most"),
        ("decision", "reads the file twice"),
        ("decision", "tool/_vendor/tomli.py"),
        ("decision", "a missing one means the environment decides"),
        ("decision", "tool/config/defaults.toml"),
        ("decision", "%APPDATA%\\tool with mixed case"),
        ("decision", "because of the percent signs"),
        ("decision", "UPGRADING.md"),
        ("file", "('--config', 'TOOL_CONFIG', '~/.config/tool', '/etc/tool')"),
        ("file", "'server_url': 'endpoint'"),
        ("file", "TOOL-913"),
        ("file", "MAX_FILE_BYTES = 262144"),
        ("error", "InterpolationSyntaxError"),
        ("error", "test_warning_names_new_path"),
        ("error", "can't decode byte 0xe9 in position 211"),
    ),
)

THUMBNAILS: Final = Plan(
    name="thumbnails",
    task=(
        "Thumbnails of large photos take eight seconds; bring that under one second on the small "
        "machine (2 cores, 1 GB). Use at most 300 MB. The JPEG output has to stay byte for byte "
        "the same for the 12 images in testdata/golden. Commit nothing, I review first."
    ),
    files=(
        "thumbs/pipeline.go",
        "thumbs/decode.go",
        "thumbs/resize.go",
        "thumbs/cache.go",
        "cmd/thumbd/main.go",
        "thumbs/pipeline_test.go",
    ),
    later={
        9: "Also: please do not change the cache key, the CDN has 40 million entries under it.",
        23: "Use the flag name -max-pixels, ops have it in their playbooks already.",
    },
    said={
        4: "The profile says 71 % of the time is in colour conversion, not in scaling.",
        8: "I chose decoding at 1/4 scale for photos above 24 megapixels, libjpeg does it free.",
        14: "pipeline.go now has decodeScaled(), resize.go lost its second pass.",
        18: "It turned out that EXIF orientation 6 is applied twice when the cache is cold.",
        26: "I tried a worker pool of 4 and went back to 2: memory rose to 410 MB.",
        32: "Still unexplained: golden/07.jpg differs in one byte at offset 0x1f4.",
        39: "To do next: run BenchmarkColdLarge on the small machine, then write the summary.",
    },
    shown={
        3: "const maxDimension = 4096 // larger ones crashed the viewer in release 5.2",
        10: "CACHE_KEY_VERSION = 11",
        16: "// The order of these two filters must not change: see golden/03.jpg.",
        28: "QUALITY_DEFAULT = 82",
    },
    failed={
        7: "panic: runtime error: slice bounds out of range [:4097] with capacity 4096",
        20: "--- FAIL: TestGolden/07 (0.41s): bytes differ at 0x1f4: got 0x8b, want 0x8a",
        30: "fatal error: runtime: out of memory allocating 268435456 bytes",
    },
    facts=(
        ("user", "under one second on the small machine"),
        ("user", "at most 300 MB"),
        ("user", "testdata/golden"),
        ("user", "Commit nothing"),
        ("user", "do not change the cache key"),
        ("user", "-max-pixels"),
        ("decision", "71 % of the time is in colour conversion"),
        ("decision", "1/4 scale for photos above 24 megapixels"),
        ("decision", "decodeScaled()"),
        ("decision", "EXIF orientation 6 is applied twice"),
        ("decision", "memory rose to 410 MB"),
        ("decision", "golden/07.jpg differs in one byte"),
        ("decision", "BenchmarkColdLarge"),
        ("file", "maxDimension = 4096"),
        ("file", "CACHE_KEY_VERSION = 11"),
        ("file", "see golden/03.jpg"),
        ("file", "QUALITY_DEFAULT = 82"),
        ("error", "slice bounds out of range [:4097]"),
        ("error", "got 0x8b, want 0x8a"),
        ("error", "out of memory allocating 268435456 bytes"),
    ),
)
PLANS: Final = (SCHEDULER, SETTINGS, THUMBNAILS)


def session(plan: Plan) -> JsonObject:
    """The session of a plan, the same each time."""
    chance = random.Random(plan.name)
    rounds: list[Json] = []
    for number in range(1, ROUNDS + 1):
        said = plan.task if number == 1 else plan.later.get(number, "")
        rounds.append({"user": said, **_round(plan, number, chance)})
    facts: list[Json] = [{"kind": kind, "text": text} for kind, text in plan.facts]
    return {"name": plan.name, "rounds": rounds, "facts": facts}


def _round(plan: Plan, number: int, chance: random.Random) -> JsonObject:
    path = plan.files[number % len(plan.files)]
    if number in plan.failed:
        command = f"run the tests of {Path(path).stem}"
        output = "\n".join([*_test_lines(chance, 14), plan.failed[number]])
        tool, input, code = "bash", {"command": f"make check # {command}"}, 1
    elif number in plan.shown or number % 3:
        lines = [*_code(chance, 34)]
        if number in plan.shown:
            lines.insert(chance.randrange(4, 30), plan.shown[number])
        output = "\n".join(f"{n}\t{line}" for n, line in enumerate(lines, 1))
        tool, input, code = "read_file", {"path": path}, None
    else:
        output = "\n".join(_test_lines(chance, 18)) + f"\n{chance.randrange(20, 90)} passed"
        tool, input, code = "bash", {"command": "make check"}, 0
    text = plan.said.get(number) or f"Let me look at {path} again."
    return {"text": text, "tool": tool, "input": dict(input), "output": output, "exit_code": code}


def _code(chance: random.Random, count: int) -> Iterator[str]:
    for _ in range(count):
        verb, noun, other = chance.choice(_VERBS), chance.choice(_NOUNS), chance.choice(_NOUNS)
        yield chance.choice(
            (
                f"def {verb}_{noun}({other}, limit=None):",
                f"    {noun} = self.{verb}({other})",
                f"    if {noun} is None or {other}.closed:",
                f"        return {verb}_{other}({noun})",
                f"    for {noun} in {other}.{verb}():",
                "",
                *(_beside_the_point(chance, noun, other) if chance.random() < 0.4 else ()),
            )
        )


def _beside_the_point(chance: random.Random, noun: str, other: str) -> Iterator[str]:
    """Lines that look as if they mattered and are nobody's fact."""
    yield f"{noun.upper()}_LIMIT = {chance.randrange(2, 900)}"
    yield f"    # every {noun} belongs to exactly one {other}, see above"


def _test_lines(chance: random.Random, count: int) -> Iterator[str]:
    for index in range(count):
        verb, noun = chance.choice(_VERBS), chance.choice(_NOUNS)
        yield f"tests/test_{noun}.py::test_{verb}_{noun}_{index} PASSED [{index * 5:3}%]"


def main() -> None:
    for plan in PLANS:
        text = json.dumps(session(plan), indent=1, ensure_ascii=False) + "\n"
        (HERE / f"{plan.name}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
