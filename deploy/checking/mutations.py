"""Rules with a mistake each: the tests of the rules must refuse every one of them.

    python3 mutations.py PROMTOOL
"""

import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "prometheus"
RULES, TESTS = FOLDER / "sclub.rules.yml", FOLDER / "sclub.test.yml"
OF_JOBS = re.compile(r'job=~"sclub\.\*"(?:, )?')
#: A number in an expression: not within a name, a string or a range.
NUMBER = re.compile(r"(?<![\w.\"\[])\d+(?:\.\d+)?(?![\w.\"])")
def rules(text):
    """The names of the alerts, with their places in the file."""
    found = list(re.finditer(r"^      - alert: (\w+)$", text, re.M))
    for at, one in enumerate(found):
        yield one[1], one.start(), found[at + 1].start() if at + 1 < len(found) else len(text)


def tests(text):
    """The tests of each alert: those whose comments begin with its name."""
    head, *parts = re.split(r"^(?=  # )", text, flags=re.M)
    found = {}
    for part in parts:
        found.setdefault(re.match(r"  # (\w+)", part)[1], []).append(part)
    return head, found


def times(text, factor):
    return f"{float(text) * factor:.10g}"


def seconds(duration):
    return int(duration[:-1]) * {"s": 1, "m": 60, "h": 3600}[duration[-1]]


def mistakes(rule):
    """Descriptions of mistakes in a rule, and the rule with them."""
    begin = rule.index("        expr: '")
    expression = rule[begin : rule.index("\n", begin)]
    yield "for programs of all jobs", rule.replace(expression, OF_JOBS.sub("", expression))
    for found in NUMBER.finditer(expression):
        before, number = expression[: found.start()], found[0]
        # Zero bytes, as a prediction, may be any other number of bytes.
        if before.count("[") > before.count("]") or before.count('"') % 2 or before.endswith("3600) < "):
            continue
        if number == "0":
            # What is 0 or 1 has no other values between.
            others = ["1" if before.endswith("== ") else "2"]
        else:
            others = [times(number, 3), times(number, 0.3)]
        for other in others:
            changed = before + other + expression[found.end() :]
            yield f"...{before[-25:]}{other}, not {number}", rule.replace(expression, changed)
    for window in sorted(set(re.findall(r"\[(\w+)\]", expression))):
        for factor in (3, 0.3):
            other = f"[{seconds(window) * factor:.0f}s]"
            yield f"{other}, not [{window}]", rule.replace(expression, expression.replace(f"[{window}]", other))
    wait = re.search(r"        for: (\w+)\n", rule)
    # Rules are evaluated every minute.
    for other in [10] if wait[1] == "0m" else [max(1, seconds(wait[1]) // 60) * 3, seconds(wait[1]) * 3 // 600]:
        yield f"for {other}m, not {wait[1]}", rule.replace(wait[0], f"        for: {other}m\n")
    for old, new in [(" > ", " < "), (" < ", " > "), (" == ", " != ")]:
        if old in expression:
            yield f"{new.strip()}, not {old.strip()}", rule.replace(expression, expression.replace(old, new, 1))


def untested():
    """Alerts that no test expects to fire."""
    _, parts = tests(TESTS.read_text())
    fires = lambda name, part: f"alertname: {name}\n" in part and "exp_labels" in part or f'{{alertname="{name}",' in part
    return [name for name, _, _ in rules(RULES.read_text()) if not any(fires(name, part) for part in parts.get(name, []))]


def undetected(promtool):
    """The mistakes that no test finds, and the number of mistakes that were put in."""
    text = RULES.read_text()
    first = next(begin for _, begin, _ in rules(text))
    head, parts = tests(TESTS.read_text())

    def is_found(case):
        # Alone: the tests of a rule need no other one.
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / RULES.name).write_text(text[:first] + case[2])
            (Path(folder) / TESTS.name).write_text(head + "".join(parts[case[0]]))
            done = subprocess.run([promtool, "test", "rules", TESTS.name], cwd=folder, capture_output=True, text=True)
        said = done.stdout + done.stderr
        if done.returncode != 0 and "got:" not in said:
            raise ValueError(f"{case[0]} with {case[1]} is no rule: {said}")
        return done.returncode != 0

    cases = [(name, mistake, changed) for name, begin, end in rules(text) for mistake, changed in [("", text[begin:end]), *mistakes(text[begin:end])]]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(is_found, cases))
    # Without a mistake, nothing is to be found.
    wrong = [f"{name}: {mistake or 'its tests fail'}" for (name, mistake, _), is_wrong in zip(cases, found) if is_wrong != bool(mistake)]
    return wrong, sum(bool(mistake) for _, mistake, _ in cases)


def main(promtool):
    if names := untested():
        print(f"no test expects these alerts: {names}")
        return True
    wrong, count = undetected(promtool)
    for one in wrong:
        print(f"the tests do not find this mistake in the rule {one}")
    print(f"{count} mistakes, {count - len(wrong)} of them found")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
