"""The author's checklist of a report: credit, the paper's pitfalls, a reviewer's questions, and
reproducibility.

Everything follows from the audits' JSON; a pitfall that the evidence does not rule out is not ruled
out. Facts that only the author knows are fields to fill in. No torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from fa_audit.audit.record import number
from fa_audit.audit.sentences import facts_of, rulings
from fa_audit.core.checks import CREDITS
from fa_audit.core.errors import unknown
from fa_audit.core.intervals import student_t
from fa_audit.documents.document import Entry, capital
from fa_audit.experiments.spec import DEPARTURES
from fa_audit.methods import METHODS
from fa_audit.methods.info import NOT_STATED, SYMBOLS, stated
from fa_audit.results.disclosures import SHORT, by_seed, ends_of, values_of
from fa_audit.results.questions import QUESTIONS
from fa_audit.results.seed_group import SeedGroup
from fa_audit.results.statistics import extent

Audit = Mapping[str, Any]
GIVEN = "credits from a function"  # begins the reason why their auxiliary nets are not known
RESOLUTION = (
    1e-2  # relative error of float32 gradients above which an audit warns (docs/protocol.md)
)
EXACT = 1e-6
FIELDS = {  # what an author may be asked: name -> question
    "formula": "the formula of the local credit",
    "feedback": "distribution, scale, fixed or fresh, and seed of the feedback",
    "hyperparameters": "data split, optimiser, learning rate, schedule, batch size, epochs, and how they were chosen",
    "compute": "compute of the whole project, runs that are not reported included",
    "code": "where the code can be had, and the commit",
    "data": "where the data can be had, and their split",
    "licences": "licences of data, models and code",
} | {question.name: question.ask for question in QUESTIONS}
FIXED = {
    "adamw": "betas (0.9, 0.999), eps 1e-08",
    "sgd": "momentum 0.9",
}  # those of training/optimiser.py
HYPERPARAMETERS = (
    "optimiser", "lr", "weight_decay", "batch_size", "epochs", "penalty", "frozen_blocks", "shallow", "random_targets",
    "clip", "normalise", "rms_floor", "frozen_embedding", "validation",
)  # fmt: skip
USUAL_SPLITS = ("cifar10", "cifar100")  # data sets that come in a training and a test set
LICENCES = {
    "cifar10": "CIFAR-10 (Krizhevsky 2009): its authors state no licence",
    "cifar100": "CIFAR-100 (Krizhevsky 2009): its authors state no licence",
    "digits": "Optical Recognition of Handwritten Digits (Alpaydin, Kaynak 1998), UCI repository: CC BY 4.0",
    "synthetic_teacher": "samples of a random teacher network, drawn by this package (MIT)",
}


class Author:
    """The author's own answers, and which are still open."""

    def __init__(self, answers: Mapping[str, Any] | None = None) -> None:
        """Keep the answers.

        Raises:
            AuditError: an answer belongs to no question.
        """
        self.answers = {name: str(text) for name, text in (answers or {}).items()}
        if strange := sorted(self.answers.keys() - FIELDS.keys()):
            raise unknown("answer", strange[0], FIELDS, where="the author's answers")

    def says(self, field: str, otherwise: str | None = None) -> str:
        """Return the author's answer to a question, else what is known without them, else the field
        to fill in.
        """
        open_field = f"[to be stated by the author ({field}): {FIELDS[field]}]"
        return self.answers.get(field, open_field if otherwise is None else otherwise)

    def adds(self, field: str, known: str) -> str:
        """Return the audit's own facts, which no answer replaces, and the author's answer after
        them.
        """
        return "; ".join([known, *([self.answers[field]] if field in self.answers else [])])


def kind_of(audit: Audit) -> str:
    """Return where the credits come from: a `method`, a function that was `given`, or `none`."""
    if not audit["credit"]:
        return "none"
    reasons = (block["bridge_residual"].get("reason") or "" for block in audit["credit"])
    return "given" if any(reason.startswith(GIVEN) for reason in reasons) else "method"


def cosines(audit: Audit) -> tuple[list[float | None], list[float], float | None]:
    """Return the cosine of every block, those that were measured, and their mean over the blocks l
    >= 1.
    """
    found = values_of(audit["credit"], "cosine")
    return (
        found,
        [one for one in found if one is not None],
        number(audit["deep"].get("cosine", {}).get("value")),
    )


class Finding(NamedTuple):
    """Whether something holds, and why: a text with a slot ``{}`` for every value."""

    holds: bool
    why: str
    values: tuple[float | None, ...] = ()


def over_seeds(
    group: SeedGroup, find: Callable[[Audit], Finding], words: Mapping[bool, str]
) -> str:
    """Return what was found of every audit: equal texts once, with the range of their values."""
    found, said = [find(audit) for audit in group.audits], []
    for finding, (whose, members) in group.alike(
        [each._replace(values=()) for each in found]
    ).items():
        values = (
            extent(column, SHORT) or "n/a"
            for column in zip(*(found[member].values for member in members))
        )
        said.append(f"{whose}{words[finding.holds]}{finding.why.format(*values)}")
    return "; ".join(said)


# --- the credit ----------------------------------------------------------------------------------------------------


def credit_entries(group: SeedGroup, author: Author) -> Iterator[Entry]:
    """Yield formula and feedback."""
    if "spec" in group.audits[0]:
        yield from _stated(group, author)
        return
    known = {"given": "given to the audit as a function; ", "none": "no credits were audited; "}
    prefix = known.get(kind_of(group.audits[0]), "")
    yield Entry("Formula of the credit", prefix + author.says("formula"))
    yield Entry("Feedback", prefix + author.says("feedback"))


def _stated(group: SeedGroup, author: Author) -> Iterator[Entry]:
    """Yield what the method of a trained run states."""
    spec = DEPARTURES | group.audits[0]["spec"]
    method = stated(spec["method"])
    known = method.equation or method.latex
    source = f"({method.source}). " if method.source else ""
    normalised = spec["normalise"] and method.normalises
    learns = f" Blocks learn from r(a_l) = a_l / (rms(a_l) + {spec['rms_floor']:g})." * normalised
    warm = (
        " The training ended in the warm-up, so that the audited credits are DFA's, (p - y) B_l^T."
    )
    says = f"{source}{SYMBOLS}.{learns}{warm * _ended_in_warm_up(group.audits[0])}"
    missing = f"{NOT_STATED} (assign equation and latex in its class and name it: --method, or give it as an answer)"
    text = author.says("formula", says if known else missing)
    yield Entry("Formula of the credit", text, method.equation or method.latex, method.latex)
    when = "initialised after the weights from the stream of torch.manual_seed(seed)"
    seeds = f"{when}, seeds {', '.join(map(str, group.labels))}; saved with the checkpoint"
    parts = [
        method.feedback or f"feedback {NOT_STATED}",
        method.drawn or f"distribution, scale and life {NOT_STATED}",
    ]
    kept = [] if method.drawn.startswith("none") else [seeds]
    yield Entry("Feedback", author.says("feedback", "; ".join([*parts, *kept])))


def _ended_in_warm_up(audit: Audit) -> bool:
    """Return whether the training ended in an epoch in which the credit bridge takes DFA's credits."""
    spec = audit["spec"]
    ends = (audit.get("stopped_after"), spec.get("snapshot"), spec["epochs"])
    last = next(epoch for epoch in ends if epoch is not None)
    progress = (last - 1) / max(1, spec["epochs"])  # where that epoch began
    return (
        spec["method"] == "credit_bridge"
        and progress < stated("credit_bridge").constants["warm_up"]
    )


def _aggregation(audit: Audit) -> Finding:
    (first, *_), known, deep = cosines(audit)
    left_out = max(block["cosine"]["n"] - block["cosine"]["n_valid"] for block in audit["credit"])
    text = (
        "per sample with the gradient at the block's output, mean over the {} samples of one batch (without an angle"
        " and left out: {} at most); block by block, the headline being the mean over the blocks l >= 1"
        " (deep); norms without epsilon, torch's clamp of 1e-8 only beside it. Headline {}; block 0 {}; mean over all"
        " blocks {}"
    )
    average = sum(known) / len(known) if known else None
    return Finding(True, text, (audit["samples"], left_out, deep, first, average))


# --- pitfalls ------------------------------------------------------------------------------------------------------


def _norms(audit: Audit) -> Finding:
    """Find norms that vary from sample to sample, and those of states that obey the law of cosines."""
    intervals = [ends_of(audit["checks"][name]) for name in ("scale", "reference")]
    spread = any(None not in ends and ends[0] != ends[1] for ends in intervals)
    factors = sorted(
        factor
        for state in audit["layers"][1:]
        if (factor := _off_cosines(audit["layers"][0], state))
    )
    if not spread:
        return Finding(
            False, "no interval over samples shows that norms were taken sample by sample"
        )
    if not factors:
        return Finding(
            False, "the states' displacements, against which norms could be checked, are not there"
        )
    middle = factors[len(factors) // 2]
    text = (
        "norms vary from sample to sample (their intervals over samples have a width), and the states are displaced by"
        " {} times what their norms and angles give"
    )
    return Finding(0.5 <= middle <= 2, text, (middle,))


def _off_cosines(first: Mapping[str, Any], state: Mapping[str, Any]) -> float | None:
    """Return the factor between the measured displacement and that of the law of cosines, which
    holds for L2 norms.
    """
    lengths = [number(first["hidden_norm"]), number(state["hidden_norm"])]
    moved, angle = (
        number(state.get(name, {}).get("value")) for name in ("displacement", "cosine_to_embedding")
    )
    if not all(lengths) or not moved or angle is None:
        return None
    ratio = lengths[1] / lengths[0]
    expected = max(1 + ratio**2 - 2 * ratio * angle, 0) ** 0.5
    return moved / expected if expected else None


def _clamp(audit: Audit) -> Finding:
    pairs = zip(values_of(audit["credit"], "cosine"), values_of(audit["credit"], "clamped_cosine"))
    gaps = [abs(free - clamped) for free, clamped in pairs if None not in (free, clamped)]
    if not gaps:
        return Finding(
            False, "no block has both a cosine without epsilon and one with torch's clamp"
        )
    return Finding(
        True,
        "cosines are without epsilon; torch's clamped ones lie up to {} away from them",
        (max(gaps),),
    )


def _underflow(audit: Audit) -> Finding:
    errors, angles = (
        values_of(audit["layers"], name) for name in ("float32_error", "float32_cosine")
    )
    narrow = [text for text in audit.get("warnings", []) if "float16" in text]
    if narrow:
        return Finding(False, narrow[0].split(":")[0].replace("{", "{{").replace("}", "}}"))
    if not audit["finite"]:
        return Finding(False, "a state, gradient or logit is NaN or infinite")
    if None in errors:
        worst = max((error for error in errors if error is not None), default=None)
        text = (
            "gradients were not compared with float64 at every state; the worst other error is {}"
        )
        return Finding(False, text, (worst,))
    text = (
        "at the worst state gradients are {} of their length away from those in float64 (median), and their cosines"
        " with them {} (1st percentile); smallest median ||g_l|| {}"
    )
    least = min((angle for angle in angles if angle is not None), default=None)
    smallest = min(
        filter(None, (number(state["grad_norm"]) for state in audit["layers"])), default=None
    )
    return Finding(max(errors) <= RESOLUTION, text, (max(errors), least, smallest))


def _training_feedback(audit: Audit) -> Finding:
    if kind_of(audit) == "given" and not audit["deep"].get("fresh_b_null", {}).get("interval"):
        return Finding(
            False,
            "the credits are given by a function, and draw= was not, which draws fresh feedback",
        )
    if "spec" in audit and _ended_in_warm_up(audit):
        text = "the training ended in the warm-up, whose feedback, DFA's, was not drawn again to compare"
        return Finding(False, text)
    if (
        "spec" in audit
        and audit["spec"]["method"] in METHODS
        and not stated(audit["spec"]["method"]).random_feedback
    ):
        return Finding(
            True, "the method has no fixed random feedback that could be confused with another draw"
        )
    found = []
    for layer, (block, cosine) in enumerate(zip(audit["credit"], cosines(audit)[0])):
        low, high = ends_of(block["fresh_b_cosine"])
        if None not in (cosine, low, high):
            found.append((max(low - cosine, cosine - high), layer, cosine, low, high))
    if not found:
        return Finding(False, "cosines were not compared with those of fresh feedback")
    beyond, layer, *values = max(found)
    if beyond <= 0:
        return Finding(
            False,
            "in every block the cosine lies where those of fresh feedback lie, indistinguishable",
        )
    text = f"in block {layer} the cosine {{}} lies outside the 95 % interval of fresh draws, from {{}} up to {{}}"
    return Finding(True, text, tuple(values))


def _averages(audit: Audit) -> Finding:
    (_, *later), _, deep = cosines(audit)
    known = [cosine for cosine in later if cosine is not None]
    if deep is None or not known:
        return Finding(False, "there is no mean over the blocks l >= 1 to compute again")
    again = sum(known) / len(known)
    text = "every block's cosine is reported; their mean over l >= 1, computed again, is {} where {} is reported"
    return Finding(abs(again - deep) <= EXACT, text, (again, deep))


def _first_block(audit: Audit) -> Finding:
    (first, *_), _, deep = cosines(audit)
    if deep is None:
        return Finding(False, "there is no deep cosine without block 0")
    return Finding(
        True, "the headline is the deep cosine, {}, without block 0, whose own is {}", (deep, first)
    )


def _fallback(audit: Audit) -> Finding:
    if audit.get("spec", {}).get("method") == "bp":
        return Finding(
            True, "backpropagation's credits are the gradient at the block's output by definition"
        )
    _, known, _ = cosines(audit)
    if not known:
        return Finding(True, "cosines that were not measured are absent, with a reason")
    if min(known) >= 1 - EXACT:
        return Finding(
            False, "every block's cosine is 1, as if the gradient had been compared with itself"
        )
    net = any(value is not None for value in values_of(audit["credit"], "bridge_residual"))
    measured = "; its auxiliary net was there to be measured" * net
    text = f"cosines are not those of the gradient with itself (smallest {{}}){measured}; absent ones have a reason"
    return Finding(True, text, (min(known),))


PITFALLS: tuple[tuple[str, Callable[[Audit], Finding]], ...] = (
    ("1 Norms along features, sample by sample (not tensor.norm(-1))", _norms),
    ("2 Cosines without the clamp at 1e-8", _clamp),
    ("3 No underflow of small gradients", _underflow),
    ("4 Cosines of the feedback that trained the network", _training_feedback),
    ("5 Aggregation over samples and layers stated", _averages),
    ("6 Block 0 does not carry the mean", _first_block),
    ("7 No missing net or feedback replaced by the gradient", _fallback),
)
RULED_OUT = {True: "ruled out: ", False: "not ruled out: "}
NO_COSINE = "not ruled out: the audit has no credits, so that a cosine reported of this network was not checked."


def pitfalls(group: SeedGroup) -> Iterator[Entry]:
    """Yield the paper's seven pitfalls, each ticked where the evidence of every audit rules it out."""
    for term, find in PITFALLS:
        if not group.audits[0]["credit"] and find not in (_norms, _underflow):
            yield Entry(term, NO_COSINE, ticked=False)
            continue
        ticked = all(find(audit).holds for audit in group.audits)
        yield Entry(term, f"{over_seeds(group, find, RULED_OUT)}.", ticked=ticked)


# --- a reviewer's questions
# ------------------------------------------------------------------------------------------


def questions(group: SeedGroup | None, author: Author) -> Iterator[Entry]:
    """Yield the questions of a reviewer with what the audits know; the author is asked for the
    rest.
    """
    known = _known(group) if group else {}
    for place, question in enumerate(QUESTIONS, 1):
        found = known.get(question.name)
        text = author.adds(question.name, found) if found else author.says(question.name)
        yield Entry(f"{place} {question.text}", text)


def _known(group: SeedGroup) -> dict[str, str]:
    """Return what the audits know of every question: the numbers of sentences, and how they were
    measured.
    """
    ruled = rulings([facts_of(audit) for audit in group.audits], group.unit)
    told = {name: rule.may or f"{capital(rule.reason)}." for name, rule in ruled.items()}
    own = by_seed(group, lambda audit: f"Baseline: {audit['baselines']['own_name']}.")
    measured = over_seeds(group, _gradient, {True: "", False: ""}), by_seed(group, _precision)
    credits = over_seeds(group, _aggregation, {True: ""}) if group.audits[0]["credit"] else ""
    return {
        "frozen": f"{told['depth']} {own}" if ruled["depth"].numbers else "",
        "bp_frozen": told["depth_strict"] if ruled["depth_strict"].numbers else "",
        "growth": told["scale"],
        "gradient": " ".join([told["reference"], told["stability"], *measured]),
        "aggregation": credits,
        "chance": " ".join(dict.fromkeys(told[name] for name in CREDITS)) if credits else "",
        "seeds": _seeds(group),
    }


def _gradient(audit: Audit) -> Finding:
    states = ", ".join(map(str, audit.get("untrue", ())))
    untrue = (
        f"; at state {states} the backward pass is not the derivative of the forward pass"
        if states
        else ""
    )
    text = (
        f"It is of the mean loss of N = {audit['samples']} samples, N times smaller than of one sample's own; B ||h_L||"
        f" ||g_L|| is {{}} (saturated below {audit['thresholds']['saturation']:g}); {audit['batches']} batches{untrue}."
        " Precision: "
    )
    return Finding(True, text, (number(audit["layers"][-1]["scale_free"]),))


def _precision(audit: Audit) -> str:
    found = audit.get("provenance")
    if not found and (about := audit.get("about")):
        return f"{about['dtype']} on {about['device']}; torch {about['versions']['torch']}"
    if not found:
        return "not recorded with this audit"
    tf32 = [name for name, on in (found.get("tf32") or {}).items() if on]
    dtype = "float32" if "spec" in audit else "the model's own dtype, float32 products"
    again = None not in values_of(audit["layers"], "float32_error")
    return (
        f"{dtype} ({found.get('fp32_precision', 'precision not recorded')}, TF32 {', '.join(tf32) or 'off'}),"
        f" deterministic algorithms {'on' if found.get('deterministic_algorithms') else 'off'}; gradients"
        f" {'' if again else 'not at every state '}recomputed in float64; torch"
        f" {found.get('packages', {}).get('torch', 'not recorded')}"
    )


def _seeds(group: SeedGroup) -> str:
    fixed = "no specification was recorded: more than the seed may differ"
    if group.unit == "seed":
        seeds = ", ".join(map(str, group.labels))
        fixed = f"{seeds}; each fixes weights, feedback, order, augmentation and noise of its run"
    if (n := len(group.labels)) == 1:
        return f"{fixed}; one {group.unit}: no deviation and no interval, nothing is known of the spread"
    reach = student_t(n - 1) / n**0.5
    return (
        f"{fixed}; n = {n}; deviations have divisor n - 1; the 95 % t-interval reaches {reach:.3g} deviations to either"
        " side of the mean"
    )


# --- reproducibility -----------------------------------------------------------------------------------------------


def reproducibility(group: SeedGroup, author: Author) -> Iterator[Entry]:
    """Yield answers to a conference's reproducibility checklist: [Yes], [No] or [Author], and why."""
    spec = group.audits[0].get("spec")
    yield _answer("Experimental setting: are all details of training and test given?", spec or "hyperparameters" in
                  author.answers, author.adds("hyperparameters", by_seed(group, _hyperparameters)) if spec
                  else author.says("hyperparameters"))  # fmt: skip
    evaluated = [
        check for a in group.audits for check in a["checks"].values() if check["fires"] is not None
    ]
    count = sum(check.get("interval") is not None for check in evaluated)
    yield _answer("Error bars: is statistical significance reported?", len(group.labels) > 1,
                  f"{count} of {len(evaluated)} evaluated checks have a 95 % interval over samples, batches or test"
                  " images; over seeds see question 7")  # fmt: skip
    yield _answer(
        "Compute resources: are all given?", "compute" in author.answers, author.says("compute")
    )
    yield _answer("Is the code available?", "code" in author.answers, author.says("code"))
    data = spec and LICENCES.get(spec["dataset"])
    known = f"{spec['dataset']}: {_split(group.audits[0])}" if spec and data else None
    yield _answer(
        "Are the data available?",
        bool(known) or "data" in author.answers,
        author.says("data", known),
    )
    licences = f"{data}; fa-audit: MIT" if data else None
    yield _answer("Are licences of the assets given?", bool(licences) or "licences" in author.answers,
                  author.says("licences", licences))  # fmt: skip


def _answer(question: str, known: Any, text: str) -> Entry:
    """Return an answer; one that an author must still give is neither yes nor no."""
    answer = "[Yes]" if known else "[Author]" if "[to be stated" in text else "[No]"
    return Entry(question, f"{answer} {text.rstrip('.')}.")


def _hyperparameters(audit: Audit) -> str:
    spec = DEPARTURES | audit["spec"]
    unused = ("normalise", "rms_floor") if not stated(spec["method"]).normalises else ()
    values = {
        **{
            f"{spec['architecture']}.{name}": value
            for name, value in sorted(spec["architecture_options"].items())
        },
        **{
            f"{spec['method']}.{name}": value
            for name, value in stated(spec["method"]).constants.items()
        },
        **{name: spec[name] for name in HYPERPARAMETERS if name not in unused},
        "optimiser": f"{spec['optimiser']} ({FIXED[spec['optimiser']]})",
    }
    listed = ", ".join(f"{name} = {value:g}" if isinstance(value, float) else f"{name} = {value}"
                       for name, value in values.items())  # fmt: skip
    return f"data set {spec['dataset']}; {listed}; learning rate along a cosine to 0; accuracy {measured_after(audit)}"


def measured_after(audit: Audit) -> str:
    """Return after which epoch a trained run's accuracy was measured: not every run reaches the
    last one.
    """
    epochs, stopped, snapshot = (
        audit["spec"]["epochs"],
        audit.get("stopped_after"),
        audit["spec"].get("snapshot"),
    )
    if stopped is not None:
        return f"after epoch {stopped} of {epochs}, where the monitor stopped the training"
    return (
        "after the last epoch"
        if snapshot is None
        else f"after epoch {snapshot} of {epochs}, a snapshot"
    )


def _split(audit: Audit) -> str:
    whose = "its usual" if audit["spec"]["dataset"] in USUAL_SPLITS else "fa-audit's own"
    samples = audit["baselines"].get("test_samples")
    return f"{whose} split; tested on {f'all {samples} samples of' if samples else 'the whole of'} its test set"
