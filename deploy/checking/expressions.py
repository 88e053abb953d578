"""The expressions of the dashboard and of the alert rules."""

import json
import math
import re
import shutil
import time
import urllib.parse

from .servers import DEADLINE, HERE, call, check_run, fail, free_port, is_ready, start, wait_for

OTHER_JOB = "prometheus"  # a program that is scraped beside sclub


def top_level(expression, words):
    """Splits an expression at words that are outside of all parentheses, braces, brackets and strings."""
    parts, depth, begin, at, quote = [], 0, 0, 0, None
    while at < len(expression):
        letter = expression[at]
        if quote:
            quote = None if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter in "({[":
            depth += 1
        elif letter in ")}]":
            depth -= 1
        elif depth == 0 and (found := next((word for word in words if expression.startswith(word, at)), None)):
            parts.append(expression[begin:at])
            at += len(found)
            begin = at
            continue
        at += 1
    return [part.strip() for part in parts + [expression[begin:]]]


def left_sides(expression):
    """The values that a rule compares: `a > 1 and b == 0` has a and b."""
    sides = top_level(expression, (" and ", " unless ", " or "))
    sides = [re.sub(r"^on \([\w, ]*\) ", "", side) for side in sides]
    return [top_level(side, (" == ", " != ", " >= ", " <= ", " > ", " < "))[0] for side in sides]


def dashboard_expressions(dashboard):
    places = dashboard["panels"] + dashboard["annotations"]["list"]
    for place in places:
        for target in place.get("targets", [place]):
            if "expr" in target:
                yield f"panel {place.get('title', place.get('name'))}", target["expr"]


def check_types(place, expression, types):
    """Counters are used as rates, gauges are not, and quantiles keep the label `le`."""
    for found in re.finditer(r"(\w*\()?\b((?:sclub|process)_\w+)", expression):
        function, name = found[1] or "", found[2]
        kind = metric_type(name, types)
        if (function in ("rate(", "increase(")) != (kind != "gauge"):
            fail(f"{place}: {function}{name} is the use of a {kind}")
    for found in re.finditer(r"histogram_quantile\([\d.]+, sum by \(([\w, ]*)\)", expression):
        if "le" not in found[1].split(", "):
            fail(f"{place}: histogram_quantile() needs the label le")


def metric_type(name, types):
    """The type of a metric, or of the series of a histogram."""
    base = re.sub("_(bucket|sum|count)$", "", name)
    found = types.get(name) or types.get(base)
    if not found:
        fail(f"there is no metric {name}")
    return found


def check_dashboard(dashboard):
    """What Grafana needs and Prometheus cannot tell."""
    source = {"type": "prometheus", "uid": "${datasource}"}
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            continue
        title = panel["title"]
        if not panel.get("description") or not panel["fieldConfig"]["defaults"].get("unit"):
            fail(f"panel {title} has no description or no unit")
        letters = [target["refId"] for target in panel["targets"]]
        if len(set(letters)) != len(letters) or panel["datasource"] != source:
            fail(f"panel {title}: two targets have the same letter, or its data source is not the variable")
        for target in panel["targets"]:
            # Else a server that is gone shows its last value.
            if panel["type"] == "stat" and (target.get("instant"), target["range"]) != (True, False):
                fail(f"panel {title}: a target is not instant")
            if not target.get("legendFormat") or target["datasource"] != source:
                fail(f"panel {title}: a target has no legend, or its data source is not the variable")
    panels = dashboard["panels"]
    ids = [panel["id"] for panel in panels]
    if len(set(ids)) != len(ids):
        fail("two panels have the same id")
    taken = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        if cells & taken or place["x"] + place["w"] > 24:
            fail(f"panel {panel['title']} overlaps another one, or the border")
        taken |= cells
        if panel["type"] != "row" and not panel["targets"]:
            fail(f"panel {panel['title']} shows nothing")


def check_takeover(promtool, dashboard, work):
    """The mean reward, in the dashboard and on the operations page, when a node that is killed leaves its users to another."""
    series = lambda name, node, values: {"series": f'{name}{{job="sclub", instance="{node}", space="default"}}', "values": values}
    # Ten rewards a minute of 0.5 each. The node "a" ends after 20 minutes.
    accumulated = [("a", "1000+5x20 stale"), ("b", "100x20 1205+5x20")]
    rewards = [("a", "500+10x20 stale"), ("b", "0x20 10+10x20")]
    given = [series("sclub_accumulated_reward", *one) for one in accumulated] + [series("sclub_rewards_total", *one) for one in rewards]
    [panel] = [panel for panel in dashboard["panels"] if panel["title"] == "Mean reward"]
    of_panel = re.sub(r"\{.*?\}", "", panel["targets"][0]["expr"])
    of_page = re.search(r"`(\(sum by \(job, space\) \(sclub_accumulated_reward\).*?)`", (HERE.parent / "docs/operations.md").read_text())[1]
    tests = [
        {"expr": f"round({expression}, 0.1)", "eval_time": "30m", "exp_samples": [{"labels": '{job="sclub", space="default"}', "value": 0.5}]}
        for expression in (of_panel, of_page)
    ]
    # JSON is YAML.
    file = work / "takeover.yml"
    file.write_text(json.dumps({"tests": [{"interval": "1m", "input_series": given, "promql_expr_test": tests}]}))
    check_run([promtool, "test", "rules", file])


class Prometheus:
    def __init__(self, programs, work, targets):
        self.url = f"http://127.0.0.1:{free_port()}"
        config = (HERE / "prometheus/prometheus.yml").read_text()
        for old, new in [("15s", "1s"), ('["localhost:8080"]', json.dumps(targets))]:
            if old not in config:
                fail(f"prometheus.yml has no {old}")
            config = config.replace(old, new)
        # Another program, of which the dashboard must show nothing.
        address = self.url.removeprefix("http://")
        config += f"\n  - job_name: {OTHER_JOB}\n    static_configs:\n      - targets: [{address}]\n"
        (work / "prometheus.yml").write_text(config)
        shutil.copy(HERE / "prometheus/sclub.rules.yml", work)
        command = [programs / "prometheus", f"--config.file={work}/prometheus.yml", f"--storage.tsdb.path={work}/tsdb"]
        command.append(f"--web.listen-address={address}")
        log = work / "prometheus.log"
        self.process = start(command, log.open("w"))
        wait_for("Prometheus", lambda: is_ready(f"{self.url}/-/ready"), log)

    def get(self, path, **query):
        answer = call(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}")
        return answer["data"]

    def values(self, expression):
        result = self.get("query", query=expression)["result"]
        return [float(sample["value"][1]) for sample in result]

    def has_data(self, expression):
        return any(not math.isnan(value) for value in self.values(expression))


def check_others(prometheus, dashboard, values):
    """Prometheus scrapes other programs, too: no panel shows them."""
    other = f'process_start_time_seconds{{job="{OTHER_JOB}"}}'
    [sample] = wait_for("scrape of another job", lambda: prometheus.get("query", query=other)["result"])
    for place, expression in dashboard_expressions(dashboard):
        for shown in prometheus.get("query", query=filled(expression, values))["result"]:
            if sample["metric"]["instance"] in shown["metric"].values():
                fail(f"{place} shows another program: {shown['metric']}")


def check_idle(prometheus, dashboard, values, idle):
    """A server without any request: no panel divides by zero, and no alert is even pending."""
    for place, expression in dashboard_expressions(dashboard):
        expression = filled(expression, values | {"instance": escaped(idle)})
        # A quantile of nothing is not a number, and so is what a policy has not computed yet.
        is_unknown = "histogram_quantile" in expression or re.fullmatch(r"sclub_\w+\{[^}]*\}", expression)
        if not is_unknown and any(math.isnan(value) for value in prometheus.values(expression)):
            fail(f"{place} divides by zero on an idle server: {expression}")
    # Other programs may fill the disk of this machine, and keep it busy for some seconds.
    of_idle = f'ALERTS{{instance="{idle}", alertname!~"SclubDisk.*"}}'
    wait_for("state without an alert of an idle server", lambda: not prometheus.get("query", query=of_idle)["result"])
    # The space that gets clicks only.
    alarm = 'ALERTS{alertname="SclubRewardsEqual", space="clicks"}'
    wait_for("alert SclubRewardsEqual", lambda: prometheus.values(alarm))


def check_dead(prometheus, dashboard, values, dead):
    """The panel Ready says no about a server that does not answer, and no other panel of now shows it."""
    shown = lambda panel: [
        sample["value"][1]
        for target in panel["targets"]
        for sample in prometheus.get("query", query=filled(target["expr"], values))["result"]
        if sample["metric"].get("instance") == dead
    ]
    for panel in dashboard["panels"]:
        if panel["type"] == "stat":
            expected = ["0"] if panel["title"] == "Ready" else []
            wait_for(f"{expected} of a dead server in the panel {panel['title']}", lambda: shown(panel) == expected)


def variables(prometheus, dashboard):
    """The values of the dashboard's variables as Grafana fills them in, with All chosen everywhere."""
    values = {"__rate_interval": "10s", "__range": "1m"}
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            series, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"]).groups()
            found = prometheus.get(f"label/{label}/values", **{"match[]": filled(series, values)})
            if not found:
                fail(f"the variable {variable['name']} has no values")
            values[variable["name"]] = variable.get("allValue") or f"({'|'.join(map(escaped, found))})"
    return values


def escaped(value):
    """A value of a variable within a regular expression within a string of PromQL."""
    return re.sub(r"[$^*{}\[\]'+?.()|\\]", r"\\\\\g<0>", value)


def filled(expression, values):
    """An expression of the dashboard, with values for its variables, and no range longer than this check."""
    for name, value in values.items():
        expression = expression.replace(f"${name}", value)
    return expression.replace("15m", "5s")


def check_expressions(prometheus, dashboard, targets, texts, absent):
    """Every expression returns data, unless it is about a metric that no server has here."""
    types = {name: kind for text in texts for name, kind in types_of(text)}
    wanted = {}
    rules = wait_for("rules", lambda: prometheus.get("rules")["groups"])
    rules = [rule for group in rules for rule in group["rules"]]
    can_have_data = lambda expression: not any(name in expression for name in absent)
    for rule in rules:
        if not can_have_data(rule["query"]):
            continue
        check_types(f"alert {rule['name']}", rule["query"], types)
        for side in left_sides(rule["query"]):
            wanted[side] = f"alert {rule['name']}"
    is_up = lambda: prometheus.get("query", query=f'sum(up{{job="sclub"}}) == {len(targets)}')["result"]
    wait_for("scrape of all servers", is_up)
    values = variables(prometheus, dashboard)
    check_others(prometheus, dashboard, values)
    for place, expression in dashboard_expressions(dashboard):
        if not can_have_data(expression):
            continue
        check_types(place, expression, types)
        for side in left_sides(filled(expression, values)):
            wanted[side] = place
    missing = dict(wanted)
    begun = time.monotonic()
    while missing and time.monotonic() < begun + DEADLINE:
        missing = {one: place for one, place in missing.items() if not prometheus.has_data(one)}
        time.sleep(0.5)
    if missing:
        fail("no data for:\n" + "\n".join(f"  {place}: {one}" for one, place in missing.items()))
    rules = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
    broken = [rule["name"] for rule in rules if rule["health"] != "ok"]
    if broken:
        fail(f"Prometheus cannot evaluate {broken}")
    check_idle(prometheus, dashboard, values, targets[-1])
    print(f"   {len(wanted)} expressions of {len(rules)} alerts and {len(dashboard['panels'])} panels return data")


def types_of(text):
    """The names and types of the metrics of a server."""
    return re.findall(r"^# TYPE (\w+) (\w+)$", text, re.M)
