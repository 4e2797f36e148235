#!/usr/bin/env python3
"""Plants faults that nobody chose, all of them as switches in one build, and runs the tests that come to each until one fails.

    python3 tests/fault/mutants/random_faults.py [--seed N] [--count N] [--only N...] [--programs NAME...] [--again] [--list] [--build]

From all places in include/ where a statement can be left out, a condition turned round, or an operator or a constant changed, it takes
COUNT by SEED (300 by 1). First each test case runs alone and records which of these places it comes to; then each fault meets the cases
that come to it, the short ones first. A fault is killed by a case that fails with it, passes without it, and fails again.

Prints `killed <number> <place>: <change>: by <case>: <assertion>` for each, `same ...` for one that random_faults.txt explains, or
`SURVIVED ...`, and `random faults: K of N killed`. A survivor is a fault that means the same, or lacks its test: somebody has to look.

--only plants some of them, --programs runs some of the tests only; --list builds nothing, --build stops after that. Works in
build/random_faults, DISTLOCK_JOBS at a time, and keeps there what it knows: run again it goes on where it was, what survived meets
the new test cases and those of its program, and with --again all tests once more, also what is explained. --seconds leaves the longer
tests out, and they are not counted as tried. Remove results.jsonl and reached.jsonl there to begin anew. It takes hours.
"""
import argparse
import concurrent.futures
import json
import math
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
WORK = ROOT / "build" / "random_faults"
TREE = WORK / "tree"
JOBS = int(os.environ.get("DISTLOCK_JOBS") or os.cpu_count())
SWITCH = """#pragma once
#include <cstdlib>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
namespace distlock_faults {
struct plan {
    int chosen = 0;
    unsigned char* reached = nullptr;
};
inline plan made() noexcept {
    plan of;
    if (const char* number = std::getenv("DISTLOCK_FAULT")) {
        of.chosen = std::atoi(number);
    }
    // One byte a fault, shared with the processes that a test starts.
    if (const char* file = std::getenv("DISTLOCK_FAULTS_REACHED")) {
        const int descriptor = ::open(file, O_RDWR | O_CLOEXEC);
        void* const at = descriptor < 0 ? MAP_FAILED : ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
        of.reached = at == MAP_FAILED ? nullptr : static_cast<unsigned char*>(at);
        if (descriptor >= 0) {
            ::close(descriptor);
        }
    }
    return of;
}
inline const plan& planned() noexcept {
    static const plan here = made();
    return here;
}
constexpr bool planted(int number) noexcept {
    if (__builtin_is_constant_evaluated()) {
        return false;
    }
    if (planned().reached != nullptr) {
        planned().reached[number] = 1;
    }
    return planned().chosen == number;
}
}
"""
# What is for tests only is tested by its use; names and layouts on paper have no behaviour.
LEFT_OUT = re.compile(r"include/distlock/(testing/|testing[.]hpp|src[.]hpp|detail/thread_safety|detail/separate)")
OPERATORS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&", "+": "-", "-": "+", "*": "/",
             "/": "*"}
# The quick ones first.
PROGRAMS = ["distlock_unit_tests", "distlock_simulate", "distlock_contract_tests", "distlock_server_tests", "distlock_tls_tests",
            "distlock_fault_tests"]
QUICK = PROGRAMS[:2]
SIMULATIONS = ["--events 300000", "--family --events 300000"]


class Fault:
    def __init__(self, file, line, old, new, what):
        self.file, self.line, self.old, self.new, self.what = file, line, old, new, what

    def key(self):
        return f"{self.file.removeprefix('include/distlock/')} | {self.what} | {self.old.strip()}"

    def __str__(self):
        return f"{self.file.removeprefix('include/distlock/')}:{self.line + 1}: {self.what}: {self.old.strip()[:90]}"


def balanced(text):
    depth = 0
    for c in text:
        depth += (c == "(") - (c == ")")
        if depth < 0:
            return False
    return depth == 0


def changed(text):
    """Yields `text` with one operator or constant changed, and what that was. Operators stand between spaces: templates do not."""
    if '"' in text or "'" in text:
        return
    for m in re.finditer(r" (<=|>=|==|!=|&&|\|\||[<>+*/-]) ", text):
        yield text[: m.start(1)] + OPERATORS[m[1]] + text[m.end(1) :], f"{m[1]} becomes {OPERATORS[m[1]]}"
    for m in re.finditer(r"\b(true|false)\b", text):
        other = "false" if m[1] == "true" else "true"
        yield text[: m.start(1)] + other + text[m.end(1) :], f"{m[1]} becomes {other}"
    for m in re.finditer(r"(?<![\w.<])(\d+)(?![\w.'>])", text):
        more = str(int(m[1]) + 1)
        yield text[: m.start(1)] + more + text[m.end(1) :], f"{m[1]} becomes {more}"


def faults_of_line(indent, code):
    """Yields the changed line, with @ for its switch, and what was changed."""
    if m := re.fullmatch(r"((?:\} else )?if \()(.+)(\) (?:\{|[^{].*;))", code):
        condition = m[2]
        # The condition ends where its parenthesis does.
        depth, end = 1, None
        rest = code[len(m[1]) :]
        for i, c in enumerate(rest):
            depth += (c == "(") - (c == ")")
            if depth == 0:
                end = i
                break
        condition = rest[:end]
        if end is None or ";" in condition or re.match(r"(const |auto |constexpr )", condition):
            return
        after = rest[end:]
        yield f"{indent}{m[1]}static_cast<bool>({condition}) != @{after}", "a condition is turned round"
        for other, what in changed(condition):
            yield f"{indent}{m[1]}@ ? static_cast<bool>({other}) : static_cast<bool>({condition}){after}", what
    elif m := re.fullmatch(r"return ([^{;]+);", code):
        for other, what in changed(m[1]):
            yield f"{indent}return @ ? ({other}) : ({m[1]});", what
    elif re.fullmatch(r"(?:[\w:]+(?:\(\))?(?:\.|->))*[\w:]+(?:<[\w:, ]+>)?(?:\(.*\)| [+|&-]?= [^{]+)|(?:\+\+|--)[\w.>-]+", code[:-1]) and code.endswith(
            ";") and balanced(code) and not re.match(r"(return|throw|break|continue|using|static_assert|goto|co_|delete|else|private|public)\b", code):
        yield f"{indent}{{ if (!@) {code} }}", "left out"
        if m := re.fullmatch(r"([\w.>()-]+ [+|&-]?= )([^;]+);", code):
            for other, what in changed(m[2]):
                yield f"{indent}{m[1]}@ ? ({other}) : ({m[2]});", what


def candidates():
    found = []
    for path in sorted((ROOT / "include").rglob("*.hpp")):
        file = str(path.relative_to(ROOT))
        if LEFT_OUT.match(file):
            continue
        lines = path.read_text().splitlines()
        raw = False
        for i, line in enumerate(lines):
            if raw or 'R"' in line:
                raw = ')"' not in line.split('R"', 1)[-1]
                continue
            code = re.sub(r"\s*//.*$", "", line)
            indent = re.match(r" *", code)[0]
            # Whole statements of function bodies only: what the line before began is a part of that.
            before = re.sub(r"\s*//.*$", "", lines[i - 1]).rstrip() if i else ""
            if len(indent) < 4 or not re.search(r"([;{}:]|^)$", before) and not re.search(r"\)$|else$", before):
                continue
            if re.search(r"\)$", before) and not re.match(r"\s*(if|for|while)\b.*\)$", before):
                continue
            for new, what in faults_of_line(indent, code.strip()):
                found.append(Fault(file, i, line, new, what))
    return found


def with_faults(faults):
    """The files of include/ by name, with the switches in."""
    files = {str(path.relative_to(ROOT)): path.read_text() for path in (ROOT / "include").rglob("*") if path.is_file()}
    lines = {}
    for number, f in faults.items():
        of = lines.setdefault(f.file, files[f.file].splitlines())
        of[f.line] = f.new.replace("@", f"distlock_faults::planted({number})")
    return files | {file: "\n".join(of) + "\n" for file, of in lines.items()}


def write_tree(tree, files):
    """What is there already keeps its time: little is built anew."""
    for name, text in files.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_text() != text:
            path.write_text(text)
    for path in (tree / "include").rglob("*"):
        if path.is_file() and str(path.relative_to(tree)) not in files:
            path.unlink()


def compiles(faults):
    """Takes those out that do not compile. The rest do."""
    whole = WORK / "whole.cpp"
    whole.write_text("".join(f"#include <distlock/{door}>\n" for door in ("distlock.hpp", "hiredis.hpp", "hiredis_tls.hpp", "interop.hpp")))
    while True:
        write_tree(WORK / "trial", with_faults(faults))
        done = subprocess.run(["g++", "-std=c++20", "-w", "-fsyntax-only", "-fmax-errors=0", "-include", WORK / "switch.hpp",
                               f"-I{WORK}/trial/include", whole], capture_output=True, text=True)
        if done.returncode == 0:
            return faults
        bad = {(m[1], int(m[2]) - 1) for m in re.finditer(r"trial/(include/\S+?):(\d+):", done.stderr)}
        left = {n: f for n, f in faults.items() if (f.file, f.line) not in bad}
        if len(left) == len(faults):
            sys.exit(f"random_faults: the headers do not compile:\n{done.stderr[:2000]}")
        faults = left


def choose(count, seed):
    """One fault a line: each line holds one switch."""
    every = candidates()
    random.Random(seed).shuffle(every)
    chosen, lines = {}, set()
    while every and len(chosen) < count:
        for f in every[: count * 3 // 2]:
            if (f.file, f.line) not in lines and len(chosen) < count:
                lines.add((f.file, f.line))
                chosen[len(lines)] = f
        every = every[count * 3 // 2 :]
        chosen = compiles(chosen)
    return chosen


def build(faults):
    write_tree(TREE, with_faults(faults))
    for name in subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True,
                               check=True).stdout.splitlines():
        if name.startswith("include/") or not (ROOT / name).is_file():
            continue
        target = TREE / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target)
    subprocess.run(["cmake", "-S", TREE, "-B", WORK / "build", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG=-g0",
                    f"-DCMAKE_CXX_FLAGS=-w -include {WORK}/switch.hpp", "-DDISTLOCK_WERROR=OFF", "-DDISTLOCK_PRECOMPILE=ON",
                    "-DDISTLOCK_BUILD_EXAMPLES=OFF"], check=True, stdout=subprocess.DEVNULL)
    for program in PROGRAMS:
        subprocess.run(["cmake", "--build", WORK / "build", "--parallel", str(JOBS), "--target", program], check=True, stdout=subprocess.DEVNULL)


class Case:
    """A test case, or a way to call the simulator: how long it takes, and the faults it comes to."""

    def __init__(self, program, name, took=0.0, reached=(), passes=True):
        self.program, self.name, self.took, self.reached, self.passes = program, name, took, set(reached), passes

    def limit(self):
        return 15 + 8 * self.took


def run(program, names, limit, fault=0, reached=None):
    """None when all pass, otherwise what was said."""
    arguments = names[0].split() if program == "distlock_simulate" else ["--abort", ",".join(re.sub(r'([\\,\[\]*"~])', r"\\\1", n) for n in names)]
    environment = {**os.environ, "DISTLOCK_FAULT": str(fault)}
    if reached:
        environment["DISTLOCK_FAULTS_REACHED"] = str(reached)
    process = subprocess.Popen([WORK / "build/tests" / program, *arguments], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True)
    try:
        said, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return "it takes too long"
    return None if process.returncode == 0 else said or "silence"


def record(case):
    with tempfile.NamedTemporaryFile() as bytes_:
        bytes_.write(bytes(4096))
        bytes_.flush()
        for _ in range(2):  # a test of time may fail on a busy machine
            began = time.monotonic()
            why = run(case.program, [case.name], 600, reached=bytes_.name)
            case.took = round(time.monotonic() - began, 3)
            if not why:
                break
        case.passes = not why
        case.reached = {n for n, byte in enumerate(pathlib.Path(bytes_.name).read_bytes()) if byte}
    return case


def cases(programs):
    """All that there are, with what earlier runs recorded of them. What is new is run alone, and recorded."""
    file = WORK / "reached.jsonl"
    known = {}
    if file.exists():
        for line in file.read_text().splitlines():
            one = Case(**json.loads(line))
            known[one.program, one.name] = one
    every = []
    for program in programs:
        names = SIMULATIONS if program == "distlock_simulate" else subprocess.run(
            [WORK / "build/tests" / program, "--list-test-names-only"], capture_output=True, text=True).stdout.splitlines()
        every += [(program, name) for name in names]
    new = [Case(*one) for one in every if one not in known]
    with file.open("a") as to, concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        for case in pool.map(record, new):
            known[case.program, case.name] = case
            print(json.dumps({**vars(case), "reached": sorted(case.reached)}), file=to, flush=True)
            if not case.passes:
                print(f"random_faults: without a fault `{case.name}` of {case.program} fails: it judges nothing", flush=True)
    return [known[one] for one in every if known[one].passes]


def failure(said):
    """The first assertion that failed, on one line."""
    found = re.search(r"^\S+:\d+: FAILED:\n((?:.*\n)*?)\n", said, re.M)
    return " ".join((found[0] if found else said.strip()[-300:]).split())[:400]


def found_by(case, fault):
    """The assertion that fails with the fault, passes without, and fails again: a test of time may fail on a busy machine."""
    if not run(case.program, [case.name], case.limit(), fault) or run(case.program, [case.name], case.limit()):
        return None
    said = run(case.program, [case.name], case.limit(), fault)
    return f"{case.program}: {case.name}: {failure(said)}" if said else None


def judge(fault, of, seconds):
    """What finds the fault among these cases, the short ones first, and for `seconds` only; and the cases that were not tried."""
    of = sorted((c for c in of if fault in c.reached), key=lambda c: (QUICK.index(c.program) if c.program in QUICK else len(QUICK), c.took))
    while of and seconds > 0:
        some, of = of[:1], of[1:]
        while of and len(some) < 40 and {some[0].program, of[0].program} == {"distlock_unit_tests"}:
            some, of = [*some, of[0]], of[1:]
        seconds -= sum(c.took for c in some)
        if len(some) > 1 and not run(some[0].program, [c.name for c in some], 10 + 5 * sum(c.took for c in some), fault):
            continue
        for case in some:
            if by := found_by(case, fault):
                return by, []
    return None, of


def explained():
    """The faults that mean the same, by what they change: file | change | code. Their reasons stand below them."""
    lines = (ROOT / "tests/fault/mutants/random_faults.txt").read_text().splitlines()
    return {line for line in lines if line and not line.startswith((" ", "#"))}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--only", type=int, nargs="*")
    parser.add_argument("--programs", nargs="*", default=PROGRAMS)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--build", action="store_true")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--seconds", type=float, default=math.inf)
    told = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    write_tree(WORK, {"switch.hpp": SWITCH})
    chosen = choose(told.count, told.seed)
    if told.list:
        for number, fault in chosen.items():
            print(number, fault)
        return 0
    build(chosen)
    if told.build:
        return 0
    of = cases([p for p in PROGRAMS if p in told.programs])
    # One line a program tried with a fault: a run that was cut short goes on where it was. A new test case has it tried again.
    results = WORK / "results.jsonl"
    by, tried, same = {}, {}, explained()
    coming = {(n, p): sum(n in c.reached for c in of if c.program == p) for n in chosen for p in told.programs}
    if results.exists():
        for line in results.read_text().splitlines():
            one = json.loads(line)
            if str(chosen.get(one["number"])) == one["fault"]:
                tried[one["number"], one["program"]] = one["cases"]
                if one["by"]:
                    by[one["number"]] = one["by"]

    def until_found(number):
        programs = [p for p in told.programs if told.again or tried.get((number, p)) != coming[number, p]]
        if number in by or not programs or (chosen[number].key() in same and not told.again):
            return number
        why, left = judge(number, [c for c in of if c.program in programs], told.seconds)
        with results.open("a") as to:
            for program in programs:
                if why or all(c.program != program for c in left):
                    print(json.dumps({"number": number, "fault": str(chosen[number]), "program": program, "cases": coming[number, program],
                                      "by": why}), file=to)
        if why:
            by[number] = why
        return number

    wanted = [n for n in chosen if not told.only or n in told.only]
    unexplained = 0
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        for number in pool.map(until_found, wanted):
            fault = chosen[number]
            reached = sum(number in c.reached for c in of)
            if number in by:
                print(f"killed {number} {fault}: by {by[number]}", flush=True)
                if fault.key() in same:
                    print("random_faults: random_faults.txt says that this one means the same")
                    unexplained += 1
            elif fault.key() in same:
                print(f"same {number} {fault}", flush=True)
            else:
                unexplained += 1
                print(f"SURVIVED {number} {fault}: {reached} test cases come to it", flush=True)
    killed = sum(n in by for n in wanted)
    print(f"random faults: {killed} of {len(wanted)} killed, {unexplained} unexplained")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
