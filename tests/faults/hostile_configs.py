"""Configurations that nobody should write: each a text that a number fixes."""

import copy
import datetime
import json
import random
from collections.abc import Iterator
from typing import Any

import yaml

from fa_audit.methods import METHODS
from fa_audit.networks import ARCHITECTURE_OPTIONS
from fa_audit.results.figures import FIGURES
from fa_audit.results.tables import TABLES

CALL = "!!python/object/apply:os.system"
KINDS = ("valid", "mutated", "hostile name", "huge grid", "odd YAML")
NAMES = (
    "../out", "../../../tmp/out", "/tmp/fa-audit-out", "a/b", "a/../../b", "..", ".", "", " ", "{seed}", "{", "}",
    "{0}", "a\nb", "a\tb", "a\x01b", "ü", "名", "\u202eabc", "\U0001f600", "a" * 300, "A", "1a", "-n", "--forceall",
    "$(touch out)", "`touch out`", "; touch out", "%s", "a b", "con\\..\\x", "*", "?", "[a]", "null", "true", "1e5",
    "é\u0301", "dfa+", "+", "dfa+frozen+frozen", "dfa+penalty-1", "dfa+penaltynan", "dfa+penalty1e400",
    "dfa+frozen99999999999", "../evil:Method", "os:system", "a.b.c:D", "fa_audit.methods.dfa:Nothing", "dfa/../../x",
    "dfa\nfa", "dfa+penalty1e-2/..", "penalty1e-2+dfa", "dfa+penalty 1", "dfa+penalty1_0", "dfa+penalty\u0661",
    "dfa+frozen\u0661", "__init__:X", "this:that",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**31, 2**63, 2**64, 10**400, -(10**30), 0.5, -0.0, 1e308, 5e-324, float("nan"),
    float("inf"), -float("inf"), 5.0, "", " ", "5", "1e-3", "nan", [], {}, [[]], [{}], {"a": 1}, [None], [1, 1],
    [True, 1], {"": 1}, {1: 2}, {None: None}, {True: False}, {1.5: "x", "x": 1.5}, b"bytes", "x" * 5000,
    "\ud7ff" * 50, list(range(2000)), {str(n): n for n in range(2000)}, "digits", "resmlp", ["dfa"],
    {"depth": [1, 2]}, [["dfa"]], [{"dfa": 1}], [1.5], ["bp", "bp"], datetime.date(2001, 1, 1), {"a"}, {"a": {1: b"x"}},
    "a\0b", "\ud800", "~nobody-of-this-name", "x" * 300 + ":y", "名" * 90 + ":X", [10**400], *NAMES,
)  # fmt: skip
SETTING = "settings: {a: {dataset: digits, architecture: {name: resmlp}, seeds: [1], runs: [dfa], %s}}"
MODEL = "models: {a: {model: 'torchvision.models:vit_b_16', dataset: digits, blocks: [a], reads: cls token, %s}}"
TEXTS = (
    "", " ", "\n", "#", "---", "---\n---\n", "null", "~", "[]", "{}", "1", "text", "- a\n- b", "[settings]",
    '"settings"', "settings", "settings:", "settings: null", "settings: []", "settings: {}", "settings: {a: }",
    "settings: {a: []}", "models:", "models: {}", "settings: {}\nmodels: {}", "\tsettings: {}", "settings:\n\ta: 1",
    "settings: {a: {b}", "settings: [", "'", '"', "settings: &a {b: *a}", "settings: &a\n  b: *a",
    "a: &a [*a]\nsettings: *a", "settings: *missing", "<<: 1", "<<: {settings: {}}", "settings: {<<: [1]}",
    "settings: {<<: &a {b: 1}}", "settings: 2001-01-01", "2001-01-01: {}", "settings: {2001-01-01: 1}",
    "settings: 2001-99-99", "settings: {1: {}}", "settings: {null: {}}", "settings: {true: {}}",
    "settings: {.nan: {}}", "settings: {? [a, b] : c}", "settings: {? {a: b} : c}", "? settings\n? models",
    f"settings: {CALL} [touch out]", f"{CALL} [touch out]", "settings: !!python/name:os.system ''",
    "settings: !!binary aGk=", "settings: !!set {a}", "settings: !!omap [a: 1]", "settings: !unknown {}",
    "settings: !!int x", "settings: !!float x", "settings: !!timestamp x", "%YAML 9.9\n--- {}", "settings: 0x_",
    "settings: 1:60", "settings: 08", "settings: 1_0", "settings: @a", "settings: `a`", "settings: |\n  a\n b", "...",
    "settings: >\n", "\ufeffsettings: {}", "settings: \x01", "settings: \x7f", "settings: \u2028",
    "settings: {a: 1, a: 2}", "[" * 200, "{a: " * 200, "[" * 3000 + "]" * 3000, "{a: " * 3000 + "1" + "}" * 3000,
    '{"a":' * 5000 + "1" + "}" * 5000, "- " * 2000, "a: " * 100, "x" * 100000, "settings: " + "x" * 100000,
    '{"settings": NaN}', '{"settings": {"a": 1e999}}', '{"settings": 1, "settings": 2}',
    '{"settings": {"\\ud800": 1}}', '"\\ud800"', '{"\\u0000": 1}', "[1, 2", '{"settings": ' + "1" * 5000 + "}",
    "settings: " + "9" * 5000, SETTING % "epochs: 9", SETTING % f"lr: 0x{'f' * 4000}",
    SETTING % f"weight_decay: {10**400}",
    SETTING % f"{'x' * 9000}: 1", SETTING % f"0x{'f' * 4000}: 1", SETTING % "vary: {batch_size: [8, true, 9]}",
    f"{SETTING % 'lr: 1'}\nthresholds: {{growth: {10**400}}}\nmonitor: {{stop_on: [D1]}}",
    f"{SETTING % 'lr: 1'}\nlabels: {{dfa: \"\\ud800\"}}", f"{SETTING % 'lr: 1'}\ndata_root: '~nobody-of-this-name'",
    f"{SETTING % 'lr: 1'}\ndata_root: \"a\\0b\"", MODEL % "arguments: {since: 2001-01-01}",
    MODEL % "arguments: {a: [!!set {b}]}", MODEL % "arguments: {a: {1: 2}}", MODEL % "arguments: {a: !!binary aGk=}",
    MODEL % f"arguments: {{a: [0x{'f' * 4000}]}}", f"models: {{a: {{model: '{'x' * 300}:y', dataset: digits}}}}",
)  # fmt: skip


def valid_config(choose: random.Random) -> dict[str, Any]:
    """A small configuration of everything that a configuration can hold."""
    settings = {name: _setting(choose) for name in choose.sample(["a", "b_2", "tiny"], choose.randint(1, 2))}
    config: dict[str, Any] = {"settings": settings}
    first = next(iter(settings))
    if choose.random() < 0.4:
        config["figures"] = {choose.choice(sorted(FIGURES)): {"settings": [first], "title": "A title, {seed} é"}}
    if choose.random() < 0.4:
        config["tables"] = {"mine": {"kind": choose.choice(sorted(TABLES)), "settings": [first], "title": "T"}}
    if choose.random() < 0.2:
        config["thresholds"] = {"growth": choose.choice([1, 50.0, 1e6]), "depth_margin": -0.5, "stability": 0}
    if choose.random() < 0.2:
        config["monitor"] = {"stop_on": choose.choice([["D1"], ["D2", "D1"]])}
    if choose.random() < 0.2:
        config["labels"] = {first: "Name\nof it"}
    if choose.random() < 0.2:
        config["models"] = {"vit": _model(choose)}
    if choose.random() < 0.1:
        config["data_root"] = choose.choice(["data", "/nowhere/at/all", "../elsewhere"])
    return config


def _setting(choose: random.Random) -> dict[str, Any]:
    kind, (one, two) = choose.choice(sorted(ARCHITECTURE_OPTIONS)), choose.sample(sorted(METHODS), 2)
    body: dict[str, Any] = {"dataset": choose.choice(["digits", "synthetic_teacher"]), "architecture": {"name": kind}}
    body |= {"seeds": choose.sample(range(9), choose.randint(1, 2)), "epochs": choose.randint(1, 9)}
    if choose.random() < 0.3:
        body |= {"lr": choose.choice([1, 0.01, 1e-3]), "weight_decay": choose.choice([0, 0.01])}
    asked = choose.randrange(4)
    if asked != 1:
        body["runs"] = choose.choice([[one], [one, f"{two}+penalty1e-2"], [f"{one}+frozen1", "bp+random_targets"]])
    if asked == 1:
        body["sweep"] = {"methods": [one], "penalties": choose.choice([[0], [0.1, 0, 1e-3]])}
    if asked == 2:
        body["vary"] = {"depth": [2, 3], "batch_size": [8]}
    if asked == 3:
        body["ladder"] = [two]
    return body


def _model(choose: random.Random) -> dict[str, Any]:
    return {
        "model": "torchvision.models:vit_b_16",
        "dataset": "digits",
        "blocks": choose.choice(["encoder.layers.*", ["a", "b"]]),
        "reads": "cls token",
    }


def _places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value below the top."""
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in children:
        yield (*path, key)
        yield from _places(child, (*path, key))


def _at(config: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        config = config[key]
    return config


def mutate(config: dict[str, Any], choose: random.Random) -> None:
    """Replace, remove, rename, add or nest one value, somewhere."""
    if not (places := list(_places(config))):
        return
    *path, key = choose.choice(places)
    parent = _at(config, tuple(path))
    how = choose.randrange(5)
    if how == 0:
        parent[key] = copy.deepcopy(choose.choice(VALUES))
    elif how == 1:
        del parent[key]
    elif how == 2 and isinstance(parent, dict):
        parent[choose.choice(NAMES)] = parent.pop(key)
    elif how == 3 and isinstance(parent, dict):
        parent[choose.choice([*NAMES, "epoch", "seed"])] = copy.deepcopy(choose.choice(VALUES))
    else:
        parent[key] = choose.choice([[parent[key]], {key: parent[key]}])


def hostile_name(config: dict[str, Any], choose: random.Random) -> None:
    """Give a name that stands in paths or in commands a hostile form."""
    name, setting = choose.choice(NAMES), next(iter(config["settings"].values()))
    first = next(iter(config["settings"]))
    entry = {"settings": [first], "title": name}
    places = (
        lambda: config["settings"].update({name: setting}),
        lambda: config.setdefault("figures", {}).update({name: entry | {"kind": "trajectories"}}),
        lambda: config.setdefault("tables", {}).update({name: entry | {"kind": "inventory"}}),
        lambda: config.setdefault("models", {}).update({name: _model(choose)}),
        lambda: config.update(models={"m": _model(choose) | {choose.choice(["model", "weights", "blocks"]): name}}),
        lambda: setting.update(runs=[name]),
        lambda: setting.update(sweep={"methods": [name], "penalties": [0]}),
        lambda: setting.update(baselines=["bp+frozen", name]),
        lambda: setting.update(dataset=name),
        lambda: setting.update(architecture={"name": name}),
        lambda: config.update(data_root=name),
        lambda: config.update(labels={name: name}),
    )
    choose.choice(places)()


def huge_grid(config: dict[str, Any], choose: random.Random) -> None:
    """Ask for far more runs than anybody can train."""
    setting = next(iter(config["settings"].values()))
    setting.pop("epochs", None)
    deep = {"architecture": {"name": "resmlp", "depth": 8192}, "ladder": sorted(METHODS), "seeds": list(range(99))}
    figure = {"kind": "trajectories", "settings": ["a"], "title": "t"}
    many = {
        "seeds": lambda: setting.update(seeds=list(range(choose.choice([10**5, 10**6])))),
        "vary": lambda: setting.update(vary={"depth": list(range(1, 500)), "epochs": list(range(1, 9999))}),
        "width": lambda: setting.update(vary={"width": list(range(1, 8000)), "depth": list(range(1, 8000))}),
        "ladder": lambda: setting.update(deep),
        "sweep": lambda: setting.update(sweep={"methods": sorted(METHODS), "penalties": [n / 7 for n in range(20000)]}),
        "runs": lambda: setting.update(runs=[f"dfa+penalty{n}e-9" for n in range(1, 70000)]),
        "settings": lambda: config["settings"].update({f"s{n}": setting for n in range(20000)}),
        "figures": lambda: config.update(figures={f"f{n}": figure for n in range(20000)}),
        "labels": lambda: config.update(labels={f"l{n}": "x" for n in range(50000)}),
        "nothing": lambda: _nothing_of_many(setting),
        "mixed": lambda: setting.update(seeds=[n if n % 2 else str(n) for n in range(60000)]),
    }
    many[choose.choice(sorted(many))]()


def _nothing_of_many(setting: dict[str, Any]) -> None:
    for part in ("runs", "sweep", "ladder"):
        setting.pop(part, None)
    setting["vary"] = {"width": list(range(1, 8000)), "depth": list(range(1, 8000))}


def hostile_config(number: int) -> tuple[str, str]:
    """The kind and the text of a configuration, the same for the same number.

    JSON is YAML, and the only form in which a huge configuration is read within a second.
    """
    text, odd = divmod(number, 6)
    if odd == 5:
        return "odd YAML", TEXTS[text % len(TEXTS)]  # every one of them
    choose = random.Random(number)
    kind = choose.choices(KINDS[:-1], weights=(2, 8, 4, 1))[0]
    config = valid_config(choose)
    if kind == "mutated":
        for _ in range(choose.choice([1, 1, 1, 2, 4])):
            mutate(config, choose)
    elif kind == "hostile name":
        hostile_name(config, choose)
    elif kind == "huge grid":
        huge_grid(config, choose)
    return kind, json.dumps(config) if kind == "huge grid" else yaml.safe_dump(
        config, allow_unicode=choose.random() < 0.5
    )
