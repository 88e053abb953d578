"""The spans that the collector receives."""

import re

from .servers import call, fail, inline

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CLUSTER_TRACE = "5bf7651916cd43dd8448eb211c80319d"


def send_traced_to_node(node):
    """Decisions and rewards of many users, so that other nodes own some, in one trace of the caller."""
    headers = {"traceparent": f"00-{CLUSTER_TRACE}-{CALLER}-01", "tracestate": "vendor=value"}
    for number in range(12):
        user = {"user": f"traced{number}", "items": inline(number)}
        shown = call(f"{node}/v1/recommend", user, headers=headers)
        call(f"{node}/v1/feedback", {"decision": shown["decision"], "reward": number % 2}, headers=headers)


def send_traced(url):
    """A decision and its reward, as parts of a trace that the caller has begun."""
    headers = {"traceparent": f"00-{TRACE}-{CALLER}-01", "x-request-id": "watched"}
    shown = call(f"{url}/v1/recommend", {"user": "anna", "items": inline(1)}, headers=headers)
    call(f"{url}/v1/feedback", {"decision": shown["decision"], "reward": 1}, headers=headers)
    call(f"{url}/v1/users/anna", headers=headers)
    unsampled = {"traceparent": f"00-{TRACE[::-1]}-{CALLER}-00"}
    call(f"{url}/v1/users/anna", headers=unsampled)


def spans_of(log):
    """The spans in the log of the collector: its detailed output is a list of `key : value` and `-> key: Type(value)`."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", log)
    for block in re.split(r"^Span #\d+$", text, flags=re.M)[1:]:
        plain = re.findall(r"^ +(\w[\w ]*\w|ID) +: (.*)$", block, re.M)
        attributes = re.findall(r"^ +-> ([\w.]+): \w+\((.*)\)$", block, re.M)
        yield dict(plain) | dict(attributes)


def check_spans(log):
    """The collector has every span, with its parent and its attributes, and no id of a user."""
    spans = list(spans_of(log))
    names = {span["Name"] for span in spans if span["Trace ID"] != TRACE}
    if not {"fit", "snapshot"} <= names:
        fail(f"the collector got no fits or snapshots: {names}")
    traced = {span["Name"]: span for span in spans if span["Trace ID"] == TRACE}
    wanted = {"POST /v1/recommend", "POST /v1/feedback", "GET /v1/users/{id}", "commit"}
    if set(traced) != wanted:
        fail(f"the trace has {set(traced)}, not {wanted}")
    for name in wanted - {"commit"}:
        method, route = name.split()
        expected = {"Parent ID": CALLER, "Kind": "SPAN_KIND_SERVER", "http.request.method": method, "http.route": route}
        expected |= {"http.response.status_code": "200", "sclub.space": "default", "sclub.request_id": "watched"}
        found = {key: traced[name].get(key) for key in expected}
        if found != expected:
            fail(f"the span {name} has {found}, not {expected}")
    if traced["commit"]["Parent ID"] != traced["POST /v1/feedback"]["ID"]:
        fail("the commit is not a part of the feedback that it writes")
    for word, is_there in [("service.name: Str(shop)", True), (TRACE[::-1], False), ("anna", False)]:
        if (word in log) != is_there:
            fail(f"'{word}' is {'not ' if is_there else ''}in what the collector got")


def check_cluster_spans(log):
    """A request that one node forwards and another one answers is one trace: each span is within that of its caller."""
    spans = {span["ID"]: span for span in spans_of(log) if span["Trace ID"] == CLUSTER_TRACE}
    parents = {}
    for span in spans.values():
        parent = spans.get(span["Parent ID"])
        if not parent and span["Parent ID"] != CALLER:
            fail(f"the span {span} has no parent in the trace")
        parents.setdefault(span["Name"], set()).add(parent["Name"] if parent else "the caller")
    requests = {"POST /v1/recommend", "POST /v1/feedback"}
    wanted = {name: {"the caller"} for name in requests} | {"forward": requests, "answer": {"forward"}}
    # Writes of users that the node owns itself are parts of its own requests.
    wanted["commit"] = {"answer", "POST /v1/feedback"}
    if parents != wanted:
        fail(f"the spans of the cluster have the parents {parents}, not {wanted}")
    answers = [span for span in spans.values() if span["Name"] == "answer"]
    if {span["Kind"] for span in answers} != {"SPAN_KIND_SERVER"}:
        fail("an answer is not the span of a server")
    for span in answers:
        if spans[span["Parent ID"]]["sclub.partition"] != span["sclub.partition"]:
            fail("an answer is about another partition than the call")
