r"""Texts and costs of the registered methods, for plans, lists and reports.

No training imports this file, so editing a text makes no training stale. A user-defined method
assigns the same names in its class. A text that neither the class nor a registered base class has
is reported as not stated. Imports no torch.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, replace

from fa_audit.core.registry import entry_of
from fa_audit.methods import METHODS

NOT_STATED = "not stated by the method"
SYMBOLS = (
    "h_l: input of block l, h_L: input of the head; p: softmax of the logits, y: one-hot label;"
    " in the bridges s = p - y, t_l = l/L; CE: cross-entropy; d: width, C: classes; J_l[W -> B]:"
    " Jacobian of block l with B in place of its weights W in the backward pass; the head's gradient"
    " then uses B, too"
)
# The start of every formula that carries the gradient at h_L down.
_TOP = r"a_{L-1} = \partial\mathrm{CE}/\partial h_L,\quad a_{l-1} = "


@dataclass(frozen=True, kw_only=True)
class MethodInfo:
    """Texts and costs of a method; a text that is not stated is empty.

    Attributes:
        summary: one line for `fa-audit list methods`.
        equation: the credit ``a_l``.
        latex: the equation in LaTeX, without dollar signs.
        feedback: the matrices or nets that carry the credit, their distribution, and when they
            are drawn.
        source: authors and year.
        relative_time: time of a training step divided by backpropagation's; scales the workflow's
            ``runtime``.
        memory_mb: memory beyond backpropagation's; added to the workflow's ``mem_mb``.
    """

    summary: str = ""
    equation: str = ""
    latex: str = ""
    feedback: str = ""
    source: str = ""
    relative_time: float = 1.0
    memory_mb: int = 0


INFO: dict[str, MethodInfo] = {
    "bp": MethodInfo(
        summary="backpropagation: the exact gradient of the global loss",
        equation="a_l = dCE/dh_{l+1}",
        latex=r"a_l = \partial\mathrm{CE}/\partial h_{l+1}",
        feedback="the forward weights; no matrix is drawn",
        source="Rumelhart, Hinton, Williams 1986",
    ),
    "fa": MethodInfo(
        summary="feedback alignment: a fixed random matrix per block carries the credit down",
        equation="a_{L-1} = dCE/dh_L,  a_{l-1} = a_l B_l",
        latex=_TOP + "a_l B_l",
        feedback="fixed random B_l, d x d, per block; entries N(0, 1/d), drawn once",
        source="Lillicrap, Cownden, Tweed, Akerman 2016",
    ),
    "fa_layerwise": MethodInfo(
        summary="feedback alignment, layer by layer: each weight has a fixed random partner",
        equation="a_{L-1} = dCE/dh_L,  a_{l-1} = a_l J_l[W -> B]",
        latex=_TOP + r"a_l\,J_l[W \to B]",
        feedback="one fixed random B for each weight; entries N(0, 1/fan in), drawn once",
        source="Lillicrap, Cownden, Tweed, Akerman 2016",
        relative_time=2.0,
    ),
    "dfa": MethodInfo(
        summary="direct feedback alignment: a random matrix per block projects the output error",
        equation="a_l = (p - y) B_l^T",
        latex=r"a_l = (p - y)\,B_l^\top",
        feedback="fixed random B_l, d x C, per block; entries N(0, 1/C), drawn once",
        source="Nokland 2016",
    ),
    "drtp": MethodInfo(
        summary="direct random target projection: a random matrix per block projects the label",
        equation="a_l = (1/C - y) B_l^T",
        latex=r"a_l = (1/C - y)\,B_l^\top",
        feedback="fixed random B_l, d x C, per block; entries N(0, 1/C), drawn once",
        source="Frenkel, Lefebvre, Bol 2021",
    ),
    "usf": MethodInfo(
        summary="uniform sign-symmetric feedback: the signs of the weights, all of one magnitude",
        equation="a_{L-1} = dCE/dh_L,  a_{l-1} = a_l J_l[W -> sign(W) / sqrt(fan_in)]",
        latex=_TOP + r"a_l\,J_l[W \to \mathrm{sign}(W)/\sqrt{\mathrm{fan\ in}}]",
        feedback="signs of the weights, times 1/sqrt(fan in); nothing is drawn",
        source="Liao, Leibo, Poggio 2016",
        relative_time=2.0,
    ),
    "brsf": MethodInfo(
        summary="batchwise random sign-symmetric feedback: frsf with new magnitudes per minibatch",
        equation="a_{L-1} = dCE/dh_L,  a_{l-1} = a_l J_l[W -> M_t sign(W)]",
        latex=_TOP + r"a_l\,J_l[W \to M_t \circ \mathrm{sign}(W)]",
        feedback="signs of the weights; magnitudes M_t: abs(N(0, 1/fan in)), every minibatch",
        source="Liao, Leibo, Poggio 2016",
        relative_time=2.0,
    ),
    "frsf": MethodInfo(
        summary="fixed random sign-symmetric feedback: signs of the weights, random magnitudes",
        equation="a_{L-1} = dCE/dh_L,  a_{l-1} = a_l J_l[W -> M sign(W)]",
        latex=_TOP + r"a_l\,J_l[W \to M \circ \mathrm{sign}(W)]",
        feedback="signs of the weights; magnitudes M: abs(N(0, 1/fan in)), drawn once",
        source="Liao, Leibo, Poggio 2016",
        relative_time=2.0,
    ),
    "kolen_pollack": MethodInfo(
        summary="Kolen-Pollack: random feedback weights copy the updates of the forward weights",
        equation="a_{L-1} = dCE/dh_L,  a_{l-1} = a_l J_l[W -> B],  dB = dW",
        latex=_TOP + r"a_l\,J_l[W \to B],\quad \mathrm{d}B = \mathrm{d}W",
        feedback="learned: one B for each weight; N(0, 1/fan in) at first, updated as W is",
        source="Kolen, Pollack 1994; Akrout et al. 2019",
        relative_time=2.0,
    ),
    "direct_kolen_pollack": MethodInfo(
        summary="direct Kolen-Pollack: DFA whose matrices learn like linear classifiers of states",
        equation="a_l = (p - y) B_l^T,  B_l is trained like a weight, by mean(h_{l+1}^T (p - y))",
        latex=r"a_l = (p - y)B_l^\top,\ \nabla B_l = \overline{h_{l+1}^\top(p - y)}",
        feedback="learned B_l, d x C, per block; uniform in +-sqrt(6/d) at first",
        source="Webster, Choi, Ahn 2021",
        relative_time=1.2,
    ),
    "weight_mirror": MethodInfo(
        summary="weight mirror: feedback weights learn to match the forward weights, from noise",
        equation="a_{L-1} = dCE/dh_L,  a_{l-1} = a_l J_l[W -> B],  dB = eta mean(W xi xi^T) - decay B",
        latex=_TOP + r"a_lJ_l[W \to B],\ \mathrm{d}B = \eta\overline{W\xi\xi^\top} - \lambda B",
        feedback="learned from noise: one B for each weight; N(0, 1/fan in) at first",
        source="Akrout et al. 2019",
        relative_time=2.2,
    ),
    "dtp": MethodInfo(
        summary="difference target propagation: learned inverses carry targets down",
        equation="a_l = (h_{l+1} - t_{l+1}) / eta,  t_l = h_l + g_l(t_{l+1}) - g_l(h_{l+1})",
        latex=r"t_l = h_l + g_l(t_{l+1}) - g_l(h_{l+1}),\quad a_l = (h_{l+1} - t_{l+1})/\eta",
        feedback="learned inverses g_l, one per block; torch's initialisation",
        source="Lee, Zhang, Fischer, Bengio 2015",
        relative_time=2.0,
    ),
    "dtp_drl": MethodInfo(
        summary="target propagation whose inverses learn on the whole path to the logits and back",
        equation="a_l = (h_{l+1} - t_{l+1}) / eta,  t_l as in dtp,  t_out = z - eta (p - y)",
        latex=r"a_l = (h_{l+1} - t_{l+1})/\eta,\quad t_{L+1} = z - \eta(p - y)",
        feedback="learned inverses g_l, one per block and one of the head; torch's initialisation",
        source="Meulemans, Carzaniga, Suykens, Sacramento, Grewe 2020",
        relative_time=5.0,
    ),
    "predictive_coding": MethodInfo(
        summary="predictive coding: weights learn from the prediction errors of relaxed states",
        equation="a_l = F_l(h_l) - h_{l+1} of relaxed states",
        latex=r"a_l = F_l(h_l^{\mathrm{relaxed}}) - h_{l+1}^{\mathrm{relaxed}}",
        feedback="the forward weights, by relaxation; no matrix is drawn",
        source="Whittington, Bogacz 2017; Millidge, Tschantz, Buckley 2020",
        relative_time=15.0,
    ),
    "dual_propagation": MethodInfo(
        summary="dual propagation: weights learn from two states, nudged to lower and higher loss",
        equation="a_l = -d_{l+1} / beta,  d_l = s_l^+ - s_l^-,  s_l^+- = h_l +- J_l^T d_{l+1} / 2",
        latex=r"a_l = -d_{l+1}/\beta,\quad d_l = s_l^+ - s_l^-",
        feedback="the forward weights, in one pass from the top down; no matrix is drawn",
        source="Hoier, Staudt, Zach 2023; Hoier, Zach 2024",
        relative_time=4.5,
    ),
    "local_pred": MethodInfo(
        summary="local prediction losses: every block has a linear classifier of its own",
        equation="a_l = d/dh_{l+1} CE(A_l h_{l+1} + b_l, y)",
        latex=r"a_l = \partial\,\mathrm{CE}(A_l h_{l+1} + b_l, y)/\partial h_{l+1}",
        feedback="learned linear classifier per block; torch's initialisation",
        source="Nokland, Eidnes 2019",
        relative_time=1.2,
    ),
    "local_sim": MethodInfo(
        summary="local similarity losses: every block makes samples as alike as their labels are",
        equation="a_l = d/dh_{l+1} mean (S(M_l h_{l+1}) - S(y))^2,  S: cosines of samples",
        latex=r"a_l = \partial\,\overline{(S(M_l h_{l+1}) - S(y))^2}/\partial h_{l+1}",
        feedback="learned linear map per block; torch's initialisation",
        source="Nokland, Eidnes 2019",
        relative_time=1.8,
    ),
    "local_predsim": MethodInfo(
        summary="local losses, prediction and similarity: 0.01 local_pred + 0.99 local_sim",
        equation="a_l = (1 - beta) a_l^pred + beta a_l^sim",
        latex=r"a_l = (1 - \beta)\,a_l^{\mathrm{pred}} + \beta\,a_l^{\mathrm{sim}}",
        feedback="learned linear classifier and linear map per block; torch's initialisation",
        source="Nokland, Eidnes 2019",
        relative_time=2.1,
    ),
    "layerwise": MethodInfo(
        summary="layer-wise training: local_pred, one block after the other",
        equation="a_l = d/dh_{l+1} CE(A_l h_{l+1} + b_l, y);  block l learns only in stage l",
        latex=r"a_l = \partial\,\mathrm{CE}(A_l h_{l+1} + b_l, y)/\partial h_{l+1}",
        feedback="learned linear classifier per block; torch's initialisation",
        source="Belilovsky, Eickenberg, Oyallon 2019",
        relative_time=1.2,
    ),
    "forward_gradient": MethodInfo(
        summary="forward gradient: local_pred's gradient, along one random direction",
        equation="a_l = (n . d/dh_{l+1} CE(A_l h_{l+1} + b_l, y)) n,  n ~ N(0, I)",
        latex=r"a_l = (n \cdot \partial\,\mathrm{CE}(A_l h_{l+1} + b_l, y)/\partial h_{l+1})\,n",
        feedback="learned linear classifier per block; directions n ~ N(0, I), every minibatch",
        source="Ren, Kornblith, Liao, Hinton 2023",
        relative_time=1.4,
    ),
    "ep": MethodInfo(
        summary="equilibrium propagation: weights learn from states that relax to a lower loss",
        equation="a_l = -(h_{l+1}^nudged - h_{l+1}^free) / beta",
        latex=r"a_l = -(h_{l+1}^{\mathrm{nudged}} - h_{l+1}^{\mathrm{free}})/\beta",
        feedback="the forward weights, by relaxation; no matrix is drawn",
        source="Scellier, Bengio 2017; energy: Hao, Wan, Zhai 2026",
        relative_time=14.0,
    ),
    "ep_symmetric": MethodInfo(
        summary="equilibrium propagation with symmetric nudging: phases of +beta and -beta",
        equation="a_l = -(h_{l+1}^{+beta} - h_{l+1}^{-beta}) / (2 beta)",
        latex=r"a_l = -(h_{l+1}^{+\beta} - h_{l+1}^{-\beta})/(2\beta)",
        feedback="the forward weights, by relaxation; no matrix is drawn",
        source="Laborieux et al. 2021; energy: as `ep`",
        relative_time=27.0,
    ),
    "state_bridge": MethodInfo(
        summary="state bridge: credit is backpropagated through a net that predicts the last state",
        equation="a_l = d/dh_l CE(head(G(LN(h_l), t_l, s)), y)",
        latex=r"a_l = \partial\mathrm{CE}(\mathrm{head}(G(\mathrm{LN}(h_l),t_l,s)),y)/\partial h_l",
        feedback="learned net G, shared by all blocks; torch's initialisation",
        source="Hao, Wan, Zhai 2026",
        relative_time=3.0,
    ),
    "credit_bridge": MethodInfo(
        summary="credit bridge: a net predicts the loss from a state; its gradient is the credit",
        equation="a_l = d/dh_l V(LN(h_l), t_l, s)",
        latex=r"a_l = \partial V(\mathrm{LN}(h_l), t_l, s)/\partial h_l",
        feedback="learned net V, shared by all blocks; DFA's B_l, N(0, 1/C), in the warm-up",
        source="Hao, Wan, Zhai 2026",
        relative_time=9.0,
    ),
    "pepita": MethodInfo(
        summary="PEPITA: states learn from a second pass, on the input plus the projected error",
        equation="a_l = h_{l+1}(x) - h_{l+1}(x + range(x) F (p - y))",
        latex=r"a_l = h_{l+1}(x) - h_{l+1}(x + (\max x - \min x) F(p - y))",
        feedback="fixed random F, input x C; uniform in +-0.05 sqrt(6/inputs), drawn once",
        source="Dellaferrera, Kreiman 2022",
        relative_time=1.5,
    ),
    "forward_forward": MethodInfo(
        summary="forward-forward: each layer separates images with right and with wrong labels",
        equation="a_l = mean over s = +1 (right label), -1 (wrong label) of"
        " d/dh^s_{l+1} log(1 + exp(-s (||h^s_{l+1}||^2 - d)))",
        latex=r"a_l = \frac12\sum_{s=\pm1}"
        r"\partial\log(1+e^{-s(\|h^s_{l+1}\|^2-d)})/\partial h^s_{l+1}",
        feedback="none: each layer has its own loss; wrong labels are drawn for every minibatch",
        source="Hinton 2022",
        relative_time=4.0,
    ),
    "mono_forward": MethodInfo(
        summary="Mono-Forward: every layer projects its activity to one goodness per class",
        equation="a_l = d/dh_{l+1} CE(M_l relu(h_{l+1}), y)",
        latex=r"a_l = \partial\,\mathrm{CE}(M_l\,\mathrm{relu}(h_{l+1}), y)/\partial h_{l+1}",
        feedback="learned matrix M_l, C x d, per block; torch's initialisation",
        source="Gong, Li, Abdulla 2025",
        relative_time=1.2,
    ),
    "sigprop": MethodInfo(
        summary="signal propagation: labels pass through the network; layers match images to them",
        equation="a_l = d/dh_{l+1} CE(<h_{l+1}, t_{l+1}^c>, y),  t_0 = relu(LN(S c))",
        latex=r"a_l = \partial\,\mathrm{CE}(\langle h_{l+1}, t_{l+1}^c\rangle, y)/\partial h_{l+1}",
        feedback="learned projection S of labels, then the forward weights; torch's initialisation",
        source="Kohan, Rietman, Siegelmann 2022",
        relative_time=1.5,
    ),
}


def stated(name: str) -> MethodInfo:
    """Return the texts and costs of a registered method, or of a class that is already imported.

    Nothing is imported: the name may come from an audit, and no file may decide which code runs.
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
    """Return the texts and costs that a method's class assigns or inherits. `latex` is not
    inherited from registered methods, since a subclass may have another formula.
    """
    names = {entry: name for name, entry in METHODS.items()}
    registered = MethodInfo()
    # Start at the farthest base class, so that the nearest registered class comes last.
    for base in reversed(kind.__mro__):
        name = names.get(f"{base.__module__}:{base.__qualname__}")
        registered = INFO[name] if name else registered
    own = {field: getattr(kind, field) for field in asdict(registered) if hasattr(kind, field)}
    return replace(registered, **{"latex": ""} | own)
