#!/usr/bin/env python3
"""Plants the faults of mutants.txt into copies of our headers, one at a time, and expects each test beside it to find it.

    python3 tests/fault/mutants/run.py [name...]      all of them without a name; DISTLOCK_JOBS at a time (as many as processors)
    python3 tests/fault/mutants/run.py --check        only looks whether each fault has its place, and each test its name: a second

Prints `killed <name> by <file: test case>` or `SURVIVED <name>` for each, and `mutants: K of N killed`. Fails when one survives.
A test that does not pass on the headers as they are, and a mutant that does not compile, are errors of the list: they fail, too.
Works in build/mutants, which begins empty: nothing is kept from run to run.
"""
import concurrent.futures
import fnmatch
import html
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD = ROOT / "build" / "mutants"
PACKAGES = "g++ pkg-config libhiredis-dev libssl-dev liblua5.1-0-dev catch2 redis-server"
SHORTEST_LIMIT = 30  # seconds for a run of tests; or so many times what it takes on the headers as they are:
LIMIT_FACTOR = 5


class Wrong(Exception):
    """Something about the list or the machine, not about a mutant."""


class Mutant:
    def __init__(self, name, breaks):
        self.name, self.breaks, self.header, self.killers, self.hunks = name, breaks, None, [], []

    def text(self, tree=BUILD):
        """The header of `tree` with the fault in it. Spaces and line breaks between words do not matter for finding the place."""
        text = (tree / "include/distlock" / self.header).read_text()
        for old, new in self.hunks:
            # Words may be joined by the formatter: f(a, b) and f(a,<new line>b) are the same.
            found = list(re.finditer(r"\s+".join(re.escape(word) for word in old.split()), text))
            if len(found) != 1:
                raise Wrong(f"{self.name}: '{' '.join(old.split())[:60]}...' stands {len(found)} times in {self.header}")
            text = text[: found[0].start()] + new.strip() + text[found[0].end() :]
        return text


def read_list():
    mutants = []
    for number, line in enumerate((ROOT / "tests/fault/mutants/mutants.txt").read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        mark, _, rest = line.partition(" ")
        if mark == "mutant":
            name, _, breaks = rest.partition(": ")
            mutants.append(Mutant(name, breaks))
        elif mark == "in":
            mutants[-1].header = rest
        elif mark == "by":
            mutants[-1].killers.append(rest)
        elif mark == "-":
            if not mutants[-1].hunks or mutants[-1].hunks[-1][1]:
                mutants[-1].hunks.append(["", ""])
            mutants[-1].hunks[-1][0] += rest + "\n"
        elif mark == "+":
            mutants[-1].hunks[-1][1] += rest + "\n"
        else:
            raise Wrong(f"mutants.txt:{number}: a line begins with mutant, in, by, - or +")
    for m in mutants:
        if not (m.breaks and m.header and m.killers and m.hunks) or not all(new for _, new in m.hunks):
            raise Wrong(f"mutants.txt: {m.name} lacks what it breaks, a header, a test, or a replacement")
    if len({m.name for m in mutants}) != len(mutants):
        raise Wrong("mutants.txt: two mutants have the same name")
    return mutants


def check_names(mutant, killer):
    """A pattern that names no test case of its file would only be found when the mutant runs."""
    file, *patterns = shlex.split(killer)
    if not file.endswith(".cpp"):
        return
    text = re.sub(r'"\s*\n\s*"', "", (ROOT / "tests" / file).read_text())  # literals that the formatter parted
    cases = re.findall(r'TEST_CASE\(\s*"((?:[^"\\]|\\.)*)"', text)
    for pattern in patterns:
        if "," in pattern or not fnmatch.filter(cases, pattern):
            raise Wrong(f"{mutant.name}: {file} has no test case '{pattern}', or the pattern has a comma")


def flags(killer):
    simulator = killer.split()[0] == "simulate"
    common = ["-std=c++20", "-w", "-g0", "-O1" if simulator else "-O0", f"-I{BUILD}/tests", f"-I{BUILD}/tests/support"]
    return common + CFLAGS + ([] if simulator else ["-include", f"{BUILD}/tests/first.hpp"])


def sources(killer):
    file = killer.split()[0]
    if file == "simulate":
        return sorted(p for p in (BUILD / "tests/model/simulator").glob("*.cpp") if p.name != "differential.cpp")
    return [BUILD / "tests" / file]


def run(arguments, limit=None, **more):
    """Returns the exit status, None when the time was up, and all that was said."""
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                               start_new_session=True, **more)
    try:
        said, _ = process.communicate(timeout=limit)
        return process.returncode, said
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # its own group: what it started, too
        return None, process.communicate()[0]


def compile_one(source, target, options):
    status, said = run(["g++", *options, "-MMD", "-c", source, "-o", target])
    if status != 0:
        raise Wrong(f"{source.name} does not compile:\n{said[:2000]}")
    return target


def build(killer, folder, overlay=None, changed=None):
    """Builds the program of `killer` in `folder`; what does not include `changed` is taken from the unchanged one."""
    folder.mkdir(parents=True, exist_ok=True)
    objects = []
    for source in sources(killer):
        plain = BUILD / "plain" / killer.split()[0].replace("/", ".") / (source.stem + ".o")
        if overlay and changed not in plain.with_suffix(".d").read_text():
            objects.append(plain)
            continue
        includes = [f"-I{overlay}"] if overlay else []
        objects.append(compile_one(source, folder / (source.stem + ".o"), [*includes, f"-I{BUILD}/include", *flags(killer)]))
    if overlay and all(BUILD / "plain" in o.parents for o in objects):
        raise Wrong(f"{killer} does not include {changed}")
    others = [] if killer.startswith("simulate") else sorted((BUILD / "plain").glob("*.o"))
    program = folder / "program"
    status, said = run(["g++", *objects, *others, "-o", program, *LIBRARIES])
    if status != 0:
        raise Wrong(f"{killer} does not link:\n{said[:2000]}")
    return program


def find_fault(killer, program, limit):
    """Runs the tests. Returns what failed; None when all passed."""
    file, *wanted = shlex.split(killer)
    if file == "simulate":
        status, said = run([program, *wanted], limit, cwd=program.parent)
        last = (said.strip().splitlines() or ["silence"])[-1]
        return None if status == 0 else f"simulate: {last[:150]}" + (" (time limit)" if status is None else "")
    report = program.parent / "report.xml"
    report.unlink(missing_ok=True)
    # Arguments of their own would all have to match; a name with a comma is to be shortened to a pattern.
    cases = [",".join(wanted)] if wanted else []
    status, _ = run([program, "--abort", "-r", "xml", "-o", report, *cases], limit, cwd=program.parent)
    if status == 0:
        return None
    names = re.findall(r'<TestCase name="([^"]*)"', report.read_text(errors="replace") if report.exists() else "")
    how = " (time limit)" if status is None else f" (signal {-status})" if status < 0 else ""
    return f"{file}: {html.unescape(names[-1]) if names else 'no test case'}{how}"


class Unchanged:
    """The killers on the headers as they are: each must pass, once; then how long that took is known."""

    def __init__(self, pool, killers):
        self.built = {f: pool.submit(self.build, f) for f in sorted({k.split()[0] for k in killers})}
        self.took = {k: pool.submit(self.try_out, k) for k in sorted(killers)}

    @staticmethod
    def build(file):
        return build(file, BUILD / "plain" / file.replace("/", "."))

    def try_out(self, killer):
        program = self.built[killer.split()[0]].result()
        begun = time.monotonic()
        for again in (True, False):  # tests of time may fail on a busy machine
            fault = find_fault(killer, program, 600)
            if fault is None:
                return time.monotonic() - begun
        raise Wrong(f"does not pass on the headers as they are: {fault}")


def try_mutant(mutant, unchanged):
    folder = BUILD / mutant.name
    header = folder / "include/distlock" / mutant.header
    header.parent.mkdir(parents=True)
    header.write_text(mutant.text())
    faults = []
    for number, killer in enumerate(mutant.killers):
        limit = max(SHORTEST_LIMIT, LIMIT_FACTOR * unchanged.took[killer].result())
        program = build(killer, folder / str(number), folder / "include", "distlock/" + mutant.header)
        faults.append(find_fault(killer, program, limit))
    if None not in faults:
        shutil.rmtree(folder)
    return faults


def prepare():
    if run(["sh", ROOT / "cmake/dev/packages.sh", *PACKAGES.split()], stdin=subprocess.DEVNULL)[0] != 0:
        raise Wrong(f"install what is missing of: {PACKAGES}")
    shutil.rmtree(BUILD, ignore_errors=True)
    shutil.copytree(ROOT / "include", BUILD / "include")
    shutil.copytree(ROOT / ".github", BUILD / ".github")  # which says what users may do
    shutil.copytree(ROOT / "tests", BUILD / "tests", ignore=shutil.ignore_patterns("corpus", "interop", "build"))
    (BUILD / "plain").mkdir()
    ask = ["pkg-config", "hiredis", "openssl", "lua5.1"]
    global CFLAGS, LIBRARIES
    CFLAGS = run([*ask, "--cflags"])[1].split()
    LIBRARIES = [*run([*ask, "--libs"])[1].split(), "-pthread", "-ldl"]
    # What every test reads first, and no mutant changes, is compiled once.
    first = BUILD / "tests/first.hpp"
    std = "algorithm array atomic chrono functional memory mutex optional set stop_token string thread vector map".split()
    first.write_text('#include "support/catch.hpp"\n' + "".join(f"#include <{header}>\n" for header in std))
    common = ["-std=c++20", "-w", "-g0", "-O0", f"-I{BUILD}/tests", f"-I{BUILD}/include", *CFLAGS]
    for source, target in [(first, f"{first}.gch"), (BUILD / "tests/support/catch_main.cpp", BUILD / "plain/catch_main.o"),
                           *((s, BUILD / "plain" / (s.stem + ".o")) for s in (BUILD / "tests/support").glob("*.cpp")
                             if s.stem not in ("clock_shim", "catch_main"))]:
        compile_one(source, target, common if target != f"{first}.gch" else [*common, "-x", "c++-header"])


def main(names):
    mutants = read_list()
    if names == ["--check"]:
        for m in mutants:
            m.text(ROOT)
            for killer in m.killers:
                check_names(m, killer)
        print(f"mutants: each of {len(mutants)} has its place")
        return 0
    unknown = set(names) - {m.name for m in mutants}
    if unknown:
        raise Wrong(f"no such mutant: {', '.join(sorted(unknown))}")
    chosen = [m for m in mutants if not names or m.name in names]
    prepare()
    for m in chosen:
        m.text()
    killed, broken = 0, 0
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("DISTLOCK_JOBS") or os.cpu_count())) as pool:
        unchanged = Unchanged(pool, {k for m in chosen for k in m.killers})
        results = {pool.submit(try_mutant, m, unchanged): m for m in chosen}
        for done in concurrent.futures.as_completed(results):
            m = results[done]
            try:
                faults = done.result()
                missed = [killer for killer, fault in zip(m.killers, faults) if fault is None]
                killed += not missed
                print(f"SURVIVED  {m.name}: not found by {', '.join(missed)}" if missed
                      else f"killed    {m.name}  by  {', and '.join(faults)}", flush=True)
            except Wrong as why:
                broken += 1
                print(f"ERROR     {m.name}: {why}", flush=True)
    print(f"mutants: {killed} of {len(chosen)} killed" + (f", {broken} in error" if broken else ""))
    return 0 if killed == len(chosen) else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Wrong as why:
        sys.exit(f"mutants: {why}")
