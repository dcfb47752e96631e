"""Registry of training methods: name -> class.

To add a method, write one file and one line here. A method outside of this package is named
``package.module:ClassName`` instead. This file holds names only and imports no torch.
"""

METHODS: dict[str, str] = {
    "bp": "fa_audit.methods.bp:BP",
    "fa": "fa_audit.methods.fa:FA",
    "fa_layerwise": "fa_audit.methods.fa_layerwise:FALayerwise",
    "dfa": "fa_audit.methods.dfa:DFA",
    "drtp": "fa_audit.methods.drtp:DRTP",
    "usf": "fa_audit.methods.usf:USF",
    "brsf": "fa_audit.methods.brsf:BRSF",
    "frsf": "fa_audit.methods.frsf:FRSF",
    "kolen_pollack": "fa_audit.methods.kolen_pollack:KolenPollack",
    "direct_kolen_pollack": "fa_audit.methods.direct_kolen_pollack:DirectKolenPollack",
    "weight_mirror": "fa_audit.methods.weight_mirror:WeightMirror",
    "dtp": "fa_audit.methods.dtp:DTP",
    "dtp_drl": "fa_audit.methods.dtp_drl:DTPDRL",
    "predictive_coding": "fa_audit.methods.predictive_coding:PredictiveCoding",
    "dual_propagation": "fa_audit.methods.dual_propagation:DualPropagation",
    "local_pred": "fa_audit.methods.local_losses:LocalPred",
    "local_sim": "fa_audit.methods.local_losses:LocalSim",
    "local_predsim": "fa_audit.methods.local_losses:LocalPredSim",
    "layerwise": "fa_audit.methods.layerwise:Layerwise",
    "forward_gradient": "fa_audit.methods.forward_gradient:ForwardGradient",
    "ep": "fa_audit.methods.ep:EP",
    "ep_symmetric": "fa_audit.methods.ep_symmetric:SymmetricEP",
    "state_bridge": "fa_audit.methods.state_bridge:StateBridge",
    "credit_bridge": "fa_audit.methods.credit_bridge:CreditBridge",
    "pepita": "fa_audit.methods.pepita:PEPITA",
    "forward_forward": "fa_audit.methods.forward_forward:ForwardForward",
    "mono_forward": "fa_audit.methods.mono_forward:MonoForward",
    "sigprop": "fa_audit.methods.sigprop:SigProp",
}
