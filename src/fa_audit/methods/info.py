r"""Texts and costs of the registered methods, for plans, lists and reports.

No training imports this file, so that editing a text makes no training stale. A user-defined method
assigns the same names in its class; texts that are missing there and in registered base classes are
reported as not stated. Imports no torch.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from fa_audit.core.registry import entry_of
from fa_audit.methods import METHODS

NOT_STATED = "not stated by the method"
_TOP = r"a_{L-1} = \partial\mathrm{CE}/\partial h_L,\quad a_{l-1} = "
SYMBOLS = (
    "h_l: input of block l, h_L: of the head; p: softmax of the logits, y: one-hot label, s = p - y, t_l = l/L; CE:"
    " cross-entropy; d: width, C: classes; J_l[W -> B]: Jacobian of block l with its weights W replaced by B"
)


@dataclass(frozen=True, kw_only=True)
class MethodInfo:
    """Texts, costs and constants of a method; a text that is not stated is empty.

    Attributes:
        summary: one line for `fa-audit list methods`.
        equation: the credit ``a_l``.
        latex: the equation in LaTeX, without dollar signs.
        feedback: the matrices or nets that carry the credit.
        drawn: distribution, scale and life of the feedback.
        source: authors and year.
        passes: forward and backward passes of the network in a step.
        relative_time: time of a training step divided by backpropagation's; scales the workflow's
            ``runtime``.
        memory_mb: memory beyond backpropagation's; added to the workflow's ``mem_mb``.
        normalises: whether it learns from normalised credits if a training asks for them.
        random_feedback: as in `Method`.
        constants: the constants with their defaults.
    """

    summary: str = ""
    equation: str = ""
    latex: str = ""
    feedback: str = ""
    drawn: str = ""
    source: str = ""
    passes: str = "1 forward, 1 backward"
    relative_time: float = 1.0
    memory_mb: int = 0
    normalises: bool = True
    random_feedback: bool = False
    constants: Mapping[str, Any] = field(default_factory=dict)


_LOCAL = MethodInfo(
    normalises=False,
    latex=r"a_l = \partial\,\mathrm{CE}(A_l h_{l+1} + b_l, y)/\partial h_{l+1}",
    feedback="learned linear classifier per block",
    drawn="linear nets, initialised as torch's are, trained with the network",
    source="Nokland, Eidnes 2019",
    relative_time=1.2,
)
_TRANSPORTED = MethodInfo(
    feedback="learned B, a partner of every weight of the blocks",
    passes="3 forward, 2 backward",
    relative_time=2.0,
    random_feedback=True,
)
_SIGNS = replace(_TRANSPORTED, source="Liao, Leibo, Poggio 2016")
_DIRECT = MethodInfo(
    feedback="fixed random B_l, d x C, per block",
    drawn="entries N(0, 1/C), standard deviation 1/sqrt(C); drawn once, fixed",
    random_feedback=True,
)
_RELAXED = MethodInfo(
    normalises=False,
    feedback="the forward weights, by relaxation",
    drawn="none is drawn: states relax through the forward weights",
)
_INVERSES = MethodInfo(
    drawn="learned nets g_l, initialised as torch's linear layers are, trained with the network",
)
INFO: dict[str, MethodInfo] = {
    "bp": MethodInfo(
        normalises=False,
        summary="backpropagation: the exact gradient of the global loss",
        equation="a_l = dCE/dh_{l+1}",
        latex=r"a_l = \partial\mathrm{CE}/\partial h_{l+1}",
        feedback="the forward weights",
        drawn="none is drawn: the forward weights carry the gradient",
        source="Rumelhart, Hinton, Williams 1986",
    ),
    "fa": MethodInfo(
        summary="feedback alignment: a fixed random matrix per block carries the credit down",
        equation="a_{L-1} = dCE/dh_L,  a_{l-1} = a_l B_l",
        latex=_TOP + "a_l B_l",
        feedback="fixed random B_l, d x d, per block",
        drawn="entries N(0, 1/d), standard deviation 1/sqrt(d); drawn once before training, fixed",
        source="Lillicrap, Cownden, Tweed, Akerman 2016",
        random_feedback=True,
    ),
    "fa_layerwise": replace(
        _TRANSPORTED,
        summary="feedback alignment, layer by layer: a fixed random partner of every weight carries the gradient back",
        equation="a_{L-1} = dCE/dh_L,  a_{l-1} = a_l J_l[W -> B]",
        latex=_TOP + r"a_l\,J_l[W \to B]",
        feedback="fixed random B, a partner of every weight of the blocks",
        drawn="entries N(0, 1/fan in), drawn once, fixed",
        source="Lillicrap, Cownden, Tweed, Akerman 2016",
    ),
    "dfa": replace(
        _DIRECT,
        summary="direct feedback alignment: a fixed random matrix per block projects the output error",
        equation="a_l = (p - y) B_l^T",
        latex=r"a_l = (p - y)\,B_l^\top",
        source="Nokland 2016",
    ),
    "drtp": replace(
        _DIRECT,
        summary="direct random target projection: a fixed random matrix per block projects the label",
        equation="a_l = (1/C - y) B_l^T",
        latex=r"a_l = (1/C - y)\,B_l^\top",
        source="Frenkel, Lefebvre, Bol 2021",
    ),
    "usf": replace(
        _SIGNS,
        summary="uniform sign-symmetric feedback: the signs of the weights, all of one magnitude",
        equation="a_{L-1} = dCE/dh_L,  a_{l-1} = a_l J_l[W -> sign(W) / sqrt(fan_in)]",
        latex=_TOP + r"a_l\,J_l[W \to \mathrm{sign}(W)/\sqrt{\mathrm{fan\ in}}]",
        feedback="signs of the weights",
        drawn="none is drawn: signs of the present weights, all of magnitude 1/sqrt(fan in)",
        random_feedback=False,
    ),
    "brsf": replace(
        _SIGNS,
        summary="batchwise random sign-symmetric feedback: as frsf, with new magnitudes every minibatch",
        equation="a_{L-1} = dCE/dh_L,  a_{l-1} = a_l J_l[W -> M_t sign(W)]",
        latex=_TOP + r"a_l\,J_l[W \to M_t \circ \mathrm{sign}(W)]",
        feedback="signs of the weights, magnitudes M_t drawn per minibatch",
        drawn="magnitudes |N(0, 1/fan in)|, fresh for every minibatch; signs of the present weights",
    ),
    "frsf": replace(
        _SIGNS,
        summary="fixed random sign-symmetric feedback: the signs of the weights, fixed random magnitudes",
        equation="a_{L-1} = dCE/dh_L,  a_{l-1} = a_l J_l[W -> M sign(W)]",
        latex=_TOP + r"a_l\,J_l[W \to M \circ \mathrm{sign}(W)]",
        feedback="signs of the weights, fixed random magnitudes M",
        drawn="magnitudes |N(0, 1/fan in)|, drawn once, fixed; signs of the present weights",
    ),
    "kolen_pollack": replace(
        _TRANSPORTED,
        summary="Kolen-Pollack: random feedback weights that copy the updates of the forward weights",
        equation="a_{L-1} = dCE/dh_L,  a_{l-1} = a_l J_l[W -> B],  dB = dW",
        latex=_TOP + r"a_l\,J_l[W \to B],\quad \mathrm{d}B = \mathrm{d}W",
        drawn="entries N(0, 1/fan in) at first; learned: every step adds the forward weight's update, with the same"
        " decay",
        source="Kolen, Pollack 1994; Akrout et al. 2019",
    ),
    "direct_kolen_pollack": MethodInfo(
        summary="direct Kolen-Pollack: DFA whose matrices learn as linear classifiers of the states would",
        equation="a_l = (p - y) B_l^T,  dB_l = -eta mean(h_{l+1}^T (p - y)) - decay B_l",
        latex=r"a_l = (p - y)\,B_l^\top,\quad \mathrm{d}B_l = -\eta\,\overline{h_{l+1}^\top(p - y)} - \lambda B_l",
        feedback="learned B_l, d x C, per block",
        drawn="entries uniform within +-sqrt(6/d) at first; learned with the network, under the same decay",
        source="Webster, Choi, Ahn 2021",
        relative_time=1.2,
        random_feedback=True,
    ),
    "weight_mirror": replace(
        _TRANSPORTED,
        summary="weight mirror: random feedback weights that noise through each layer draws towards its own",
        equation="a_{L-1} = dCE/dh_L,  a_{l-1} = a_l J_l[W -> B],  dB = eta mean(W xi xi^T) - decay B",
        latex=_TOP
        + r"a_l\,J_l[W \to B],\quad \mathrm{d}B = \eta\,\overline{W\xi\xi^\top} - \lambda B",
        drawn="entries N(0, 1/fan in) at first; learned from noise xi, N(0, 1), fresh for every minibatch",
        source="Akrout et al. 2019",
        passes="3 forward, 2 backward; 2 products per weight",
        relative_time=2.2,
        constants={"eta": 0.01, "decay": 0.01, "sigma": 1.0, "draws": 128},
    ),
    "dtp": replace(
        _INVERSES,
        summary="difference target propagation: learned inverses carry targets down",
        equation="t_L = h_L - eta dCE/dh_L,  t_l = h_l + g_l(t_{l+1}) - g_l(h_{l+1}),  a_l = (h_{l+1} - t_{l+1}) / eta",
        latex=r"t_l = h_l + g_l(t_{l+1}) - g_l(h_{l+1}),\quad a_l = (h_{l+1} - t_{l+1})/\eta",
        feedback="learned inverses g_l, one per block",
        source="Lee, Zhang, Fischer, Bengio 2015",
        passes="2 forward, 1 backward; 3 and 1 of the inverses",
        relative_time=2.0,
        constants={"eta": 0.33, "sigma": 0.36, "hidden": 256, "inverse_rate": 7.0},
    ),
    "dtp_drl": replace(
        _INVERSES,
        summary="target propagation with a difference reconstruction loss: inverses of the whole path carry targets",
        equation="t_out = z - eta (p - y),  t_l = h_l + g_l(t_{l+1}) - g_l(h_{l+1}),  a_l = (h_{l+1} - t_{l+1}) / eta",
        latex=r"t_l = h_l + g_l(t_{l+1}) - g_l(h_{l+1}),\ t_{L+1} = z - \eta(p - y),\ a_l = (h_{l+1} - t_{l+1})/\eta",
        feedback="learned inverses g_l, one per block and a linear one of the head",
        source="Meulemans, Carzaniga, Suykens, Sacramento, Grewe 2020",
        passes="L / 2 + 2 forward, 1 backward; L + 4 and 2 of the inverses",
        relative_time=5.0,
        constants={
            "eta": 0.026,
            "sigma": 0.1,
            "hidden": 256,
            "inverse_rate": 7.0,
            "damping": 1.3e-05,
        },
    ),
    "predictive_coding": replace(
        _RELAXED,
        summary="predictive coding: weights follow the prediction errors of states that relax towards the label",
        equation="a_l = F_l(h_l) - h_{l+1} of relaxed states",
        latex=r"a_l = F_l(h_l^{\mathrm{relaxed}}) - h_{l+1}^{\mathrm{relaxed}}",
        source="Whittington, Bogacz 2017; Millidge, Tschantz, Buckley 2020",
        passes="23 forward, 22 backward",
        relative_time=15.0,
        constants={"steps": 20, "alpha": 0.2, "fixed": False},
    ),
    "dual_propagation": MethodInfo(
        normalises=False,
        summary="dual propagation: weights follow mean and difference of paired states, nudged both ways from the top",
        equation="a_l = -d_{l+1} / beta,  d_l = s_l^+ - s_l^-,  s_l^+- = h_l +- J_l(s_l^+-)^T d_{l+1} / 2",
        latex=r"a_l = -d_{l+1}/\beta,\quad d_l = s_l^+ - s_l^-,\quad s_l^\pm = h_l \pm J_l(s_l^\pm)^\top d_{l+1}/2",
        feedback="the forward weights, in one pass from the top down",
        drawn="none is drawn: differences of paired states pass down through the forward weights",
        source="Hoier, Staudt, Zach 2023; Hoier, Zach 2024",
        passes="7 forward, 7 backward",
        relative_time=4.5,
        constants={"beta": 0.01, "alpha": 0.5, "steps": 2},
    ),
    "local_pred": replace(
        _LOCAL,
        summary="local prediction losses: every block has a linear classifier of its own",
        equation="a_l = d/dh_{l+1} CE(A_l h_{l+1} + b_l, y)",
    ),
    "local_sim": replace(
        _LOCAL,
        summary="local similarity losses: every block makes samples as alike as their labels are",
        equation="a_l = d/dh_{l+1} mean (S(M_l h_{l+1}) - S(y))^2,  S: cosines of the batch's samples",
        latex=r"a_l = \partial\,\|S(M_l h_{l+1}) - S(y)\|^2/\partial h_{l+1}",
        feedback="learned linear map per block",
        relative_time=1.8,
    ),
    "local_predsim": replace(
        _LOCAL,
        summary="local losses, prediction and similarity: 0.01 local_pred + 0.99 local_sim",
        equation="a_l = (1 - beta) a_l^pred + beta a_l^sim",
        latex=r"a_l = (1 - \beta)\,a_l^{\mathrm{pred}} + \beta\,a_l^{\mathrm{sim}}",
        feedback="learned linear classifier and map per block",
        relative_time=2.1,
        constants={"beta": 0.99},
    ),
    "layerwise": replace(
        _LOCAL,
        summary="layer-wise training: local_pred, one block after the other",
        equation="a_l = d/dh_{l+1} CE(A_l h_{l+1} + b_l, y), learned in the l-th stage of L",
        source="Belilovsky, Eickenberg, Oyallon 2019",
    ),
    "forward_gradient": replace(
        _LOCAL,
        summary="forward gradient: local_pred's gradient, along one random direction for every sample and block",
        equation="a_l = (n . d/dh_{l+1} CE(A_l h_{l+1} + b_l, y)) n,  n ~ N(0, I) of each sample",
        latex=r"a_l = (n \cdot \partial\,\mathrm{CE}(A_l h_{l+1} + b_l, y)/\partial h_{l+1})\,n",
        drawn="directions n, N(0, I) for every sample, fresh for every minibatch; linear nets, initialised as torch's"
        " are, trained with the network",
        source="Ren, Kornblith, Liao, Hinton 2023",
        relative_time=1.4,
    ),
    "ep": replace(
        _RELAXED,
        summary="equilibrium propagation: weights follow states that relax towards a lower loss",
        equation="a_l = -(h_{l+1}^nudged - h_{l+1}^free) / beta",
        latex=r"a_l = -(h_{l+1}^{\mathrm{nudged}} - h_{l+1}^{\mathrm{free}})/\beta",
        source="Scellier, Bengio 2017",
        passes="22 forward, 22 backward",
        relative_time=14.0,
        constants={"beta": 0.5, "steps": 20, "alpha": 0.2, "symmetric": False},
    ),
    "ep_symmetric": replace(
        _RELAXED,
        summary="equilibrium propagation with symmetric nudging: phases of +beta and -beta, and their difference",
        equation="a_l = -(h_{l+1}^{+beta} - h_{l+1}^{-beta}) / (2 beta)",
        latex=r"a_l = -(h_{l+1}^{+\beta} - h_{l+1}^{-\beta})/(2\beta)",
        source="Laborieux et al. 2021",
        passes="42 forward, 42 backward",
        relative_time=27.0,
        constants={"beta": 0.5, "steps": 20, "alpha": 0.2, "symmetric": True},
    ),
    "state_bridge": MethodInfo(
        summary="state bridge: a learned net predicts the last state, its loss's gradient is the credit",
        equation="a_l = d/dh_l CE(head(G(LN(h_l), t_l, s)), y)",
        latex=r"a_l = \partial\,\mathrm{CE}(\mathrm{head}(G(\mathrm{LN}(h_l), t_l, s)), y)/\partial h_l",
        feedback="learned net G, shared by all blocks",
        drawn="a learned net G, initialised as torch's linear layers are, trained with the network",
        source="Hao, Wan, Zhai 2026",
        passes="1 forward, 1 backward; 2 and 2 of G",
        relative_time=3.0,
        constants={"hidden": 256},
    ),
    "credit_bridge": MethodInfo(
        summary="credit bridge: a learned net values states by their loss, its gradient is the credit",
        equation="a_l = d/dh_l V(LN(h_l), t_l, s)",
        latex=r"a_l = \partial V(\mathrm{LN}(h_l), t_l, s)/\partial h_l",
        feedback="learned net V, shared by all blocks; DFA's B_l in the warm-up",
        drawn="a learned net V, initialised as torch's linear layers are, trained with the network; in the warm-up"
        " DFA's matrices, N(0, 1/C), drawn once",
        source="Hao, Wan, Zhai 2026",
        passes="1 forward, 1 backward; (K + 3)(L + 1) states through V",
        relative_time=9.0,
        constants={
            "tau": 0.1,
            "draws": 8,
            "sigma": 0.1,
            "memory": 0.995,
            "warm_up": 0.2,
            "hidden": 256,
        },
    ),
    "pepita": MethodInfo(
        normalises=False,
        summary="PEPITA: a second pass on the input plus the projected error, states learn from the difference",
        equation="a_l = h_{l+1}(x) - h_{l+1}(x + range(x) F (p - y))",
        latex=r"a_l = h_{l+1}(x) - h_{l+1}(x + (\max x - \min x) F(p - y))",
        feedback="fixed random F, input x C, then the forward weights",
        drawn="entries uniform within +-0.05 sqrt(6/inputs), mean 0; drawn once, fixed",
        source="Dellaferrera, Kreiman 2022",
        passes="2 forward, 1 backward",
        relative_time=1.5,
        random_feedback=True,
        constants={"strength": 0.05},
    ),
    "forward_forward": MethodInfo(
        normalises=False,
        summary="forward-forward: each layer separates images with their label from images with a wrong one",
        equation="a_l = mean over s = +1, -1 (right, wrong label) of d/dh_{l+1} log(1 + exp(-s (sum(h_{l+1}^2) - d)))",
        latex=r"a_l = \frac{1}{2}\sum_{s = \pm 1} \partial\log(1 + e^{-s(\|h_{l+1}\|^2 - d)})/\partial h_{l+1}",
        feedback="none: labels are drawn into the image, every layer has a loss of its own",
        drawn="none is drawn: credits are gradients of local losses; wrong labels are drawn for every minibatch",
        source="Hinton 2022",
        passes="3 forward, 2 backward",
        relative_time=3.5,
    ),
    "mono_forward": replace(
        _LOCAL,
        summary="Mono-Forward: every layer projects its activity to one goodness per class",
        equation="a_l = d/dh_{l+1} CE(M_l relu(h_{l+1}), y)",
        latex=r"a_l = \partial\,\mathrm{CE}(M_l\,\mathrm{relu}(h_{l+1}), y)/\partial h_{l+1}",
        feedback="learned projection matrix M_l, C x d, per block",
        drawn="matrices without bias, initialised as torch's linear layers are, trained with the network",
        source="Gong, Li, Abdulla 2025",
    ),
    "sigprop": MethodInfo(
        normalises=False,
        summary="signal propagation: labels run through the network as inputs do, each layer learns to match the two",
        equation="a_l = d/dh_{l+1} CE(<h_{l+1}, t_{l+1}^c> over classes c, y),  t_0 = relu(LN(S c))",
        latex=r"a_l = \partial\,\mathrm{CE}(\langle h_{l+1}, t_{l+1}^c\rangle_c, y)/\partial h_{l+1}",
        feedback="learned projection S of the label, then the forward weights",
        drawn="a learned linear projection and LayerNorm, initialised as torch's are, trained with the network",
        source="Kohan, Rietman, Siegelmann 2022",
        passes="1 forward, 1 backward; 1 and 1 of C labels",
        relative_time=1.5,
    ),
}
FIELDS = tuple(one.name for one in fields(MethodInfo))


def stated(name: str) -> MethodInfo:
    """Return the texts and costs of a registered method, or of a class that is already imported.

    Nothing is imported: a name may come from an audit, and no file decides which code runs.
    """
    if name in INFO:
        return INFO[name]
    module, _, attribute = name.partition(":")
    kind = getattr(sys.modules.get(module), attribute, None)
    return of_class(kind) if isinstance(kind, type) else MethodInfo()


def check_method(name: str) -> None:
    """Check that a method is registered, or that it can be imported.

    Raises:
        AuditError: it is neither, or the imported object is not a method.
    """
    if entry_of("method", METHODS, name) == name:
        from fa_audit.methods.method import load_method

        load_method(name)


def of_class(kind: type) -> MethodInfo:
    """Return the texts and costs that a method's class assigns or inherits, without `latex` and
    `drawn`.
    """
    from fa_audit.methods.method import Method

    names = {entry: name for name, entry in METHODS.items()}
    places = (f"{base.__module__}:{base.__qualname__}" for base in kind.__mro__)
    registered = next((INFO[names[place]] for place in places if place in names), MethodInfo())
    constants = {
        name: value
        for base in reversed(kind.__mro__)
        for name, value in vars(base).items()
        if isinstance(value, bool | int | float | str)
        and not hasattr(Method, name)
        and name not in FIELDS
    }
    own = {name: getattr(kind, name) for name in FIELDS if hasattr(kind, name)}
    return replace(registered, **{"latex": "", "drawn": "", "constants": constants} | own)
