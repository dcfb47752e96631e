"""Made-up rows of tidy tables, and whether a figure with texts in its panels can be read."""

import itertools

import pandas as pd
from drawing import _overlap, texts

from fa_audit.results.tidy import Tidy

LONG = "credit_bridge+penalty1e-2+random_targets"
WALK_BACK = "needs walk-back ({})".format
HEALTHY = {"accuracy": 0.6, "own_frozen_acc": 0.4, "shallow_acc": 0.38, "max_growth": 1.5, "grad_norm_last": 1e-3,
           "stability": 0.05, "deep_cosine": 0.8, "deep_rho": 0.7, "deep_nudging": -0.01, "depth": 4, "penalty": 0.0,
           "frozen_blocks": 0, "shallow": False, "random_targets": False, "three_check": "PASS",
           "four_check": "trustworthy", "cosines": (0.8, 0.8), "losses": (2.0, 1.5, 1.0)}  # fmt: skip
EXPLODED = {"accuracy": 0.3, "own_frozen_acc": 0.35, "max_growth": 1.2e4, "grad_norm_last": 2e-9, "stability": 0.45,
            "three_check": "FAIL(D1+D2+D3)", "four_check": WALK_BACK("a, b, c, d"), "cosines": (0.4, -0.01),
            "deep_nudging": -2.4e-10, "deep_cosine": -0.01, "deep_rho": 0.02}  # fmt: skip


def network(run, *, setting="main", seed=42, **found):
    """One row of the runs table, healthy but for what is given, with `cosines` per block and `losses` per epoch."""
    return HEALTHY | {"setting": setting, "run": run, "seed": seed, "method": run.partition("+")[0]} | found


def tidy_of(rows, settings=("main",)):
    """The tables of some networks."""
    keys = [{name: row[name] for name in ("setting", "run", "seed")} for row in rows]
    layers = [key | {"layer": i, "cosine": c} for key, row in zip(keys, rows) for i, c in enumerate(row["cosines"])]
    history = [key | {"epoch": epoch, "layer": layer, "train_loss": loss}
               for key, row in zip(keys, rows)
               for (epoch, loss), layer in itertools.product(enumerate(row["losses"], 1), (0, 1))]  # fmt: skip
    runs = pd.DataFrame(rows).drop(columns=["cosines", "losses"])
    return Tidy(tuple(settings), runs, pd.DataFrame(layers), pd.DataFrame(history))


def crowd(count=11, settings=("main",), seeds=(42, 123, 456), name=LONG):
    """Many networks of long names, good and bad in turn, whose numbers all differ."""
    rows, shifted = [], ("max_growth", "grad_norm_last", "deep_rho", "deep_nudging")
    for rank, setting, seed in itertools.product(range(count), settings, seeds):
        kind = EXPLODED if rank % 2 else {}
        shift = 1 + rank / 50 + seed / 1e4
        run = "bp" if rank == 0 else f"{name}_{rank:02d}"
        row = network(run, setting=setting, seed=seed, **kind)
        rows.append(row | {key: row[key] * shift for key in shifted} | {"accuracy": row["accuracy"] - rank / 100})
    return tidy_of(rows, settings)


def assert_panels_readable(figure):
    """No text is cut or touches another one; one that stands in a panel lies inside, all others outside of it."""
    inner = [(ax, text) for ax in figure.axes for text in ax.texts]
    everything = texts(figure)
    for text, box in everything:
        inside = figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1
        assert inside and figure.bbox.y0 <= box.y0 and box.y1 <= figure.bbox.y1, f"{text!r} is cut"
    for (text, box), (other, other_box) in itertools.combinations(everything, 2):
        assert not _overlap(box, other_box), f"{text!r} and {other!r} overlap"
    for ax, text in inner:
        box, panel = text.get_window_extent(), ax.get_window_extent()
        assert panel.x0 <= box.x0 and box.x1 <= panel.x1, f"{text.get_text()!r} leaves its panel"
        text.set_visible(False)
    for (text, box), ax in itertools.product(texts(figure), figure.axes):
        assert not _overlap(box, ax.get_window_extent()), f"{text!r} lies on a panel"
    for _, text in inner:
        text.set_visible(True)
