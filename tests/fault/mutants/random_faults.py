#!/usr/bin/env python3
"""Plants faults that nobody chose, all of them as switches in one build, and runs the tests with each until one fails.

    python3 tests/fault/mutants/random_faults.py [--seed N] [--count N] [--only N...] [--list]

From all places in include/ where a statement can be left out, a condition turned round, or an operator or a constant changed, it takes
COUNT by SEED (300 by 1). Prints `killed <number> <place>: <change>: by <test>` or `SURVIVED ...` for each, and `random faults: K of N
killed`. A survivor is a fault that means the same, or lacks its test: somebody has to look. --only plants some of them; --list builds
nothing, --build stops after that. Works in build/random_faults; DISTLOCK_JOBS at a time. It takes hours.
"""
import argparse
import concurrent.futures
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
WORK = ROOT / "build" / "random_faults"
TREE = WORK / "tree"
JOBS = int(os.environ.get("DISTLOCK_JOBS") or os.cpu_count())
SWITCH = """#pragma once
#include <cstdlib>
namespace distlock_faults {
inline int chosen() noexcept {
    static const int number = std::getenv("DISTLOCK_FAULT") ? std::atoi(std::getenv("DISTLOCK_FAULT")) : 0;
    return number;
}
constexpr bool planted(int number) noexcept {
    return !__builtin_is_constant_evaluated() && chosen() == number;
}
}
"""
# What is for tests only is tested by its use; names and layouts on paper have no behaviour.
LEFT_OUT = re.compile(r"include/distlock/(testing/|testing[.]hpp|src[.]hpp|detail/thread_safety|detail/separate)")
OPERATORS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&", "+": "-", "-": "+", "*": "/",
             "/": "*"}
# The quick ones first; how long each may take, in seconds.
TESTS = [("distlock_simulate", ["--events", "300000"], 60), ("distlock_unit_tests", ["--abort"], 120),
         ("distlock_contract_tests", ["--abort"], 300), ("distlock_server_tests", ["--abort"], 600), ("distlock_tls_tests", ["--abort"], 120),
         ("distlock_fault_tests", ["--abort"], 300)]


class Fault:
    def __init__(self, file, line, old, new, what):
        self.file, self.line, self.old, self.new, self.what = file, line, old, new, what

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


def write_tree(faults):
    shutil.rmtree(TREE / "include", ignore_errors=True)
    shutil.copytree(ROOT / "include", TREE / "include")
    by_file = {}
    for number, f in faults.items():
        by_file.setdefault(f.file, []).append((number, f))
    for file, of in by_file.items():
        path = TREE / file
        lines = path.read_text().splitlines()
        for number, f in of:
            lines[f.line] = f.new.replace("@", f"distlock_faults::planted({number})")
        path.write_text("\n".join(lines) + "\n")


def compiles(faults):
    """Takes those out that do not compile. The rest do."""
    whole = WORK / "whole.cpp"
    whole.write_text("".join(f"#include <distlock/{door}>\n" for door in ("distlock.hpp", "hiredis.hpp", "hiredis_tls.hpp", "interop.hpp")))
    while True:
        write_tree(faults)
        done = subprocess.run(["g++", "-std=c++20", "-w", "-fsyntax-only", "-fmax-errors=0", "-include", WORK / "switch.hpp", f"-I{TREE}/include",
                               whole], capture_output=True, text=True)
        if done.returncode == 0:
            return faults
        bad = {(m[1], int(m[2]) - 1) for m in re.finditer(r"tree/(include/\S+?):(\d+):", done.stderr)}
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


def build():
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
    subprocess.run(["cmake", "--build", WORK / "build", "--parallel", str(JOBS), "--target", *(program for program, _, _ in TESTS)], check=True,
                   stdout=subprocess.DEVNULL)


def fails(program, arguments, limit, number):
    process = subprocess.Popen([WORK / "build/tests" / program, *arguments], env={**os.environ, "DISTLOCK_FAULT": str(number)},
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True)
    try:
        said, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return "it takes too long"
    if process.returncode == 0:
        return None
    named = re.search(r"^-{20,}\n(.+)\n", said, re.M)
    return named[1] if named else (said.strip().splitlines() or ["silence"])[-1][:120]


def killer(number):
    for program, arguments, limit in TESTS:
        # Twice: a test of time may fail on a busy machine.
        if fails(program, arguments, limit, number) and (why := fails(program, arguments, limit, number)):
            return f"{program}: {why}"
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--only", type=int, nargs="*")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--build", action="store_true")
    told = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    (WORK / "switch.hpp").write_text(SWITCH)
    chosen = choose(told.count, told.seed)
    if told.only:
        chosen = {n: f for n, f in chosen.items() if n in told.only}
    if told.list:
        for number, fault in chosen.items():
            print(number, fault)
        return 0
    build()
    if told.build:
        return 0
    for program, arguments, limit in TESTS:
        if why := fails(program, arguments, limit, 0):
            sys.exit(f"random_faults: without a fault {program} fails: {why}")
    killed = 0
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        results = {pool.submit(killer, n): n for n in chosen}
        for done in concurrent.futures.as_completed(results):
            number = results[done]
            by = done.result()
            killed += by is not None
            print(f"killed {number} {chosen[number]}: by {by}" if by else f"SURVIVED {number} {chosen[number]}", flush=True)
    print(f"random faults: {killed} of {len(chosen)} killed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
