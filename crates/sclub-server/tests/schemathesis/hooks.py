"""JSON lines for Schemathesis, ids that the server knows, and the rules that no JSON schema can state.

A valid request is one that the description allows and that fulfils these rules too. Requests that are meant to be invalid are
sent as they are.
"""

import itertools
import json
import os
import urllib.error
import urllib.request

import schemathesis

#: The address that the description was read from, without its name, and a key.
API, KEY = os.environ["API"], os.environ["KEY"]

#: Settings of a space that can be combined in any way. Those that are left out: constants and the preset must be those of the
#: policy, `features` is a file, `unanswered` is a reward and needs the journal, and `context`, `reward-min` and `reward-max` have
#: rules of their own.
FREE = {
    "dim", "explore-share", "journal-days", "keep-log", "lifetime", "max-batch", "max-body", "max-candidates", "max-id", "max-k",
    "max-seen", "policy", "propensities", "rate", "snapshot-every",
}  # fmt: skip

numbers = itertools.count()
spaces = itertools.count()
#: The arms of the experiments that were started, by name.
arms = {}
#: The decisions that Schemathesis was told of. They come back by links.
told = set()
#: Users who have given a reward.
rewarded = []
turns = itertools.count()


def ask(path, body=None):
    """The server's answer to a call of our own; None if it refuses it."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
    try:
        with urllib.request.urlopen(urllib.request.Request(f"{API}/{path}", data, headers), timeout=60) as answer:
            return json.load(answer)
    except urllib.error.HTTPError:
        return None


def open_decision():
    """A new decision, which has no reward yet. None if there are no items."""
    shown = ask("recommend", {"user": f"open{next(numbers)}"})
    return shown and shown["decision"]


def rewarded_user():
    """A user who has given a reward and was not forgotten."""
    while rewarded and ask(f"users/{rewarded[-1]}") is None:
        rewarded.pop()
    if not rewarded:
        user = f"known{next(numbers)}"
        shown = ask("recommend", {"user": user})
        if shown and ask("feedback", {"decision": shown["decision"], "reward": 1}):
            rewarded.append(user)
    return rewarded[-1] if rewarded else None


def cluster():
    """The id of a cluster. None if the policy has none."""
    rewarded_user()
    page = ask("clusters")
    return page["clusters"][0]["cluster"] if page and page["clusters"] else None


@schemathesis.serializer("application/x-ndjson")
def to_lines(ctx, value):
    """A list is one line for each entry. Anything else, which is invalid, is one line."""
    entries = value if isinstance(value, list) else [value]
    return "".join(json.dumps(entry) + "\n" for entry in entries).encode()


@schemathesis.deserializer("application/x-ndjson")
def from_lines(ctx, response):
    return [json.loads(line) for line in response.content.splitlines()]


@schemathesis.deserializer("application/octet-stream")
def from_bytes(ctx, response):
    return response.content.hex()


def text_of(id):
    """7 and 7.0 are the same id as "7"."""
    return str(int(id)) if isinstance(id, float) else str(id)


def fit_recommendation(body):
    # No two items have the same id.
    if body.get("items"):
        body["items"] = list({text_of(item["id"]): item for item in body["items"]}.values())
    if body.get("candidates"):
        body["candidates"] = list({text_of(id): id for id in body["candidates"]}.values())
    # A range does not end before it begins.
    for condition in (body.get("filter") or {}).values():
        if isinstance(condition, dict) and "min" in condition and "max" in condition:
            condition["min"], condition["max"] = sorted((condition["min"], condition["max"]))
    # A feature times a context feature is at most 1e12.
    for name, value in (body.get("context") or {}).items():
        if isinstance(value, (int, float)):
            body["context"][name] = min(max(value, -1), 1)


def fit_feedback(body):
    # Of an id that is made up, the server says no more than that it does not know it. Two of three are of an open decision.
    if body["decision"] not in told and next(turns) % 3 > 0:
        body["decision"] = open_decision() or body["decision"]
    # There are no more rewards than items shown.
    if body.get("rewards"):
        del body["rewards"][1:]


def fit_experiment(body):
    # A name is used once, the shares sum to 100, and constants are those of the policy.
    body["name"] = f"x{next(numbers)}"
    body["shadows"] = body.get("shadows", [])[: 8 - len(body["arms"])]
    for number, arm in enumerate(body["arms"] + body["shadows"]):
        arm.update(name=f"a{number}", preset=None, constants={})
        if number < len(body["arms"]):
            arm["share"] = 10
    body["arms"][0]["share"] = 110 - 10 * len(body["arms"])


def fit_space(body):
    for name in set(body) - FREE:
        del body[name]


def fit_raw(item):
    # A number that is sent as a text is a number, and no field is given twice.
    if "features" not in item:
        item.pop("data", None)
    if not isinstance(item.get("price"), (int, float, type(None))):
        item["price"] = "4.50 €"


def fit_lines(body):
    for item in body:
        fit_raw(item)
        # It has a field that features are made from.
        if "features" not in item and not {"title", "tags", "price"} & set(item):
            item["price"] = 1


def fit_batch(field, fit):
    return lambda body: [fit(entry) for entry in body[field]]


BODIES = {
    "recommend": fit_recommendation,
    "recommend_batch": fit_batch("requests", fit_recommendation),
    "feedback": fit_feedback,
    "feedback_batch": fit_batch("feedback", fit_feedback),
    "start_experiment": fit_experiment,
    "make_space": fit_space,
    "patch_item": fit_raw,
    "put_items": fit_lines,
}


IDS = {"user": rewarded_user, "preview": rewarded_user, "cluster": cluster}


def call_of(case):
    """The name of the call. One with another method than the description has is none."""
    is_own = case.method.upper() == case.operation.method.upper()
    return case.operation.definition.raw.get("operationId") if is_own else None


@schemathesis.hook
def before_call(ctx, case, kwargs):
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return
    call = call_of(case)
    if call in BODIES and isinstance(case.body, (dict, list)):
        body = json.loads(json.dumps(case.body))
        BODIES[call](body)
        case.body = body
    # Half of the ids are those of somebody who is there.
    if call in IDS and next(turns) % 2 == 0:
        case.path_parameters["id"] = IDS[call]() or case.path_parameters["id"]
    # A space that exists already tells nothing about its settings.
    if call == "make_space" and next(spaces) < 40:
        case.path_parameters["space"] = f"s{next(numbers)}"
    # The name is given twice.
    if call == "delete_space":
        case.query["confirm"] = case.path_parameters["space"]
    # The winner is an arm.
    if call == "end_experiment" and case.path_parameters["name"] in arms:
        case.body = {"winner": arms[case.path_parameters["name"]]}


@schemathesis.hook
def after_call(ctx, case, response):
    if response.status_code != 200:
        return
    call = call_of(case)
    if call == "start_experiment":
        card = response.json()
        arms[card["name"]] = card["arms"][0]["name"]
    elif call == "recommend":
        told.add(response.json()["decision"])
    elif call == "recommend_batch":
        told.update(one["decision"] for one in response.json()["decisions"] if "decision" in one)
